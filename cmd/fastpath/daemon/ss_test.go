package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// `ctl ss` shows the state of every built-in congestion control after the opening of a flow; Reno has none.
func TestCongInfo(t *testing.T) {
	names := map[string][]string{
		"bbr":   {"bw", "mrtt", "pacing_gain", "cwnd_gain", "mode"},
		"bbr3":  {"bw", "mrtt", "pacing_gain", "cwnd_gain", "mode"},
		"cdg":   {"gmin", "gmax", "queue", "backoffs", "ineff", "shadow"},
		"cubic": {"w_max", "k"},
		"dctcp": {"ce_state", "alpha", "ab_ecn", "ab_tot"},
		"reno":  nil,
	}
	for _, name := range builtin.Names(plugins.Cong) {
		e, _ := builtin.Find(plugins.Cong, name)
		m, err := e.Cong(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]cong.Decision, 1)
		in := cong.Sample{Kind: cong.KindOpen, MSS: 1448, Cwnd: 14480, Ssthresh: cong.InfiniteSsthresh, SRTT: 20 * time.Millisecond, MinRTT: 20 * time.Millisecond}
		if m.Poll(1, []cong.Sample{in}, out) != 1 {
			t.Fatalf("%s does not answer", name)
		}
		figures := congInfo(&tcp.Info{Cong: name, CongAux: out[0].Aux, Cwnd: out[0].Cwnd, Ssthresh: out[0].Ssthresh, ECN: true, CEState: true})
		var got []string
		for _, f := range figures {
			got = append(got, f.Name)
			if f.Value == "" {
				t.Errorf("%s: %s has no value", name, f.Name)
			}
		}
		if diff := cmp.Diff(names[name], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if name == "bbr3" && figures[1] != (control.Figure{Name: "mrtt", Value: "20"}) {
			t.Errorf("%+v", figures)
		}
		if name == "dctcp" && figures[0].Value != "1" {
			t.Errorf("%+v", figures)
		}
	}
	if diff := cmp.Diff([]control.Figure{{Name: "fallback_mode"}}, congInfo(&tcp.Info{Cong: "dctcp"})); diff != "" {
		t.Errorf("dctcp without ECN (-want +got):\n%s", diff)
	}
}

// A connection in TIME-WAIT is shown to who asks for that state, and to nobody else.
func TestSSTimeWait(t *testing.T) {
	d := start(t, withoutProcesses)
	c := d.dial("10.9.0.1:7")
	local := c.LocalAddr().String()
	c.Close()
	var conns []control.Conn
	if !eventually(20*time.Second, func() bool {
		conns = call[control.SSReply](d, control.OpSS, control.SSRequest{States: []string{control.StateTimeWait}}).Conns
		return len(conns) == 1
	}) {
		t.Fatalf("asked for TIME-WAIT: %+v", conns)
	}
	got := conns[0]
	if got.State != control.StateTimeWait || got.Local.String() != local || got.Peer.String() != "10.9.0.1:7" || got.Worker != 1 ||
		got.Timer == nil || got.Timer.Kind != "timewait" || got.Timer.ExpiresInNS <= 0 {
		t.Errorf("the record: %+v, timer %+v", got, got.Timer)
	}
	if n := call[control.StatReply](d, control.OpStat, nil).Gauges["tcp_time_waits"]; n != 1 {
		t.Errorf("stat counts %d", n)
	}
	if all := call[control.SSReply](d, control.OpSS, control.SSRequest{}).Conns; len(all) != 0 {
		t.Errorf("without a state: %+v", all)
	}
}
