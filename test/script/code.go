package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Code between %{ and }% is Python, of which scripts use assertions on the fields of TCP_INFO. It is run as Starlark, with assert made a
// function.

// codeState are the variables that code has set.
type codeState struct{ globals starlark.StringDict }

var assertion = regexp.MustCompile(`(?m)(^|[;:])([ \t]*)assert\b[ \t]*([^;\n]*)`)

func (r *runner) runCode(text string) error {
	env := starlark.StringDict{"_assert": starlark.NewBuiltin("assert", assertFunc)}
	for k, v := range r.code.globals {
		env[k] = v
	}
	for k, v := range codeSymbols {
		env[k] = starlark.MakeInt(v)
	}
	r.fields(env)
	src := assertion.ReplaceAllString(dedent(text), "${1}${2}_assert(${3})")
	opts := &syntax.FileOptions{TopLevelControl: true, GlobalReassign: true, While: true}
	thread := &starlark.Thread{Name: "code", Print: func(*starlark.Thread, string) {}}
	thread.SetMaxExecutionSteps(1e6)
	globals, err := starlark.ExecFileOptions(opts, thread, "code", src, env)
	if err != nil {
		return codeError(text, err)
	}
	if r.code.globals == nil {
		r.code.globals = starlark.StringDict{}
	}
	for k, v := range globals {
		r.code.globals[k] = v
	}
	return nil
}

func codeError(text string, err error) error {
	var undefined resolve.ErrorList
	var syn syntax.Error
	var eval *starlark.EvalError
	switch {
	case errors.As(err, &undefined):
		return unsupported("code: %s", undefined[0].Msg)
	case errors.As(err, &syn):
		return unsupported("code: %s", syn.Msg)
	case errors.As(err, &eval):
		return failf("%s\n  %s", strings.TrimSpace(text), eval.Msg)
	}
	return err
}

// dedent strips what surrounds the code and the first line's indentation.
func dedent(text string) string {
	lines := strings.Split(strings.Trim(text, " \t\r\n"), "\n")
	indent := ""
	for _, l := range lines[1:] {
		if t := strings.TrimLeft(l, " \t"); t != "" {
			indent = l[:len(l)-len(t)]
			break
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(strings.TrimPrefix(lines[i], indent), "\r")
	}
	return strings.Join(lines, "\n") + "\n"
}

func assertFunc(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	if len(args) > 0 && bool(args[0].Truth()) {
		return starlark.None, nil
	}
	text := "assertion failed"
	for _, a := range args[min(1, len(args)):] {
		text += ": " + a.String()
	}
	return nil, errors.New(text)
}

// Numbers of Linux.
var codeSymbols = map[string]int{
	"TCP_ESTABLISHED": 1, "TCP_SYN_SENT": 2, "TCP_SYN_RECV": 3, "TCP_FIN_WAIT1": 4, "TCP_FIN_WAIT2": 5, "TCP_TIME_WAIT": 6, "TCP_CLOSE": 7,
	"TCP_CLOSE_WAIT": 8, "TCP_LAST_ACK": 9, "TCP_LISTEN": 10, "TCP_CLOSING": 11,
	"TCP_CA_Open": 0, "TCP_CA_Disorder": 1, "TCP_CA_CWR": 2, "TCP_CA_Recovery": 3, "TCP_CA_Loss": 4,
	"TCPI_OPT_TIMESTAMPS": 1, "TCPI_OPT_SACK": 2, "TCPI_OPT_WSCALE": 4, "TCPI_OPT_ECN": 8, "TCPI_OPT_ECN_SEEN": 16, "TCPI_OPT_SYN_DATA": 32,
}

var stateNumbers = map[string]int{
	tcp.Established.String(): 1, tcp.SynSent.String(): 2, tcp.SynReceived.String(): 3, tcp.FinWait1.String(): 4, tcp.FinWait2.String(): 5,
	tcp.TimeWait.String(): 6, tcp.Closed.String(): 7, tcp.CloseWait.String(): 8, tcp.LastAck.String(): 9, tcp.Closing.String(): 11,
}

var caNumbers = map[string]int{"open": 0, "disorder": 1, "cwr": 2, "recovery": 3, "loss": 4}

// info is the present flow's connection.
func (r *runner) info() tcp.Info {
	none := tcp.Info{State: tcp.Closed.String()}
	if r.cur == nil {
		return none
	}
	for _, list := range [][]tcp.Info{r.w.Stack.Conns(), r.w.Stack.TimeWaits()} {
		for _, i := range list {
			if i.Local.Port() == r.cur.localPort && i.Remote.Port() == r.cur.remotePort {
				return i
			}
		}
	}
	return none
}

// fields sets the names of TCP_INFO that we have.
func (r *runner) fields(env starlark.StringDict) {
	i := r.info()
	set := func(name string, v uint64) { env["tcpi_"+name] = starlark.MakeUint64(v) }
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
	set("options", bit(i.Timestamps, 1)|bit(i.SACK, 2)|bit(i.SndScale != 0 || i.RcvScale != 0, 4))
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
	set("rcv_ooopack", uint64(i.Counts.OOO))
	set("busy_time", uint64(i.Counts.Busy.Microseconds()))
	set("snd_wnd", uint64(i.SndWnd))
	set("rcv_wnd", uint64(i.RcvWnd))
}
