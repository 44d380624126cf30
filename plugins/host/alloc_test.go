package host

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/test/bench/rtxload"
)

// bothSides is a module behind rings whose two sides run in turn.
type bothSides[E, C any] struct {
	*Remote[E, C]
	lane link.Lane
}

func newBothSides[E, C any](t *testing.T, sch *schema[E, C], m plugins.Module[E, C]) *bothSides[E, C] {
	t.Helper()
	seg := link.NewSegment[E, C](4096, 4096)
	lane, err := link.NewLane(m, seg, false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRemote(sch, seg, &seg.Host.Bell, Guard{}, false, make(chan struct{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	return &bothSides[E, C]{r, lane}
}

// Poll implements plugins.Module: the answers to in are there.
func (b *bothSides[E, C]) Poll(now plugins.Time, in []E, out []C) int {
	n := b.Remote.Poll(now, in, out)
	for b.lane.Turn(now) {
	}
	if n < len(out) {
		n += b.Remote.Poll(now, nil, out[n:])
	}
	return n
}

// Neither the host's side nor the module's allocates in steady state, whatever the kind; TestPollDoesNotAllocate is for cong.
func TestBothSidesDoNotAllocate(t *testing.T) {
	btree, err := rtx.NewBTree(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := rtxload.New(newBothSides(t, &rtxSchema, btree))
	var receiver rtxload.Receiver
	const segments = 100
	round := func() {
		f.Fill(segments)
		f.Wait(10e6)
		receiver.Reset(segments)
		for i := 1; i < segments; i += 3 {
			f.Wait(1e3)
			f.Sack(&receiver, i)
			f.Poll()
		}
		f.AckAll()
		f.Poll()
	}
	round()
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("rtx: %v allocations per round", n)
	}

	edt, err := pace.NewEDT(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := newBothSides(t, &paceSchema, edt)
	in, out := make([]pace.Event, 32), make([]pace.Line, 64)
	id := uint64(0)
	turn := func() {
		for i := range in {
			id++
			in[i] = pace.Event{Flow: flow(uint32(i)), ID: id, Time: plugins.Time(id * 1000), Kind: pace.EvUpdate, MSS: 1448, Cwnd: uint32(14480 + id%1000*1448),
				Ssthresh: 1 << 30, SRTT: 10e6, MaxRate: plugins.Unlimited}
			if id <= uint64(len(in)) {
				in[i].Kind = pace.EvOpen
			}
		}
		if n := m.Poll(plugins.Time(id*1000), in, out); n == 0 {
			t.Fatal("no line")
		}
	}
	turn()
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Errorf("pace: %v allocations per turn", n)
	}
}
