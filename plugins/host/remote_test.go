package host

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// rig is a module behind rings over Go memory: the module's side runs when the test says so.
type rig struct {
	*Remote[cong.Sample, cong.Decision]
	lane   link.Lane
	seg    link.Segment[cong.Sample, cong.Decision]
	notify chan struct{}
}

func newRig(t testing.TB, m cong.Module, slots int, g Guard) *rig {
	t.Helper()
	seg := link.NewSegment[cong.Sample, cong.Decision](slots, slots)
	lane, err := link.NewLane(m, seg, false)
	if err != nil {
		t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	r, err := newRemote(&congSchema, seg, &seg.Host.Bell, g, false, notify)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{r, lane, seg, notify}
}

func mustThird(t testing.TB) cong.Module {
	m, err := third(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func flow(slot uint32) plugins.Flow { return plugins.Flow{Slot: slot, Gen: 3} }

func sample(slot uint32, id uint64, kind uint8) cong.Sample {
	return cong.Sample{Flow: flow(slot), ID: id, Kind: kind, MSS: 1448, Cwnd: 14480}
}

func TestAnswersComeOneTurnLater(t *testing.T) {
	r := newRig(t, mustThird(t), 16, Guard{})
	out := make([]cong.Decision, 4)
	if n := r.Poll(1000, []cong.Sample{sample(0, 1, cong.KindOpen), sample(1, 2, cong.KindOpen)}, out); n != 0 {
		t.Fatalf("%d answers before the module ran", n)
	}
	if d := r.Deadline(); d != 1000 {
		t.Fatalf("deadline %d with events under way, want now", d)
	}
	if !r.lane.Turn(1001) || r.lane.Turn(1002) {
		t.Fatal("the module must have one thing to do")
	}
	if n := r.Poll(1100, nil, out[:1]); n != 1 || out[0].Flow != flow(0) || out[0].Cwnd != 10_001 || r.Deadline() != 1100 {
		t.Fatalf("first answer: %d %+v, deadline %d", n, out[0], r.Deadline())
	}
	if n := r.Poll(1200, nil, out); n != 1 || out[0].Flow != flow(1) || r.Deadline() != plugins.Never {
		t.Fatalf("second answer: %d %+v, deadline %d", n, out[0], r.Deadline())
	}
}

// The full-ring rule: after one dropped event of a flow all are dropped, until its Resume.
func TestFullRing(t *testing.T) {
	r := newRig(t, mustThird(t), 4, Guard{})
	out := make([]cong.Decision, 64)
	in := []cong.Sample{sample(0, 1, cong.KindOpen), sample(1, 2, cong.KindOpen), sample(2, 3, cong.KindOpen), sample(0, 4, cong.KindAck),
		sample(1, 5, cong.KindAck), sample(3, 6, cong.KindOpen)}
	r.Poll(1, in, out)
	if got := r.Dropped(nil); got != nil || r.Room() != 0 {
		t.Fatalf("dropped flows %v, room %d in a full ring", got, r.Room())
	}
	r.lane.Turn(2)
	if n := r.Poll(3, []cong.Sample{sample(1, 7, cong.KindAck), sample(0, 8, cong.KindAck)}, out); n != 4 {
		t.Fatalf("%d answers, want 4", n)
	}
	if got := r.Stats().Dropped; got != 3 {
		t.Fatalf("%d events dropped, want 3: one of flow 1, Open of flow 3, and the next one of flow 1", got)
	}
	if diff := cmp.Diff([]plugins.Flow{flow(1), flow(3)}, r.Dropped(nil)); diff != "" {
		t.Fatal(diff)
	}
	if got := r.Dropped(nil); got != nil {
		t.Fatalf("flows %v are named twice", got)
	}
	r.Poll(4, []cong.Sample{sample(1, 9, cong.KindResume), sample(1, 10, cong.KindAck), sample(3, 11, cong.KindAck)}, out)
	r.lane.Turn(5)
	var got []uint64
	for _, d := range out[:r.Poll(6, nil, out)] {
		got = append(got, d.AsOf)
	}
	if diff := cmp.Diff([]uint64{8, 9, 10}, got); diff != "" {
		t.Fatalf("answers after Resume of flow 1 only (-want +got):\n%s", diff)
	}
}

// A Close is never lost, even if the ring is full, and closes only its own generation.
func TestFullRingKeepsClose(t *testing.T) {
	seen := map[uint64]uint8{}
	m := cong.Each(func(*int, *cong.Sample, *cong.Decision) {})
	r := newRig(t, spy{m, seen}, 2, Guard{})
	out := make([]cong.Decision, 8)
	r.Poll(1, []cong.Sample{sample(0, 1, cong.KindOpen), sample(0, 2, cong.KindAck), sample(0, 3, cong.KindAck), sample(0, 4, cong.KindClose)}, out)
	if r.Deadline() != 1 {
		t.Fatal("a Close is under way, and Poll is not wanted at once")
	}
	r.lane.Turn(2)
	r.Poll(3, nil, out)
	r.lane.Turn(4)
	if seen[4] != cong.KindClose {
		t.Fatalf("the module saw %v, want the Close", seen)
	}
	if got := r.Dropped(nil); got != nil {
		t.Fatalf("closed flow %v is to be resumed", got)
	}
}

type spy struct {
	cong.Module
	seen map[uint64]uint8
}

func (s spy) Poll(now plugins.Time, in []cong.Sample, out []cong.Decision) int {
	for _, e := range in {
		s.seen[e.ID] = e.Kind
	}
	return s.Module.Poll(now, in, out)
}

// What no module of the protocol can say ends it; what is merely old is dropped.
func TestRecordChecks(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    cong.Decision
		want string // part of the fault; "" if it is only dropped
	}{
		{"slot out of range", cong.Decision{Flow: plugins.Flow{Slot: 1 << 30}, AsOf: 1}, "never used"},
		{"old generation", cong.Decision{Flow: plugins.Flow{Slot: 0, Gen: 2}, AsOf: 1}, ""},
		{"not opened", cong.Decision{Flow: flow(5), AsOf: 1}, ""},
		{"future event", cong.Decision{Flow: flow(0), AsOf: 9}, "event 9"},
		{"unknown flag", cong.Decision{Flow: flow(0), AsOf: 1, Flags: 1 << 20}, "unknown flags"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, say{tc.d}, 16, Guard{})
			out := make([]cong.Decision, 4)
			r.Poll(1, []cong.Sample{sample(0, 1, cong.KindOpen)}, out)
			r.lane.Turn(2)
			if n := r.Poll(3, nil, out); n != 0 {
				t.Fatalf("accepted %+v", out[0])
			}
			if tc.want == "" {
				if r.State() != plugins.Ready || r.Stats().Stale != 1 {
					t.Fatalf("state %v (%s), %d stale", r.State(), r.Fault(), r.Stats().Stale)
				}
			} else if r.State() != plugins.Dead || !strings.Contains(r.Fault(), tc.want) {
				t.Fatalf("state %v, fault %q, want %q", r.State(), r.Fault(), tc.want)
			}
		})
	}
}

type say struct{ d cong.Decision }

func (s say) Poll(_ plugins.Time, in []cong.Sample, out []cong.Decision) int {
	if len(in) == 0 {
		return 0
	}
	out[0] = s.d
	return 1
}
func (say) Deadline() plugins.Time { return plugins.Never }

// A module that answers faster than the worker reads does not keep the worker from its other work.
func TestFloodIsBounded(t *testing.T) {
	r := newRig(t, flood{}, 16, Guard{Late: time.Hour})
	out := make([]cong.Decision, 4)
	r.Poll(1, []cong.Sample{sample(0, 1, cong.KindOpen)}, out)
	r.lane.Turn(2)
	total := 0
	for { // as engines do
		n := r.Poll(3, nil, out)
		total += n
		r.lane.Turn(3) // refills what was read
		if n < len(out) {
			break
		}
		if total > 100 {
			t.Fatal("the worker reads for ever")
		}
	}
	if total != 16 {
		t.Fatalf("%d commands in one turn, want the 16 of a full ring", total)
	}
	if n := r.Poll(4, nil, out); n != 4 {
		t.Fatalf("%d commands in the next turn", n)
	}
}

type flood struct{}

func (flood) Poll(_ plugins.Time, _ []cong.Sample, out []cong.Decision) int {
	for i := range out {
		out[i] = cong.Decision{Flow: flow(0), AsOf: 1, Cwnd: 1}
	}
	return len(out)
}
func (flood) Deadline() plugins.Time { return 0 }

func TestRecordChecksOfOtherKinds(t *testing.T) {
	good := rtx.Command{Kind: rtx.CmdLost}
	good.SetRange(seqRange(0xfffffff0, 0x10)) // wraps
	for _, change := range []func(*rtx.Command){
		func(c *rtx.Command) { c.Kind = 0 }, func(c *rtx.Command) { c.Kind = 9 }, func(c *rtx.Command) { c.CA = 5 },
		func(c *rtx.Command) { c.Timer = 4 }, func(c *rtx.Command) { c.Flags = 1 << 31 }, func(c *rtx.Command) { c.RTT = -1 },
		func(c *rtx.Command) { c.SetRange(seqRange(5, 5)) }, func(c *rtx.Command) { c.SetRange(seqRange(5, 1)) },
	} {
		c := good
		if err := rtxSchema.check(&c); err != nil {
			t.Fatal(err)
		}
		if change(&c); rtxSchema.check(&c) == nil {
			t.Errorf("accepted %+v", c)
		}
	}
	line := pace.Line{Rate: 1, Credit: pace.CreditOne}
	if err := paceSchema.check(&line); err != nil {
		t.Fatal(err)
	}
	for _, l := range []pace.Line{{}, {Rate: 1, Horizon: -1}, {Rate: 1, Credit: pace.CreditOne + 1}} {
		if paceSchema.check(&l) == nil {
			t.Errorf("accepted %+v", l)
		}
	}
}

// A module that does not run is late, then dead; time in which the worker itself did not run does not count.
func TestGuard(t *testing.T) {
	const ms = plugins.Time(time.Millisecond)
	r := newRig(t, mustThird(t), 64, Guard{Late: 10 * time.Millisecond, Dead: 500 * time.Millisecond})
	out := make([]cong.Decision, 64)
	now := 1000 * ms
	pollFor := func(d plugins.Time, runs bool) {
		for end := now + d; now < end; now += ms {
			if runs {
				r.lane.Turn(now)
			}
			r.Poll(now, nil, out)
		}
	}
	want := func(st plugins.RemoteState) {
		t.Helper()
		if r.State() != st {
			t.Fatalf("at %d ms: %v (%s), want %v", now/ms, r.State(), r.Fault(), st)
		}
	}
	r.Poll(now, nil, out)
	now += 10_000 * ms // the worker slept: nothing was outstanding
	r.Poll(now, []cong.Sample{sample(0, 1, cong.KindOpen)}, out)
	now += 300 * ms // the worker was descheduled
	r.Poll(now, nil, out)
	want(plugins.Ready)
	pollFor(15*ms, false)
	want(plugins.Late)
	if len(r.notify) != 1 {
		t.Fatal("the manager is not told")
	}
	if at := r.Deadline(); at <= now-ms || at > now+10*ms {
		t.Fatalf("a late module is polled next in %v", at.Sub(now))
	}
	pollFor(50*ms, true)
	want(plugins.Late) // it has caught up, but not for long enough
	pollFor(70*ms, true)
	want(plugins.Ready)

	// A relapse soon after it came back makes the next return twice as hard.
	r.Poll(now, []cong.Sample{sample(0, 2, cong.KindAck)}, out)
	pollFor(15*ms, false)
	want(plugins.Late)
	pollFor(150*ms, true)
	want(plugins.Late)
	pollFor(80*ms, true)
	want(plugins.Ready)

	r.Poll(now, []cong.Sample{sample(0, 3, cong.KindAck)}, out)
	pollFor(490*ms, false)
	want(plugins.Late)
	pollFor(20*ms, false)
	want(plugins.Dead)
	if r.Deadline() != plugins.Never || !strings.Contains(r.Fault(), "silent") {
		t.Fatalf("deadline %d, fault %q", r.Deadline(), r.Fault())
	}
	pollFor(500*ms, true)
	want(plugins.Dead)
}

// A module that misses its own deadline is late; one whose deadline moves runs.
func TestGuardDeadline(t *testing.T) {
	const ms = plugins.Time(time.Millisecond)
	r := newRig(t, mustThird(t), 64, Guard{Late: 10 * time.Millisecond})
	out := make([]cong.Decision, 4)
	r.seg.Module.Deadline.Store(int64(100 * ms))
	for now := 90 * ms; now < 200*ms; now += ms {
		r.seg.Module.Deadline.Store(int64(now))
		r.Poll(now, nil, out)
	}
	if r.State() != plugins.Ready {
		t.Fatal("late although it moves its deadline")
	}
	for now := 200 * ms; now < 215*ms; now += ms {
		r.Poll(now, nil, out)
	}
	if r.State() != plugins.Late {
		t.Fatal("not late although its deadline passes")
	}
}

// The worker must find the answers when it finds the events consumed. Two goroutines; run it with -race.
func TestNoAnswerIsMissed(t *testing.T) {
	r := newRig(t, mustThird(t), 64, Guard{Late: time.Hour})
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { link.Loop([]link.Lane{r.lane}, &r.seg.Host.Bell, 0, &stop) })
	out := make([]cong.Decision, 64)
	answered := 0
	for i := uint64(1); i <= 5000; i++ {
		kind := cong.KindAck
		if i == 1 {
			kind = cong.KindOpen
		}
		if i%1000 == 0 { // let it find nothing for long enough to park
			for end := time.Now().Add(10 * time.Second); !r.events.Parked() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		answered += r.Poll(link.Now(), []cong.Sample{sample(0, i, kind)}, out)
		for r.Deadline() != plugins.Never {
			answered += r.Poll(link.Now(), nil, out)
		}
		if answered != int(i) {
			t.Fatalf("%d answers after %d samples, and the remote has settled", answered, i)
		}
	}
	stop.Store(true)
	r.seg.Host.Bell.Ring()
	wg.Wait()
	if n := r.Stats().Wakes; n < 5 {
		t.Errorf("the module, which was left to park five times, was woken %d times", n)
	}
}

// A parked module is woken for events, and for nothing else.
func TestWakes(t *testing.T) {
	r := newRig(t, mustThird(t), 16, Guard{})
	if !r.lane.Park() {
		t.Fatal("nothing to do, and it does not park")
	}
	out := make([]cong.Decision, 4)
	for i := range 5 {
		r.Poll(plugins.Time(i), nil, out)
	}
	if n := r.Stats().Wakes; n != 0 {
		t.Fatalf("woken %d times for nothing", n)
	}
	r.Poll(6, []cong.Sample{sample(0, 1, cong.KindOpen)}, out)
	if n := r.Stats().Wakes; n != 1 || r.lane.Park() {
		t.Fatalf("woken %d times for an event", n)
	}
}

func TestPollDoesNotAllocate(t *testing.T) {
	r := newRig(t, mustThird(t), 256, Guard{})
	in := make([]cong.Sample, 32)
	out := make([]cong.Decision, 64)
	now, id := plugins.Time(1), uint64(0)
	turn := func() {
		for i := range in {
			id++
			in[i] = sample(uint32(i), id, cong.KindAck)
			if id <= uint64(len(in)) {
				in[i].Kind = cong.KindOpen
			}
		}
		now += 1000
		r.Poll(now, in, out)
		r.lane.Turn(now)
		if n := r.Poll(now, nil, out); n != len(in) {
			t.Fatalf("%d answers to %d samples", n, len(in))
		}
	}
	turn()
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Fatalf("%v allocations per turn on the two sides", n)
	}
}

func seqRange(start, end uint32) seq.Range { return seq.Range{Start: start, End: end} }

// A parked module is woken once until it has read something.
func TestWakesOnce(t *testing.T) {
	r := newRig(t, mustThird(t), 64, Guard{})
	out := make([]cong.Decision, 4)
	id := uint64(0)
	poll := func(events int, wakes uint64) {
		t.Helper()
		var in []cong.Sample
		for range events {
			id++
			in = append(in, sample(0, id, cong.KindOpen))
		}
		r.Poll(plugins.Time(id), in, out)
		if n := r.Stats().Wakes; n != wakes {
			t.Fatalf("after %d events: woken %d times, want %d", id, n, wakes)
		}
	}
	park := func() {
		t.Helper()
		if !r.lane.Park() {
			t.Fatal("nothing to do, and it does not park")
		}
	}
	park()
	poll(1, 1)
	poll(7, 1) // it is waking up
	r.lane.Unpark()
	r.lane.Turn(100)
	poll(0, 1)
	park()
	poll(1, 2) // for new events it is woken again
}
