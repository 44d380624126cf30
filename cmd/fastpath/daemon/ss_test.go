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
