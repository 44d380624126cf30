package pace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/plugtest"
)

func TestEDTConformance(t *testing.T)  { plugtest.Pace(t, pace.NewEDT) }
func TestNoneConformance(t *testing.T) { plugtest.Pace(t, pace.NewNone) }

// ask opens a flow with ev and returns the rate of its line.
func ask(t *testing.T, newModule pace.New, p plugins.Params, ev pace.Event) uint64 {
	t.Helper()
	m, err := newModule(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	ev.Flow, ev.ID, ev.Kind = plugins.Flow{Slot: 3, Gen: 9}, 77, pace.EvOpen
	var out [2]pace.Line
	if n := m.Poll(1, []pace.Event{ev}, out[:]); n != 1 {
		t.Fatalf("%d lines, want 1", n)
	}
	if l := out[0]; l.Flow != ev.Flow || l.AsOf != 77 || l.Horizon != 10*time.Second || l.Credit != pace.CreditOne/2 || l.FreeSegs != 10 {
		t.Fatalf("line %+v", l)
	}
	return out[0].Rate
}

func TestRates(t *testing.T) {
	const un = plugins.Unlimited
	ms := time.Millisecond
	for _, c := range []struct {
		name string
		p    plugins.Params
		ev   pace.Event
		edt  uint64
		none uint64
	}{
		{"rate of congestion control", nil, pace.Event{Rate: 5e9, MaxRate: un}, 5e9, un},
		{"below the maximum", nil, pace.Event{Rate: 5e9, MaxRate: 1e9}, 1e9, 1e9},
		{"unpaced", nil, pace.Event{Rate: un, MaxRate: un, Cwnd: 14480, SRTT: ms}, un, un},
		{"unpaced with a maximum", nil, pace.Event{Rate: un, MaxRate: 7}, 7, 7},
		{"no maximum given", nil, pace.Event{Rate: 9}, 9, un},
		// TCP_FACTS 5.3: 2.0·cwnd/srtt below ssthresh/2, 1.2·cwnd/srtt from there on.
		{"slow start", nil, pace.Event{MaxRate: un, Cwnd: 14480, Ssthresh: 1<<32 - 1, SRTT: 10 * ms}, 2896000, un},
		{"half of ssthresh", nil, pace.Event{MaxRate: un, Cwnd: 14480, Ssthresh: 28960, SRTT: 10 * ms}, 1737600, un},
		{"just below", nil, pace.Event{MaxRate: un, Cwnd: 14480, Ssthresh: 28962, SRTT: 10 * ms}, 2896000, un},
		{"no SRTT", nil, pace.Event{MaxRate: un, Cwnd: 14480}, un, un},
		{"no SRTT, maximum", nil, pace.Event{MaxRate: 55, Cwnd: 14480}, 55, 55},
		{"1 ns, largest window", nil, pace.Event{MaxRate: un, Cwnd: 1<<32 - 1, SRTT: 1}, (1<<32 - 1) * 1200000000, un},
		{"slowest", nil, pace.Event{MaxRate: un, Cwnd: 1, Ssthresh: 1, SRTT: 200 * time.Second}, 1, un},
	} {
		if got := ask(t, pace.NewEDT, c.p, c.ev); got != c.edt {
			t.Errorf("edt, %s: rate %d, want %d", c.name, got, c.edt)
		}
		if got := ask(t, pace.NewNone, nil, c.ev); got != c.none {
			t.Errorf("none, %s: rate %d, want %d", c.name, got, c.none)
		}
	}
	off := plugins.Params{"window_pacing": "false"}
	if got := ask(t, pace.NewEDT, off, pace.Event{MaxRate: un, Cwnd: 14480, SRTT: ms}); got != un {
		t.Errorf("window pacing is off, but the rate is %d", got)
	}
	most := plugins.Params{"ss_ratio": "1000", "ca_ratio": "1000"}
	if got := ask(t, pace.NewEDT, most, pace.Event{Cwnd: 1<<32 - 1, SRTT: 1}); got != un {
		t.Errorf("a rate beyond 64 bits is %d", got)
	}
	ratio := plugins.Params{"ss_ratio": "300", "ca_ratio": "100"}
	if got := ask(t, pace.NewEDT, ratio, pace.Event{MaxRate: un, Cwnd: 1000, Ssthresh: 1000, SRTT: time.Second}); got != 1000 {
		t.Errorf("ca_ratio 100: rate %d, want 1000", got)
	}
}

func TestAnswersOnlyChanges(t *testing.T) {
	m, err := pace.NewEDT(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := plugins.Flow{Slot: 1, Gen: 1}
	var out [4]pace.Line
	poll := func(kind uint8, rate uint64) int {
		return m.Poll(1, []pace.Event{{Flow: f, Kind: kind, Rate: rate, MaxRate: plugins.Unlimited}}, out[:])
	}
	for i, c := range []struct {
		kind uint8
		rate uint64
		want int
	}{
		{pace.EvOpen, 100, 1}, {pace.EvUpdate, 100, 0}, {pace.EvUpdate, 101, 1}, {pace.EvUpdate, 101, 0},
		{pace.EvResume, 101, 1}, {pace.EvClose, 0, 0}, {pace.EvUpdate, 5, 0},
	} {
		if n := poll(c.kind, c.rate); n != c.want {
			t.Errorf("step %d: %d lines, want %d", i, n, c.want)
		}
	}
	// Several events of one flow in a batch: the last one is answered.
	ev := []pace.Event{{Flow: f, ID: 1, Kind: pace.EvOpen, Rate: 1}, {Flow: f, ID: 2, Kind: pace.EvUpdate, Rate: 2}}
	if n := m.Poll(1, ev, out[:]); n != 1 || out[0].Rate != 2 || out[0].AsOf != 2 {
		t.Errorf("%d lines, first %+v", n, out[0])
	}
}

func TestParameters(t *testing.T) {
	for _, c := range []struct {
		p    plugins.Params
		want string
	}{
		{plugins.Params{"nonsense": "1"}, "edt: nonsense: unknown parameter"},
		{plugins.Params{"ss_ratio": "99"}, "edt: ss_ratio: 99 is not within"},
		{plugins.Params{"credit": "101"}, "edt: credit: 101 is not within"},
		{plugins.Params{"horizon": "0s"}, "edt: horizon: 0s is not within"},
		{plugins.Params{"window_pacing": "maybe"}, "edt: window_pacing"},
	} {
		if _, err := pace.NewEDT(c.p, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.p, err, c.want)
		}
	}
	if _, err := pace.NewNone(plugins.Params{"ss_ratio": "200"}, 1); err == nil {
		t.Error("none accepts ss_ratio")
	}
}

func BenchmarkEDT(b *testing.B) {
	m, _ := pace.NewEDT(nil, 1)
	in := make([]pace.Event, 32)
	out := make([]pace.Line, 32)
	for i := range in {
		in[i] = pace.Event{Flow: plugins.Flow{Slot: uint32(i), Gen: 1}, Kind: pace.EvOpen}
	}
	m.Poll(1, in, out)
	rate := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		rate++
		for i := range in {
			in[i].Kind, in[i].Rate, in[i].MaxRate = pace.EvUpdate, rate, plugins.Unlimited
		}
		m.Poll(1, in, out)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/event")
}
