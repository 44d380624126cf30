package sim

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// TestSet: the scenario set is that of the files, each says what it is, and leaves a flow to the contender.
func TestSet(t *testing.T) {
	list := Set()
	if len(list) != len(set) {
		t.Fatalf("%d scenarios", len(list))
	}
	for i, s := range list {
		free := 0
		for j := range s.Flows {
			if !s.Flows[j].own[plugins.Cong] {
				free++
			}
		}
		if s.Name != set[i] || s.Description == "" || free == 0 {
			t.Errorf("%s: %q, %d flows for contenders", s.Name, s.Description, free)
		}
	}
}

// TestTry: a contender's figures are those of its own flows.
func TestTry(t *testing.T) {
	t.Parallel()
	s := load(t, "coexist")
	s.Duration /= 8
	for i := range s.Flows {
		s.Flows[i].Stop = s.Duration
	}
	r, err := Try(s, &Contender{Name: "reno"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := r.result.Report.Flows
	if f[0].Cong != "reno" || f[1].Cong != "cubic" || r.GoodputBPS != f[0].GoodputBPS || r.Segments != f[0].Segments || r.Retransmits != f[0].Retransmits ||
		r.RTT != f[0].RTT || r.Jain != r.result.Report.Jain() || r.UsedPerMille < 900 || r.QueueMeanNS == 0 || !r.Verified {
		t.Errorf("%+v of %+v", r, f)
	}
	if _, err := Try(load(t, "clean"), &Contender{Name: "cubic", Params: map[string]string{"beta": "x"}}, Options{}); err == nil {
		t.Error("a bad parameter is taken")
	}
}
