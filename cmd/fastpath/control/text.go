package control

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteSS writes connections in the format of `ss -tin`: a line with state, queues and addresses, and one with the details. cwnd
// and ssthresh are in segments there, times in milliseconds, rates in bit/s, as in ss(8).
func WriteSS(w io.Writer, r *SSReply) error {
	var b strings.Builder
	local, peer := len("Local Address:Port"), len("Peer Address:Port")
	recv, send := len("Recv-Q"), len("Send-Q")
	for i := range r.Conns {
		c := &r.Conns[i]
		local = max(local, len(addr(c.Local.String())))
		peer = max(peer, len(addr(c.Peer.String())))
		recv = max(recv, len(u(c.RecvQBytes)))
		send = max(send, len(u(c.SendQBytes)))
	}
	fmt.Fprintf(&b, "%-10s %-*s %-*s %*s %*s\n", "State", recv, "Recv-Q", send, "Send-Q", local, "Local Address:Port", peer, "Peer Address:Port")
	for i := range r.Conns {
		c := &r.Conns[i]
		fmt.Fprintf(&b, "%-10s %-*d %-*d %*s %*s", c.State, recv, c.RecvQBytes, send, c.SendQBytes, local, addr(c.Local.String()), peer, addr(c.Peer.String()))
		if c.Timer != nil {
			fmt.Fprintf(&b, " timer:(%s,%s,%d)", c.Timer.Kind, time.Duration(c.Timer.ExpiresInNS).Round(time.Microsecond), c.Backoff)
		}
		b.WriteByte('\n')
		if c.State != StateListen && c.State != StateTimeWait {
			fmt.Fprintf(&b, "\t %s\n", c.Details())
		}
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&b, "… and %d more (--limit)\n", r.Omitted)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// addr writes an unspecified address as ss(8) does.
func addr(s string) string {
	if s == "0.0.0.0:0" || s == "[::]:0" || s == "invalid AddrPort" {
		return "*:*"
	}
	return s
}

// details collects "name:value" words, leaving out what is zero, as ss(8) does.
type details struct{ words []string }

func (d *details) add(format string, args ...any) {
	d.words = append(d.words, fmt.Sprintf(format, args...))
}

func (d *details) flag(name string, set bool) {
	if set {
		d.words = append(d.words, name)
	}
}

func (d *details) count(name string, n uint64) {
	if n != 0 {
		d.add("%s:%d", name, n)
	}
}

// Details is the second line of `ss -tin` for c, with its fields in their order.
func (c *Conn) Details() string {
	var d details
	d.count("in", c.DatagramsIn) // of UDP
	d.count("out", c.DatagramsOut)
	d.count("drops", c.Drops)
	d.flag("ts", c.Timestamps)
	d.flag("sack", c.SACK)
	d.flag("ecn", c.ECN)
	d.flag("ecnseen", c.ECNSeen)
	d.flag("fastopen", c.FastOpen)
	d.flag(c.Cong, c.Cong != "")
	if c.WScale {
		d.add("wscale:%d,%d", c.SndWScale, c.RcvWScale)
	}
	c.times(&d)
	c.sizes(&d)
	if len(c.CongInfo) > 0 {
		fs := make([]string, len(c.CongInfo))
		for i, f := range c.CongInfo {
			fs[i] = f.Name
			if f.Value != "" {
				fs[i] += ":" + f.Value
			}
		}
		d.add("%s:(%s)", c.Cong, strings.Join(fs, ","))
	}
	c.rates(&d)
	c.losses(&d)
	c.receiver(&d)
	if c.Rtx != "" || c.Pace != "" {
		d.add("rtx:%s pace:%s", c.Rtx, c.Pace) // not in ss(8)
	}
	return strings.Join(d.words, " ")
}

func (c *Conn) times(d *details) {
	if c.RTONS != 0 {
		d.add("rto:%s", ms(c.RTONS))
	}
	d.count("backoff", uint64(c.Backoff))
	if c.SRTTNS != 0 {
		d.add("rtt:%s/%s", ms(c.SRTTNS), ms(c.RTTVarNS))
	}
	if c.ATONS != 0 {
		d.add("ato:%s", ms(c.ATONS))
	}
}

func (c *Conn) sizes(d *details) {
	d.count("mss", uint64(c.MSSBytes))
	d.count("pmtu", uint64(c.PMTUBytes))
	d.count("rcvmss", uint64(c.RcvMSSBytes))
	d.count("advmss", uint64(c.AdvMSSBytes))
	mss := max(c.MSSBytes, 1)
	d.count("cwnd", uint64(c.CwndBytes/mss))
	d.count("ssthresh", uint64(c.SsthreshBytes/mss))
	d.count("bytes_sent", c.SentBytes)
	d.count("bytes_retrans", c.RetransBytes)
	d.count("bytes_acked", c.AckedBytes)
	d.count("bytes_received", c.ReceivedBytes)
	d.count("segs_out", c.SegsOut)
	d.count("segs_in", c.SegsIn)
	d.count("data_segs_out", c.DataSegsOut)
	d.count("data_segs_in", c.DataSegsIn)
}

func (c *Conn) rates(d *details) {
	if c.SendBPS != 0 {
		d.add("send %dbps", c.SendBPS)
	}
	for _, t := range []struct {
		name string
		ns   int64
	}{{"lastsnd", c.LastSndNS}, {"lastrcv", c.LastRcvNS}, {"lastack", c.LastAckNS}} {
		d.count(t.name, uint64(t.ns/1e6))
	}
	if c.PacingBPS != 0 {
		limit := ""
		if c.MaxPacingBPS != 0 {
			limit = fmt.Sprintf("/%dbps", c.MaxPacingBPS)
		}
		d.add("pacing_rate %dbps%s", c.PacingBPS, limit)
	}
	if c.DeliveryBPS != 0 {
		d.add("delivery_rate %dbps", c.DeliveryBPS)
	}
	d.count("delivered", c.DeliveredBytes/uint64(max(c.MSSBytes, 1)))
	d.count("delivered_ce", c.DeliveredCE)
	d.flag("app_limited", c.AppLimited)
	if c.BusyNS != 0 {
		d.add("busy:%dms", c.BusyNS/1e6)
		c.limited(d, "rwnd_limited", c.RwndLimitedNS)
		c.limited(d, "sndbuf_limited", c.SndbufLimitedNS)
	}
}

func (c *Conn) limited(d *details, name string, ns int64) {
	if ns != 0 {
		d.add("%s:%dms(%.1f%%)", name, ns/1e6, 100*float64(ns)/float64(c.BusyNS))
	}
}

func (c *Conn) losses(d *details) {
	d.count("unacked", uint64(c.Unacked))
	if c.Retrans != 0 || c.RetransTotal != 0 {
		d.add("retrans:%d/%d", c.Retrans, c.RetransTotal)
	}
	d.count("lost", uint64(c.Lost))
	d.count("sacked", uint64(c.Sacked))
	d.count("dsack_dups", c.DSACKDups)
	if c.Reordering != 3 {
		d.count("reordering", uint64(c.Reordering))
	}
	d.count("reord_seen", c.ReordSeen)
}

func (c *Conn) receiver(d *details) {
	if c.RcvRTTNS != 0 {
		d.add("rcv_rtt:%s", ms(c.RcvRTTNS))
	}
	d.count("rcv_space", c.RcvSpaceBytes)
	d.count("rcv_ssthresh", c.RcvSsthreshBytes)
	d.count("notsent", c.NotSentBytes)
	if c.MinRTTNS != 0 {
		d.add("minrtt:%s", ms(c.MinRTTNS))
	}
	d.count("rcv_ooopack", c.RcvOOOSegs)
	d.count("snd_wnd", c.SndWndBytes)
	d.count("rcv_wnd", c.RcvWndBytes)
}

// ms writes nanoseconds as milliseconds with up to six significant digits, as %g does in ss(8), but never in exponents.
func ms(ns int64) string {
	prec := 3
	for v := ns / 1e9; v > 0 && prec > 0; v /= 10 {
		prec--
	}
	s := strconv.FormatFloat(float64(ns)/1e6, 'f', prec, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// table writes aligned columns.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// WriteModules writes the table of `ctl modules`.
func WriteModules(w io.Writer, r *ModulesReply) error {
	rows := [][]string{{"KIND", "NAME", "VERSION", "PLACEMENT", "STATE", "PID", "FLOWS", "RESTARTS", "LATE", "FALLBACK", "FOR", "SHA256"}}
	for i := range r.Modules {
		m := &r.Modules[i]
		pid, sum := "-", "-"
		if m.PID != 0 {
			pid = strconv.Itoa(m.PID)
		}
		if m.SHA256 != "" {
			sum = m.SHA256[:min(16, len(m.SHA256))] // --json has all of it
		}
		state := m.State
		if m.State == ModuleDead && m.NextRestartInNS > 0 {
			state += fmt.Sprintf(" (restart in %v)", time.Duration(m.NextRestartInNS).Round(time.Millisecond))
		}
		rows = append(rows, []string{m.Kind, m.Name, dash(m.Version), m.Placement, state, pid, strconv.Itoa(m.Flows),
			strconv.Itoa(m.Restarts), strconv.FormatUint(m.LateCount, 10), dash(m.Fallback), dash(strings.Join(m.For, "; ")), sum})
	}
	return table(w, rows)
}

// WriteModulesVerbose writes the table of `ctl modules -v`: below each module its file, what went wrong, its counters and parameters.
func WriteModulesVerbose(w io.Writer, r *ModulesReply) error {
	for i := range r.Modules {
		m := &r.Modules[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := WriteModules(w, &ModulesReply{Modules: r.Modules[i : i+1]}); err != nil {
			return err
		}
		if m.Path != "" {
			fmt.Fprintf(w, "  file %s, sha256:%s\n", m.Path, m.SHA256)
		}
		if m.LastError != "" {
			fmt.Fprintf(w, "  last trouble: %s\n", m.LastError)
		}
		if m.Placement == "process" {
			fmt.Fprintf(w, "  events %d, commands %d, refused %d, resumes %d; answers after %v (p50), %v (p99)\n", m.Events, m.Commands, m.BadCommands,
				m.Resumes, time.Duration(m.AnswerP50NS), time.Duration(m.AnswerP99NS))
		}
		if len(m.Needs) > 0 {
			fmt.Fprintf(w, "  needs %s\n", strings.Join(m.Needs, ", "))
		}
		if len(m.Params) > 0 {
			fmt.Fprintln(w, "  parameters (fastpath ctl set "+m.Kind+" "+m.Name+" NAME=VALUE):")
			if err := writeParams(w, m.Params); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteEvent writes one event as a line.
func WriteEvent(w io.Writer, e *Event) error {
	_, err := fmt.Fprintf(w, "%s %-8s %s\n", time.Unix(0, e.TimeUnixNS).UTC().Format("2006-01-02T15:04:05.000000Z"), e.Kind, e.Message)
	return err
}
