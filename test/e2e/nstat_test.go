package e2e

import (
	"os/exec"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// counters are the kernel's, as nstat names them.
type counters map[string]int64

// nstat reads the counters of the client's namespace.
func (w *world) nstat() counters {
	w.Helper()
	if _, err := exec.LookPath("nstat"); err != nil {
		w.Skip("needs nstat (Debian: iproute2)")
	}
	c := counters{}
	for line := range strings.Lines(string(w.command(nil, "nstat", "-asz"))) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0][0] == '#' {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		w.must(err)
		c[f[0]] = n
	}
	for _, names := range [][]string{never, onlyCorrupt, onlyCorrupt6, onlyReset, onlyLossy} {
		for _, n := range names {
			if _, ok := c[n]; !ok {
				w.Fatalf("nstat shows no counter %s", n)
			}
		}
	}
	return c
}

// since returns what was counted after before was read.
func (c counters) since(before counters) counters {
	d := counters{}
	for k, v := range c {
		d[k] = v - before[k]
	}
	return d
}

// Counters of the kernel that must not move, whatever the link does.
var never = []string{
	"TcpExtTCPAbortOnMemory", "TcpExtTCPAbortOnTimeout", "TcpExtTCPAbortOnLinger", "TcpExtTCPAbortFailed", "TcpExtTCPSACKReneging",
	"TcpExtTCPReqQFullDrop", "TcpExtPAWSActive", "TcpAttemptFails", "TcpExtTCPMD5Failure",
}

// badSegments is the least number of segments that the kernel found malformed. It answers a SYN that is repeated with a challenge and
// counts it in TCPSYNChallenge in every state, but in TcpInErrs only in ESTABLISHED (tcp_validate_incoming, syn_inerr): a SYN-ACK that
// is late for a short connection, which has sent its FIN by then, moves the former alone. So the difference may be negative.
func (c counters) badSegments() int64 { return max(c["TcpInErrs"]-c["TcpExtTCPSYNChallenge"], 0) }

// Counters that move only if the link corrupts. TcpInErrs is in badSegments.
var onlyCorrupt = []string{"TcpInCsumErrors", "IpInHdrErrors", "IpInAddrErrors", "IpInUnknownProtos", "IpExtInCsumErrors"}

// The same for IPv6. Its header has no checksum: what is corrupted there shows as something else.
var onlyCorrupt6 = []string{
	"Ip6InHdrErrors", "Ip6InAddrErrors", "Ip6InUnknownProtos", "Ip6InTruncatedPkts", "Ip6InNoRoutes", "Icmp6InErrors", "Icmp6InCsumErrors",
	"Icmp6OutParmProblems",
}

// Counters that move only if an end resets.
var onlyReset = []string{"TcpEstabResets", "TcpExtTCPAbortOnData", "TcpExtTCPAbortOnClose"}

// Counters that move only if the link loses, repeats or reorders: the daemon sends in order, and nothing twice.
var onlyLossy = []string{
	"TcpExtTCPOFOQueue", "TcpExtTCPDSACKOldSent", "TcpExtTCPDSACKOfoSent", "TcpExtTCPFastRetrans", "TcpExtTCPLostRetransmit",
	"TcpExtTCPSackRecovery", "TcpExtTCPSlowStartRetrans", "TcpExtPAWSEstab", "TcpExtTCPChallengeACK", "TcpExtTCPSynRetrans",
}

// ours are the daemon's counters.
func ours(s *control.StatReply) counters {
	c := counters{}
	for k, v := range s.Counters {
		c[k] = int64(v)
	}
	return c
}

// again judges what was sent more than once over a clean link. That happens only if an end was not scheduled in time, so that the other
// one's loss probe or timeout repeated what had arrived, or if the kernel's veth reordered: it queues frames per CPU, and both a
// process and the other end's interrupts send.
func (w *world) again(kernel, daemon counters) {
	w.Helper()
	// An old timestamp is an acknowledgement that another CPU's overtook.
	reordered := daemon["tcp_out_of_order"] + kernel["TcpExtTCPOFOQueue"] + daemon["tcp_paws"]
	if reordered != 0 && w.oneCPU {
		w.Errorf("the daemon got %d segments out of order, the kernel %d", daemon["tcp_out_of_order"], kernel["TcpExtTCPOFOQueue"])
	}
	// With everything on one CPU the order is certain. On several, what cannot be explained is reported.
	judge := w.Logf
	if w.oneCPU {
		judge = w.Errorf
	}
	excused := func(who string, again, probes, timeouts int64) {
		if again != 0 {
			w.Logf("%s sent %d segments again: %d loss probes, %d timeouts, %d segments out of order", who, again, probes, timeouts, reordered)
		}
		if again > probes && timeouts == 0 && reordered == 0 {
			judge("%s sent %d segments again for no reason", who, again)
		}
	}
	excused("the kernel", kernel["TcpRetransSegs"], kernel["TcpExtTCPLossProbes"], kernel["TcpExtTCPTimeouts"])
	excused("the daemon", daemon["tcp_retrans_segs"], daemon["tcp_tlps"], daemon["tcp_rtos"])
	if reordered+daemon["tcp_rtos"]+daemon["tcp_tlps"]+kernel["TcpExtTCPTimeouts"]+kernel["TcpExtTCPLossProbes"] == 0 {
		for name, c := range map[string]counters{"the kernel's": kernel, "our": daemon} {
			for _, n := range append([]string{"tcp_recoveries", "tcp_lost_segs", "tcp_dup_segs", "tcp_dsacks_recv", "tcp_out_of_window"}, onlyLossy...) {
				if c[n] != 0 {
					judge("clean link: %s %s = %d", name, n, c[n])
				}
			}
		}
	}
}

// lost is how many frames had no room: in the daemon's port, in the interfaces, or in the kernel's queues between them.
func (w *world) lost() (n uint64) {
	w.Helper()
	for _, ns := range []*netns.NS{w.client, w.server} {
		w.must(ns.Do(func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				s := l.Attrs().Statistics
				n += s.RxDropped + s.TxDropped
			}
			return err
		}))
	}
	return n + w.stat().Ports[0].RxDropped
}

// strays is how many resets the kernel may send in answer to what comes once too often for a connection that it has left, such as the
// second acknowledgement of a FIN that was sent twice because an end was not scheduled in time.
const strays = 2

// mustNotReset fails the test if an end has reset a connection, or if the kernel has met more segments of connections that it had left
// than were sent again, or than the link repeated or held back.
func (w *world) mustNotReset(what string, c counters) {
	w.Helper()
	w.mustNotMove(what, c, onlyReset)
	s := ours(w.stat())
	again := s["tcp_retrans_segs"] + s["tcp_tlps"] + c["TcpRetransSegs"] + w.late() + strays
	if c["TcpOutRsts"] > again {
		w.Errorf("%s: TcpOutRsts = %d, and at most %d segments came once too often or late", what, c["TcpOutRsts"], again)
	}
}

// late is how many frames the link repeated or reordered.
func (w *world) late() int64 {
	if w.wire == nil {
		return 0
	}
	there, back := w.wire.counters()
	return int64(there.Duplicated + there.Reordered + back.Duplicated + back.Reordered)
}

// mustNotMove fails for each of the counters that moved.
func (w *world) mustNotMove(what string, c counters, names []string) {
	w.Helper()
	for _, n := range names {
		if c[n] != 0 {
			w.Errorf("%s: %s = %d", what, n, c[n])
		}
	}
}
