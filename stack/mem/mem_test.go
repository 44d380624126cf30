package mem

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
)

func budget(t testing.TB, l Limits) *Budget {
	b, err := NewBudget(l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLevels(t *testing.T) {
	b := budget(t, Limits{Low: 100, Pressure: 200, High: 400})
	for i, s := range []struct {
		add  int64
		ok   bool
		want Level
	}{
		{200, true, Normal}, {1, true, Pressure}, {-101, true, Pressure}, {-1, true, Normal}, // hysteresis between Low and Pressure
		{301, true, Pressure}, {1, false, Full}, {-1, true, Full}, {-98, true, Full}, {-1, true, Pressure}, // Full until halfway
		{100, true, Pressure}, {1, false, Full}, {-400, true, Normal},
	} {
		ok := true
		if s.add > 0 {
			ok = b.TryAdd(s.add)
		} else {
			b.Sub(-s.add)
		}
		if ok != s.ok || b.Level() != s.want {
			t.Fatalf("step %d: add %d = %v, level %v, used %d; want %v, %v", i, s.add, ok, b.Level(), b.Used(), s.ok, s.want)
		}
	}
	st := b.Stats()
	if st.Used != 0 || st.Peak != 400 || st.Pressures != 2 || st.Fulls != 2 || st.Refusals != 2 || st.Level != "normal" {
		t.Fatalf("%+v", st)
	}
	b.Add(500)
	if b.Level() != Full {
		t.Fatal("Add beyond High does not make it full")
	}
	if err := b.SetLimits(Limits{}); err != nil || b.Level() != Normal {
		t.Fatalf("without limits: %v, %v", err, b.Level())
	}
	for _, l := range []Limits{{High: 1}, {0, 1, 2}, {2, 1, 3}, {1, 3, 2}, {Low: 1}} {
		if l.Check() == nil {
			t.Errorf("%+v passes", l)
		}
	}
}

func TestConcurrentLevel(t *testing.T) {
	b := budget(t, Limits{100, 200, 400})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20000 {
				if b.TryAdd(120) {
					b.Sub(120)
				}
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || b.Level() != Normal {
		t.Fatalf("used %d, level %v", b.Used(), b.Level())
	}
}

func TestGetPut(t *testing.T) {
	b := budget(t, Limits{})
	a := NewArena(b)
	rng := rand.New(rand.NewPCG(1, 1))
	held := map[*Chunk]byte{}
	for range 3000 {
		if rng.IntN(3) > 0 {
			c := Class(rng.IntN(int(NumClasses)))
			ch := a.Get(c)
			if ch == nil || len(ch.Mem) != c.Size() || cap(ch.Mem) != c.Size() || ch.Next.Load() != nil {
				t.Fatalf("Get(%v) = %+v", c, ch)
			}
			if _, twice := held[ch]; twice {
				t.Fatal("the same chunk twice")
			}
			tag := byte(rng.Uint32())
			held[ch] = tag
			ch.Mem[0], ch.Mem[len(ch.Mem)-1] = tag, tag
			continue
		}
		for ch, tag := range held {
			if ch.Mem[0] != tag || ch.Mem[len(ch.Mem)-1] != tag {
				t.Fatal("chunks overlap")
			}
			a.Put(ch)
			delete(held, ch)
			break
		}
	}
	used := int64(0)
	for ch := range held {
		used += int64(len(ch.Mem))
	}
	if got := b.Used(); got < used || got > used+int64(NumClasses)*2*quotaUnit {
		t.Fatalf("budget %d for %d bytes", got, used)
	}
	var leak *LeakError
	if err := a.Close(); !errors.As(err, &leak) {
		t.Fatalf("Close with chunks out: %v", err)
	}
	for ch := range held {
		a.Put(ch)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Used() != 0 || b.Stats().Mapped != 0 {
		t.Fatalf("after Close: %+v", b.Stats())
	}
}

// After a load, slabs go back but for a few, and coming back costs no allocation. A load that goes up and down within these returns nothing.
func TestSlabsReturn(t *testing.T) {
	b := budget(t, Limits{})
	returned := 0
	from := Heap
	from.Return = func(m []byte) error { returned += len(m); return nil }
	a := NewArenaOn(b, from)
	var held []*Chunk
	for range 9 * slabChunks[Large] {
		held = append(held, a.Get(Large))
	}
	slab := int64(slabChunks[Large] * Large.Size())
	if m := b.Stats().Mapped; m != 9*slab {
		t.Fatalf("mapped %d", m)
	}
	for _, ch := range held {
		a.Put(ch)
	}
	for i := range agesPerPeriod { // in which they were needed
		if a.Age(); returned != 0 {
			t.Fatalf("%d returned after %d calls of Age", returned, i+1)
		}
	}
	for range agesPerPeriod { // in which they were not
		before := returned
		if a.Age(); returned-before > agePace {
			t.Fatalf("%d returned at once", returned-before)
		}
	}
	a.Age()
	a.Age()
	if m := b.Stats().Mapped; m != minEmpty*slab || int64(returned) != (9-minEmpty)*slab {
		t.Fatalf("%d mapped and %d returned after the load, want %d slabs kept", m, returned, minEmpty)
	}
	before := returned
	for range 3 {
		for i := range minEmpty * slabChunks[Large] {
			held[i] = a.Get(Large)
		}
		for _, ch := range held[:minEmpty*slabChunks[Large]] {
			a.Put(ch)
		}
	}
	if returned != before {
		t.Fatalf("%d bytes returned by a load that goes up and down", returned-before)
	}
	if b.Used() > 2*quotaUnit {
		t.Fatalf("used %d", b.Used())
	}
	if n := testing.AllocsPerRun(100, func() {
		for i := range held {
			held[i] = a.Get(Large)
		}
		for _, ch := range held {
			a.Put(ch)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	a.Trim()
	if b.Used() != 0 || b.Stats().Mapped != 0 || a.Stats()[Large].Slabs != 0 {
		t.Fatalf("after Trim: %+v", b.Stats())
	}
}

func TestRefusals(t *testing.T) {
	b := budget(t, Limits{Low: 64 << 10, Pressure: 64 << 10, High: 128 << 10})
	a := NewHeapArena(b)
	c1, c2 := a.Get(Large), a.Get(Large)
	if c1 == nil || c2 == nil || a.Get(Small) != nil || b.Level() != Full {
		t.Fatalf("level %v", b.Level())
	}
	a.Put(c1)
	a.Trim()
	if a.Get(Small) == nil || b.Level() != Pressure {
		t.Fatalf("no memory after Put; level %v", b.Level())
	}
	fail := Heap
	fail.Map = func(int) ([]byte, error) { return nil, errors.New("no memory") }
	if NewArenaOn(budget(t, Limits{}), fail).Get(Small) != nil {
		t.Fatal("a chunk without memory")
	}
}

func TestDoublePut(t *testing.T) {
	a := NewHeapArena(budget(t, Limits{}))
	c := a.Get(Small)
	a.Put(c)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	a.Put(c)
}

func TestConcurrentArena(t *testing.T) {
	b := budget(t, Limits{})
	a := NewHeapArena(b)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			var held []*Chunk
			for range 5000 {
				if len(held) < 200 && rng.IntN(2) == 0 {
					ch := a.Get(Class(rng.IntN(2)))
					ch.Mem[0] = byte(g)
					held = append(held, ch)
				} else if len(held) > 0 {
					ch := held[len(held)-1]
					held = held[:len(held)-1]
					if ch.Mem[0] != byte(g) {
						t.Error("somebody else wrote into a chunk")
					}
					a.Put(ch)
				}
			}
			for _, ch := range held {
				a.Put(ch)
			}
		})
	}
	wg.Wait()
	if err := a.Close(); err != nil || b.Used() != 0 {
		t.Fatalf("%v, used %d", err, b.Used())
	}
}

func BenchmarkGetPut(b *testing.B) {
	a := NewArena(budget(b, Limits{}))
	for b.Loop() {
		a.Put(a.Get(Small))
	}
}
