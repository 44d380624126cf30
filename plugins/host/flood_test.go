package host

import (
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// flooder answers as much as it can, whatever it is told.
type flooder struct{ cong.Decision }

func (f *flooder) Poll(_ plugins.Time, in []cong.Sample, out []cong.Decision) int {
	if len(in) > 0 {
		f.Decision = cong.Decision{Flow: in[len(in)-1].Flow, AsOf: in[len(in)-1].ID, Cwnd: 14480}
	}
	for i := range out {
		out[i] = f.Decision
	}
	return len(out)
}
func (*flooder) Deadline() plugins.Time { return 0 }

// A module that writes more than its events and its time can cause is dead, with the reason; one that answers each event twice is not,
// however long it does.
func TestFlood(t *testing.T) {
	drive := func(m cong.Module, turns int) *rig {
		r := newRig(t, m, 1024, Guard{})
		out := make([]cong.Decision, 256)
		now := plugins.Time(time.Second)
		for i := range turns {
			s := []cong.Sample{sample(0, uint64(i+1), cong.KindAck)}
			if i == 0 {
				s[0].Kind = cong.KindOpen
			}
			for r.Poll(now, s, out) == len(out) {
				s = nil
			}
			for range 8 {
				r.lane.Turn(now)
			}
			now += 10_000
		}
		return r
	}
	r := drive(&flooder{}, 1000)
	if r.State() != plugins.Dead || !strings.Contains(r.Fault(), "floods its ring") {
		t.Errorf("a flood: %v, %q", r.State(), r.Fault())
	}
	if r := drive(mustThird(t), 200_000); r.State() != plugins.Ready {
		t.Errorf("answers: %v, %q", r.State(), r.Fault())
	}
}
