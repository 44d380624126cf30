package timer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// model is the wheel as a plain list.
type model struct {
	at  map[uint32]plugins.Time
	ord map[uint32]int // when it was set
	n   int
}

func (m *model) set(id uint32, at plugins.Time) {
	if old, ok := m.at[id]; ok && old == at {
		return
	}
	if at == plugins.Never {
		delete(m.at, id)
		return
	}
	m.n++
	m.at[id], m.ord[id] = at, m.n
}

func (m *model) next() plugins.Time {
	t := plugins.Never
	for _, at := range m.at {
		t = min(t, at)
	}
	return t
}

// due removes what is due. last is the tick of the previous call, into which past times fell.
func (m *model) due(now plugins.Time, last uint64) []uint32 {
	var ids []uint32
	for id, at := range m.at {
		if at <= now {
			ids = append(ids, id)
		}
	}
	tick := func(id uint32) uint64 { return max(tickOf(m.at[id]), last) }
	slices.SortFunc(ids, func(a, b uint32) int {
		if ta, tb := tick(a), tick(b); ta != tb {
			return int(int64(ta - tb))
		}
		return m.ord[a] - m.ord[b]
	})
	for _, id := range ids {
		delete(m.at, id)
	}
	return ids
}

// checker drives a wheel and its model together.
type checker struct {
	t   testing.TB
	w   *Wheel
	m   model
	now plugins.Time
}

func newChecker(t testing.TB, now plugins.Time) *checker {
	return &checker{t, New(now), model{at: map[uint32]plugins.Time{}, ord: map[uint32]int{}}, now}
}

func (c *checker) set(id uint32, at plugins.Time) {
	c.w.Set(id, at)
	c.m.set(id, at)
	want, ok := c.m.at[id]
	if !ok {
		want = plugins.Never
	}
	if got := c.w.At(id); got != want {
		c.t.Fatalf("At(%d) = %d, want %d", id, got, want)
	}
	c.next(false)
}

func (c *checker) next(advanced bool) {
	got, want := c.w.Next(), c.m.next()
	if got > want || want == plugins.Never && got != plugins.Never {
		c.t.Fatalf("now %d: Next() = %d, but the first deadline is %d", c.now, got, want)
	}
	if advanced && got <= c.now {
		c.t.Fatalf("Next() = %d after Advance(%d)", got, c.now)
	}
	if tickOf(want)^tickOf(c.now) < slots && want > c.now && got != want && advanced {
		c.t.Fatalf("now %d: Next() = %d, want exactly %d", c.now, got, want)
	}
}

func (c *checker) advance(now plugins.Time) {
	want := c.m.due(now, tickOf(c.now))
	c.now = now
	if got := c.w.Advance(now, nil); !slices.Equal(got, want) {
		c.t.Fatalf("Advance(%d) = %v, want %v", now, got, want)
	}
	c.next(true)
}

func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newChecker(t, plugins.Time(rng.Int64N(1<<40)))
		span := func() plugins.Time { return plugins.Time(rng.Int64N(1 << (1 + rng.IntN(50)))) }
		for range 3000 {
			id := uint32(rng.IntN(64))
			switch rng.IntN(8) {
			case 0:
				c.set(id, plugins.Never)
			case 1:
				c.set(id, c.now-span())
			case 2, 3:
				c.advance(c.now + span()>>20)
			case 4:
				if n := c.w.Next(); n != plugins.Never {
					c.advance(max(c.now, n))
				}
			default:
				c.set(id, c.now+span())
			}
		}
		c.advance(plugins.Never - 1)
	}
}

// Running from Next to Next reaches each deadline exactly, in few steps.
func TestNextReachesDeadline(t *testing.T) {
	for _, at := range []plugins.Time{1, 255, 256, 16384, 200_000_123, 7_200_000_000_001, plugins.Never - 1} {
		w := New(0)
		w.Set(3, at)
		for steps := 0; ; steps++ {
			now := w.Next()
			if now > at || steps > levels+1 {
				t.Fatalf("at %d: Next() = %d after %d steps", at, now, steps)
			}
			if ids := w.Advance(now, nil); len(ids) > 0 {
				if now != at || ids[0] != 3 || w.At(3) != plugins.Never || w.Next() != plugins.Never {
					t.Fatalf("at %d: fired %v at %d, then Next() = %d", at, ids, now, w.Next())
				}
				break
			}
		}
	}
}

func TestUnknownID(t *testing.T) {
	w := New(5)
	w.Stop(9)
	if w.At(9) != plugins.Never || w.Next() != plugins.Never {
		t.Fatal("an id that was never set has a deadline")
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{0, 1, 200, 3, 4, 5, 6, 7, 8, 9, 10, 11, 250, 255})
	f.Fuzz(func(t *testing.T, ops []byte) {
		c := newChecker(t, 1<<20)
		for len(ops) >= 4 {
			id, shift, v := uint32(ops[0]&15), ops[1]&63, plugins.Time(ops[2])
			d := plugins.Time(uint64(v) << shift & (1<<62 - 1))
			switch ops[3] % 4 {
			case 0:
				c.set(id, c.now-d)
			case 1:
				if d < 1<<50 && c.now < 1<<60 {
					c.advance(c.now + d)
				}
			case 2:
				c.set(id, plugins.Never)
			default:
				c.set(id, c.now+d)
			}
			ops = ops[4:]
		}
	})
}

func TestAllocs(t *testing.T) {
	w := New(0)
	w.Grow(100)
	now, dst := plugins.Time(0), make([]uint32, 0, 100)
	if n := testing.AllocsPerRun(1000, func() {
		for id := range uint32(100) {
			w.Set(id, now+plugins.Time(id)*1000)
		}
		now += 60_000
		dst = w.Advance(now, dst[:0])
		_ = w.Next()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkSet moves an RTO of one of 1000 connections, as an ACK does.
func BenchmarkSet(b *testing.B) {
	w := New(0)
	now := plugins.Time(0)
	for i := 0; b.Loop(); i++ {
		now += 100
		w.Set(uint32(i%1000), now+200_000_000)
	}
}

// BenchmarkPacing arms a departure 30 µs ahead, asks for the next deadline, and fires it, per operation.
func BenchmarkPacing(b *testing.B) {
	w := New(0)
	now := plugins.Time(0)
	var dst []uint32
	for i := 0; b.Loop(); i++ {
		w.Set(uint32(i%1000), now+30_000)
		now += 300
		dst = w.Advance(now, dst[:0])
		_ = w.Next()
	}
}

// BenchmarkAdvanceIdle is a turn in which nothing is due.
func BenchmarkAdvanceIdle(b *testing.B) {
	w := New(0)
	for i := range uint32(1000) {
		w.Set(i, plugins.Time(1e15)+plugins.Time(i)*1e6)
	}
	now := plugins.Time(0)
	var dst []uint32
	for b.Loop() {
		now += 300
		dst = w.Advance(now, dst[:0])
		_ = w.Next()
	}
}
