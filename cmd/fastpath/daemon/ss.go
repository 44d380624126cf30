package daemon

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Info implements control.Handler.
func (d *Daemon) Info(context.Context) (*control.Info, error) {
	r := &control.Info{PID: os.Getpid(), Version: d.opts.Version, Config: d.opts.Config, StartUnixNS: d.started.UnixNano(), Ports: []control.PortInfo{}}
	for _, p := range d.ports {
		i := p.trace.Info()
		one := control.PortInfo{Name: p.conf.Name, Driver: i.Driver, MAC: i.MAC.String(), Addresses: p.addresses(), LinkUp: p.trace.LinkUp()}
		for _, w := range p.stack.Stats() {
			one.LinkDowns += w.L3.LinkDowns
			one.LinkUps += w.L3.LinkUps
		}
		r.Ports = append(r.Ports, one)
	}
	return r, nil
}

// SS implements control.Handler.
func (d *Daemon) SS(_ context.Context, r control.SSRequest) (*control.SSReply, error) {
	reply := &control.SSReply{TimeUnixNS: time.Now().UnixNano(), Conns: []control.Conn{}}
	add := func(c control.Conn) {
		switch {
		case !r.Match(c.State, c.Local, c.Peer):
		case r.Limit > 0 && len(reply.Conns) >= r.Limit:
			reply.Omitted++
		default:
			reply.Conns = append(reply.Conns, c)
		}
	}
	if r.UDP {
		d.sockets(add)
		return reply, nil
	}
	for _, l := range d.network.all() {
		if ap, err := netip.ParseAddrPort(l.Addr().String()); err == nil {
			peer := netip.IPv4Unspecified()
			if ap.Addr().Is6() {
				peer = netip.IPv6Unspecified()
			}
			add(control.Conn{State: control.StateListen, Local: ap, Peer: netip.AddrPortFrom(peer, 0), Worker: l.port.first,
				RecvQBytes: uint64(l.Pending()), SendQBytes: uint64(d.conf.TCP.Backlog)})
		}
	}
	for _, p := range d.ports {
		conns := p.stack.Conns()
		if slices.Contains(r.States, control.StateTimeWait) { // there may be very many
			conns = append(conns, p.stack.TimeWaits()...)
		}
		for i := range conns {
			c := conn(&conns[i])
			c.Worker += p.first
			add(c)
		}
	}
	return reply, nil
}

// sockets adds all UDP sockets.
func (d *Daemon) sockets(add func(control.Conn)) {
	for _, p := range d.ports {
		for _, u := range p.stack.UDPSockets() {
			c := control.Conn{
				State: control.StateUnconnected, Local: u.Local, Peer: netip.AddrPortFrom(netip.IPv4Unspecified(), 0), Worker: p.first + u.Worker,
				RecvQBytes: uint64(u.RecvQueue), SendQBytes: uint64(u.SendQueue),
				DatagramsIn: u.In, DatagramsOut: u.Out, Drops: u.Drops,
			}
			if u.Remote.IsValid() {
				c.State, c.Peer = control.StateEstablished, u.Remote
			}
			add(c)
		}
	}
}

// conn turns the stack's snapshot of a connection into what ss(8) shows.
func conn(i *tcp.Info) control.Conn {
	mss := max(i.MSS, 1)
	c := control.Conn{
		State: i.State, Local: i.Local, Peer: i.Remote, Worker: i.Worker, Slot: i.Flow.Slot, Gen: i.Flow.Gen,
		RecvQBytes: i.RecvQueue, SendQBytes: i.SendQueue, Rtx: i.Rtx, Pace: i.Pace, Cong: i.Cong,
		Timestamps: i.Timestamps, SACK: i.SACK, ECN: i.ECN, AccECN: i.AccECN, ECNSeen: i.ECNSeen, FastOpen: i.FastOpen, WScale: i.SndScale|i.RcvScale != 0, SndWScale: i.SndScale, RcvWScale: i.RcvScale,
		RTONS: int64(i.RTO), Backoff: int(i.Backoff), SRTTNS: int64(i.RTT), RTTVarNS: int64(i.RTTVar), MinRTTNS: int64(i.MinRTT), RcvRTTNS: int64(i.RcvRTT), ATONS: int64(i.ATO),
		MSSBytes: i.MSS, PMTUBytes: i.PMTU, RcvMSSBytes: i.RcvMSS, AdvMSSBytes: i.AdvMSS, CwndBytes: i.Cwnd, SsthreshBytes: i.Ssthresh,
		SentBytes: i.BytesSent, RetransBytes: i.Counts.BytesRetrans, AckedBytes: i.BytesAcked, ReceivedBytes: i.BytesReceived,
		SegsOut: uint64(i.Counts.SegsOut), SegsIn: uint64(i.Counts.SegsIn), DataSegsOut: uint64(i.Counts.DataSegsOut), DataSegsIn: uint64(i.Counts.DataSegsIn),
		CongInfo: congInfo(i), LastSndNS: int64(min(i.LastSend, i.Age)), LastRcvNS: int64(min(i.LastRecv, i.Age)), LastAckNS: int64(min(i.LastAck, i.Age)),
		DeliveryBPS: bps(i.DeliveryRate), PacingBPS: bps(i.PacingRate), MaxPacingBPS: bps(i.MaxRate),
		DeliveredBytes: i.BytesAcked + uint64(i.Sacked), DeliveredCE: uint64(i.CEOut), AppLimited: i.DeliveryAppLimited, BusyNS: int64(i.Counts.Busy), RwndLimitedNS: int64(i.RwndLimited), SndbufLimitedNS: int64(i.SndbufLimited),
		Unacked: uint32(i.Unacked), Retrans: i.RetransOut, RetransTotal: uint64(i.Counts.Retrans), Lost: (i.Lost + mss - 1) / mss, Sacked: (i.Sacked + mss - 1) / mss,
		DSACKDups: uint64(i.Counts.DSACKs), Reordering: i.Reordering, ReordSeen: uint64(i.ReordSeen), InFlightBytes: i.InFlight, NotSentBytes: i.NotSent, RcvOOOSegs: uint64(i.Counts.OOO),
		RcvSpaceBytes: uint64(i.RcvSpace), RcvSsthreshBytes: uint64(i.RcvBuf), SndWndBytes: uint64(i.SndWnd), RcvWndBytes: uint64(i.RcvWnd),
	}
	if i.Ssthresh == cong.InfiniteSsthresh {
		c.SsthreshBytes = 0
	}
	if i.RTT > 0 {
		c.SendBPS = bps(cong.MulDiv(uint64(i.Cwnd), uint64(time.Second), uint64(i.RTT)))
	}
	if i.Timer != "" {
		c.Timer = &control.Timer{Kind: i.Timer, ExpiresInNS: int64(i.TimerIn)}
	}
	return c
}

// bps turns a rate in bytes/s into one in bit/s. Unlimited is 0.
func bps(rate uint64) uint64 {
	if rate == plugins.Unlimited {
		return 0
	}
	return rate * 8
}

// congInfo is the congestion control's own state, as its Describe writes it: "bbr:(bw:1bps,mode:startup)".
func congInfo(i *tcp.Info) (fs []control.Figure) {
	e, ok := builtin.Find(plugins.Cong, i.Cong)
	if !ok || e.Describe == nil {
		return nil
	}
	text := e.Describe(i.CongAux, &cong.Decision{Cwnd: i.Cwnd, Ssthresh: i.Ssthresh, Rate: i.PacingRate, Aux: i.CongAux})
	text, ok = strings.CutPrefix(text, i.Cong+":(")
	if !ok {
		return nil
	}
	for f := range strings.SplitSeq(strings.TrimSuffix(text, ")"), ",") {
		name, value, _ := strings.Cut(f, ":")
		fs = append(fs, control.Figure{Name: name, Value: value})
	}
	if i.Cong == "dctcp" {
		return dctcpInfo(i, fs)
	}
	return fs
}

// dctcpInfo adds what the engine knows to DCTCP's own state, as ss does: whether the last data that came was marked; and that without ECN,
// there is nothing to go by but losses.
func dctcpInfo(i *tcp.Info, fs []control.Figure) []control.Figure {
	if !i.ECN {
		return []control.Figure{{Name: "fallback_mode"}}
	}
	state := "0"
	if i.CEState {
		state = "1"
	}
	return slices.Insert(fs, 0, control.Figure{Name: "ce_state", Value: state})
}
