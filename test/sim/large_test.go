package sim

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// TestLargeFrames transfers over ports that cut large frames, in both families, over paths that lose, reorder, mark and tell late what they
// have sent. What arrives is what was sent, and a capture of the sender's port shows well-formed packets that an interface of the MTU
// can carry.
func TestLargeFrames(t *testing.T) {
	const ms = time.Millisecond
	addrs := [2]netip.Prefix{netip.MustParsePrefix("2001:db8::1/64"), netip.MustParsePrefix("2001:db8::2/64")}
	for _, c := range []struct {
		name string
		path memlink.Path
		size int
		ecn  tcp.ECN
		cong string
	}{
		{"clean", memlink.Path{}, 4 << 20, tcp.ECNDefault, "cubic"},
		{"1 % loss", memlink.Path{Rate: 1e9, Delay: 5 * ms, QueueBytes: 2e6, Loss: memlink.Loss{Random: memlink.Percent}}, 4 << 20, tcp.ECNDefault, "bbr"},
		{"reordering, duplication", memlink.Path{Rate: 1e9, Delay: 5 * ms, QueueBytes: 1e6, Reorder: memlink.Percent, ReorderDelay: ms, Duplicate: memlink.Percent}, 3 << 20, tcp.ECNDefault, "cubic"},
		{"marks", memlink.Path{Rate: 1e9, Delay: 2 * ms, QueueBytes: 1e6, MarkBytes: 100e3}, 3 << 20, tcp.ECNOn, "reno"},
		{"marks, AccECN", memlink.Path{Rate: 1e9, Delay: 2 * ms, QueueBytes: 1e6, MarkBytes: 100e3}, 3 << 20, tcp.ECNAccurate, "dctcp"},
		{"late completions", memlink.Path{Rate: 1e9, Delay: 5 * ms, QueueBytes: 1e6, HoldEach: ms / 2}, 3 << 20, tcp.ECNDefault, "bbr"},
	} {
		for _, v6 := range []bool{false, true} {
			name := c.name
			if v6 {
				name += ", IPv6"
			}
			t.Run(name, func(t *testing.T) {
				var sc stack.Config
				sc.Modules[plugins.Cong].Name = c.cong
				sc.TCP.ECN = c.ecn
				sc.DADTransmits = -1
				cfg := WorldConfig{Link: memlink.Config{AtoB: c.path, BtoA: c.path, TSO: 65000}, A: sc, B: sc, Seed: 7}
				cfg.A.Addrs, cfg.B.Addrs = addrs[:1], addrs[1:]
				var clock func() plugins.Time
				var taps []*trace.Port
				cfg.WrapPorts = func(p pmd.Port) pmd.Port {
					taps = append(taps, trace.New(p, func() plugins.Time { return clock() }))
					return taps[len(taps)-1]
				}
				w, err := NewWorld(cfg)
				if err != nil {
					t.Fatal(err)
				}
				clock = w.Clock.Now
				shown, err := taps[0].Start(trace.Options{Slots: 1 << 11})
				if err != nil {
					t.Fatal(err)
				}
				to := AddrB
				if v6 {
					to = addrs[1]
				}
				a, b, err := w.connect(netip.AddrPortFrom(to.Addr(), 80))
				if err != nil {
					t.Fatal(err)
				}
				transfer(t, w, a, b, c.size, time.Minute)
				shown.Stop()
				s := w.A.Stats()[0].TCP
				if s.LargeFrames < uint64(c.size/65000/4) {
					t.Errorf("%d large frames", s.LargeFrames)
				}
				if got, want := w.PortA.Stats().TxFrames, w.PortA.Counters().Frames; want != 0 && got != want {
					t.Errorf("the port counts %d frames, the path %d", got, want)
				}
				wellFormed(t, shown)
				a.Close()
				b.Close()
				w.Idle(2 * time.Minute)
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// wellFormed has tshark look at a capture.
func wellFormed(t *testing.T, c *trace.Capture) {
	t.Helper()
	var out bytes.Buffer
	pw, err := pcap.NewWriter(&out, pcap.WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Drain(pw, 0)
	if err != nil || n == 0 {
		t.Fatalf("%d frames in the capture, %v", n, err)
	}
	if err := pw.Flush(); err != nil {
		t.Fatal(err)
	}
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Log("no tshark to look at the capture")
		return
	}
	file := filepath.Join(t.TempDir(), "large.pcapng")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(tshark, "-n", "-r", file, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
		"-Y", "_ws.malformed || ip.checksum.status == 0 || frame.len > 1514 || tcp.checksum.status == 0").CombinedOutput()
	var bad []string
	for _, l := range strings.Split(string(text), "\n") {
		if l != "" && !strings.HasPrefix(l, "Running as user") {
			bad = append(bad, l)
		}
	}
	if err != nil || len(bad) > 0 {
		t.Errorf("tshark: %v, %d packets are not as they should be: %.500s", err, len(bad), strings.Join(bad, "\n"))
	}
}
