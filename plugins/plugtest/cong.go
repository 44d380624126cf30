package plugtest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// CongLockstep is RtxLockstep for congestion control.
func CongLockstep(t *testing.T, one, other cong.New) {
	t.Helper()
	a, err := one(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := other(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if total := sameDecisions(t, a, b); total < 1000 {
		t.Errorf("only %d decisions were compared", total)
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
			s := cong.Sample{Flow: plugins.Flow{Slot: slot, Gen: 3}, ID: id, Now: now, Kind: cong.KindAck, MSS: 1448, Acked: 2896, InFlight: 28960, PriorInFlight: 31856,
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
				t.Fatalf("turn %d: one (-), the other (+):\n%s", turn, diff)
			}
			if da, db := max(a.Deadline(), now), max(b.Deadline(), now); da != db {
				t.Fatalf("turn %d: deadline %d of one, %d of the other", turn, da, db)
			}
			total += n
			if n < len(outA) {
				break
			}
		}
	}
	return total
}
