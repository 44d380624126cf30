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
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/plugtest"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Every module of the list says the same linked in and behind rings, in lockstep.
func TestLockstep(t *testing.T) {
	for _, e := range builtin.All() {
		t.Run(e.Info.Kind.String()+" "+e.Info.Name, func(t *testing.T) {
			switch e.Info.Kind {
			case plugins.Rtx:
				plugtest.RtxLockstep(t, e.Rtx, behindRings(t, &rtxSchema, e.Rtx))
			case plugins.Pace:
				plugtest.PaceLockstep(t, e.Pace, behindRings(t, &paceSchema, e.Pace))
			case plugins.Cong:
				linked, err := e.Cong(nil, 42)
				if err != nil {
					t.Fatal(err)
				}
				behind, err := behindRings(t, &congSchema, e.Cong)(nil, 42)
				if err != nil {
					t.Fatal(err)
				}
				if total := sameDecisions(t, linked, behind); total < 1000 {
					t.Fatalf("only %d decisions were compared", total)
				}
			}
		})
	}
}

// behindRings returns a maker of modules that run in a loop of their own, behind rings.
func behindRings[E, C any](t *testing.T, sch *schema[E, C], make plugins.New[E, C]) plugins.New[E, C] {
	return func(p plugins.Params, seed uint64) (plugins.Module[E, C], error) {
		m, err := make(p, seed)
		if err != nil {
			return nil, err
		}
		seg := link.NewSegment[E, C](4096, 4096)
		lane, err := link.NewLane(m, seg, true)
		if err != nil {
			return nil, err
		}
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() { link.Loop([]link.Lane{lane}, &seg.Host.Bell, 0, &stop) })
		t.Cleanup(func() {
			stop.Store(true)
			seg.Host.Bell.Ring()
			wg.Wait()
		})
		return newRemote(sch, seg, &seg.Host.Bell, Guard{}, true, newNotify())
	}
}

func newNotify() chan struct{} { return make(chan struct{}, 1) }

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

// A process in lockstep says the same as the same code linked in: for each kind one, and two of congestion control.
func TestLockstepProcess(t *testing.T) {
	for _, name := range []string{"bbr", "cubic"} {
		e := lockstepProcess(t, plugins.Cong, name)
		entry, _ := builtin.Find(plugins.Cong, name)
		linked, err := entry.Cong(nil, e.seed)
		if err != nil {
			t.Fatal(err)
		}
		if total := sameDecisions(t, linked, e.remote(plugins.Cong).(cong.Module)); total < 1000 {
			t.Errorf("only %d decisions were compared", total)
		}
	}
	t.Run("rtx", func(t *testing.T) {
		entry, _ := builtin.Find(plugins.Rtx, "btree")
		plugtest.RtxLockstep(t, entry.Rtx, func(plugins.Params, uint64) (rtx.Module, error) {
			return lockstepProcess(t, plugins.Rtx, "btree").remote(plugins.Rtx).(rtx.Module), nil
		})
	})
	t.Run("pace", func(t *testing.T) {
		entry, _ := builtin.Find(plugins.Pace, "edt")
		plugtest.PaceLockstep(t, entry.Pace, func(plugins.Params, uint64) (pace.Module, error) {
			return lockstepProcess(t, plugins.Pace, "edt").remote(plugins.Pace).(pace.Module), nil
		})
	})
}

// lockstepProcess starts a module as a process, in lockstep with the test.
func lockstepProcess(t *testing.T, k plugins.Kind, name string) *idleEngine {
	t.Helper()
	e := &idleEngine{}
	cfg := testConfig(t, e, Spec{Kind: k, Name: name, Placement: Process})
	cfg.Lockstep = true
	m := startManager(t, cfg)
	e.seed = m.cfg.seed(k, 0)
	return e
}
