package host

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// Every congestion control of the list gives the same decisions linked in and behind rings, in lockstep.
func TestLockstep(t *testing.T) {
	for _, name := range builtin.Names(plugins.Cong) {
		t.Run(name, func(t *testing.T) {
			e, _ := builtin.Find(plugins.Cong, name)
			linked, err := e.Cong(nil, 42)
			if err != nil {
				t.Fatal(err)
			}
			behind, err := e.Cong(nil, 42)
			if err != nil {
				t.Fatal(err)
			}
			seg := link.NewSegment[cong.Sample, cong.Decision](256, 256)
			lane, err := link.NewLane(behind, seg, true)
			if err != nil {
				t.Fatal(err)
			}
			r, err := newRemote(&congSchema, seg, &seg.Host.Bell, Guard{}, true, make(chan struct{}, 1))
			if err != nil {
				t.Fatal(err)
			}
			var stop atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() { link.Loop([]link.Lane{lane}, &seg.Host.Bell, 0, &stop) })
			defer wg.Wait()
			defer seg.Host.Bell.Ring()
			defer stop.Store(true)
			total := sameDecisions(t, linked, r)
			if total < 1000 {
				t.Fatalf("only %d decisions were compared", total)
			}
		})
	}
}

// sameDecisions drives both modules with one random history and compares what they say, turn by turn.
func sameDecisions(t *testing.T, a, b cong.Module) (total int) {
	rng := rand.New(rand.NewPCG(3, 4))
	outA, outB := make([]cong.Decision, 8), make([]cong.Decision, 8) // smaller than some batches
	var in []cong.Sample
	var id, delivered uint64
	open := map[uint32]bool{}
	now := plugins.Time(time.Second)
	for turn := range 1000 {
		now += plugins.Time(rng.IntN(int(5 * time.Millisecond)))
		in = in[:0]
		for range rng.IntN(12) {
			id++
			delivered += 2896
			slot := uint32(rng.IntN(6))
			s := cong.Sample{Flow: flow(slot), ID: id, Now: now, Kind: cong.KindAck, MSS: 1448, Acked: 2896, InFlight: 28960, PriorInFlight: 31856,
				TxInFlight: 30000, Cwnd: 40000, Ssthresh: cong.InfiniteSsthresh, Delivered: delivered, PriorDelivered: delivered - 28960,
				Interval: 20 * time.Millisecond, RTT: time.Duration(20+rng.IntN(10)) * time.Millisecond, SRTT: 22 * time.Millisecond,
				MinRTT: 20 * time.Millisecond, SendTime: now - plugins.Time(20*time.Millisecond), SndNxt: uint32(delivered),
				Flags: cong.FlagRateValid | cong.FlagRTTValid | cong.FlagCwndLimited | cong.FlagPaced}
			switch x := rng.IntN(40); {
			case !open[slot]:
				s.Kind, s.Delivered, s.PriorDelivered = cong.KindOpen, delivered, delivered
				open[slot] = true
			case x == 0:
				s.Kind, s.CA, s.Lost = cong.KindTimeout, cong.CALoss, 14480
				s.Flags |= cong.FlagEnter
			case x == 1:
				s.Kind = cong.KindClose
				open[slot] = false
			case x < 4:
				s.CA, s.Lost = cong.CARecovery, 1448
				s.Flags |= cong.FlagEnter
			}
			in = append(in, s)
		}
		for batch := in; ; batch = nil {
			n := a.Poll(now, batch, outA)
			k := b.Poll(now, batch, outB)
			if diff := cmp.Diff(outA[:n], outB[:k]); diff != "" {
				t.Fatalf("turn %d: linked in (-), behind rings (+):\n%s", turn, diff)
			}
			if da, db := max(a.Deadline(), now), max(b.Deadline(), now); da != db {
				t.Fatalf("turn %d: deadline %d linked in, %d behind rings", turn, da, db)
			}
			total += n
			if n < len(outA) {
				break
			}
		}
	}
	return total
}

// A process in lockstep gives the decisions of the same code linked in.
func TestLockstepProcess(t *testing.T) {
	for _, name := range []string{"bbr", "cubic"} {
		e := &idleEngine{}
		cfg := testConfig(t, e, Spec{Kind: plugins.Cong, Name: name, Placement: Process})
		cfg.Lockstep = true
		m := startManager(t, cfg)
		entry, _ := builtin.Find(plugins.Cong, name)
		linked, err := entry.New(nil, m.cfg.seed(plugins.Cong, 0))
		if err != nil {
			t.Fatal(err)
		}
		if total := sameDecisions(t, linked.(cong.Module), e.remote()); total < 1000 {
			t.Errorf("only %d decisions were compared", total)
		}
	}
}
