package posix

import (
	"reflect"
	"strings"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
	"golang.org/x/sys/unix"
)

// Numbers of Linux for states.
var stateNumbers = map[string]int{
	tcp.Established.String(): 1, tcp.SynSent.String(): 2, tcp.SynReceived.String(): 3, tcp.FinWait1.String(): 4, tcp.FinWait2.String(): 5,
	tcp.TimeWait.String(): 6, tcp.Closed.String(): 7, tcp.CloseWait.String(): 8, tcp.LastAck.String(): 9, tcp.Closing.String(): 11,
}

var caNumbers = map[string]int{"open": 0, "disorder": 1, "cwr": 2, "recovery": 3, "loss": 4}

// Fields are the members of Linux's struct tcp_info that we have, by their names without tcpi_, and rcv_ooopack and rcv_wnd besides.
func Fields(i *tcp.Info) map[string]uint64 {
	f := map[string]uint64{}
	set := func(name string, v uint64) { f[name] = v }
	segs := func(bytes uint32) uint64 {
		if i.MSS == 0 {
			return 0
		}
		return (uint64(bytes) + uint64(i.MSS) - 1) / uint64(i.MSS)
	}
	bit := func(on bool, b uint64) uint64 {
		if on {
			return b
		}
		return 0
	}
	rate := func(v uint64) uint64 {
		if v == plugins.Unlimited {
			return 1<<64 - 1
		}
		return v
	}
	ssthresh := segs(i.Ssthresh)
	if i.Ssthresh >= cong.InfiniteSsthresh {
		ssthresh = 0x7fffffff
	}
	set("state", uint64(stateNumbers[i.State]))
	set("ca_state", uint64(caNumbers[i.CAState]))
	set("backoff", uint64(i.Backoff))
	set("options", bit(i.Timestamps, 1)|bit(i.SACK, 2)|bit(i.SndScale != 0 || i.RcvScale != 0, 4)|bit(i.ECN, 8)|bit(i.ECNSeen, 16)|bit(i.FastOpen, 32))
	set("snd_wscale", uint64(i.SndScale))
	set("rcv_wscale", uint64(i.RcvScale))
	set("delivery_rate_app_limited", bit(i.DeliveryAppLimited, 1))
	set("rto", uint64(i.RTO.Microseconds()))
	set("ato", uint64(i.ATO.Microseconds()))
	set("snd_mss", uint64(i.MSS))
	set("rcv_mss", uint64(i.RcvMSS))
	set("unacked", uint64(i.Unacked))
	set("sacked", segs(i.Sacked))
	set("lost", segs(i.Lost))
	set("last_data_sent", uint64(i.LastSend.Milliseconds()))
	set("retrans", uint64(i.RetransOut))
	set("last_ack_recv", uint64(i.LastAck.Milliseconds()))
	set("last_data_recv", uint64(i.LastRecv.Milliseconds()))
	set("rtt", uint64(i.RTT.Microseconds()))
	set("rttvar", uint64(i.RTTVar.Microseconds()))
	set("min_rtt", uint64(i.MinRTT.Microseconds()))
	set("snd_ssthresh", ssthresh)
	set("snd_cwnd", uint64(i.Cwnd)/max(uint64(i.MSS), 1))
	set("advmss", uint64(i.AdvMSS))
	set("total_retrans", uint64(i.Counts.Retrans))
	set("pacing_rate", rate(i.PacingRate))
	set("max_pacing_rate", rate(i.MaxRate))
	set("delivery_rate", i.DeliveryRate)
	set("bytes_acked", i.BytesAcked)
	set("bytes_received", i.BytesReceived)
	set("bytes_sent", i.BytesSent)
	set("bytes_retrans", i.Counts.BytesRetrans)
	set("segs_out", i.Counts.SegsOut)
	set("segs_in", i.Counts.SegsIn)
	set("data_segs_out", i.Counts.DataSegsOut)
	set("data_segs_in", i.Counts.DataSegsIn)
	set("notsent_bytes", i.NotSent)
	set("dsack_dups", uint64(i.Counts.DSACKs))
	set("reordering", uint64(i.Reordering))
	set("reord_seen", uint64(i.ReordSeen))
	set("pmtu", uint64(i.PMTU))
	set("rcv_rtt", uint64(i.RcvRTT.Microseconds()))
	set("rcv_space", uint64(i.RcvSpace))
	set("rcv_ssthresh", uint64(i.RcvBuf))
	set("rwnd_limited", uint64(i.RwndLimited.Microseconds()))
	set("sndbuf_limited", uint64(i.SndbufLimited.Microseconds()))
	set("rcv_ooopack", uint64(i.Counts.OOO))
	set("busy_time", uint64(i.Counts.Busy.Microseconds()))
	set("snd_wnd", uint64(i.SndWnd))
	set("rcv_wnd", uint64(i.RcvWnd))
	set("delivered_ce", uint64(i.CEOut))
	set("received_ce", uint64(i.CEIn))
	for name, cp := range map[string]int{"ce": wire.CE, "e0": wire.ECT0, "e1": wire.ECT1} {
		set("delivered_"+name+"_bytes", uint64(i.ECNBytesOut[cp]))
		set("received_"+name+"_bytes", uint64(i.ECNBytesIn[cp]))
	}
	set("probes", uint64(i.Probes))
	return f
}

// GetInfo is getsockopt(2) of TCP_INFO.
func (w *World) GetInfo(fd int, out *unix.TCPInfo) Call {
	return w.withSocket(fd, func(*desc) (Result, bool) {
		i, known := w.Info(fd)
		if !known {
			i.State = tcp.Closed.String()
		}
		*out = TCPInfo(&i)
		return ok(0)
	})
}

// TCPInfo fills Linux's struct tcp_info; what we do not have is 0.
func TCPInfo(i *tcp.Info) (out unix.TCPInfo) {
	f := Fields(i)
	v := reflect.ValueOf(&out).Elem()
	for k := range v.NumField() {
		if x, ok := f[strings.ToLower(v.Type().Field(k).Name)]; ok && v.Field(k).CanSet() {
			v.Field(k).SetUint(x)
		}
	}
	return out
}
