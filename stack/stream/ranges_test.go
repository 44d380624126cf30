package stream

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// bitmap is the set as one bool per offset, and the recent ranges as a list of offsets.
type bitmap struct {
	in     []bool
	recent []uint64
}

func (m *bitmap) ranges() (r []Range) {
	for i := 0; i < len(m.in); i++ {
		if m.in[i] {
			j := i
			for j < len(m.in) && m.in[j] {
				j++
			}
			r = append(r, Range{uint64(i), uint64(j)})
			i = j
		}
	}
	return r
}

func (m *bitmap) add(start, end uint64) (newly uint64) {
	for i := start; i < end; i++ {
		if !m.in[i] {
			newly++
			m.in[i] = true
		}
	}
	return newly
}

func (m *bitmap) holding(off uint64) Range {
	for _, r := range m.ranges() {
		if r.Start <= off && off < r.End {
			return r
		}
	}
	return Range{}
}

func checkRanges(t testing.TB, r *Ranges, m *bitmap) {
	t.Helper()
	want := m.ranges()
	var got []Range
	r.All(func(x Range) bool { got = append(got, x); return true })
	if !slices.Equal(got, want) || r.Len() != len(want) {
		t.Fatalf("ranges %v (Len %d), want %v", got, r.Len(), want)
	}
	bytes, first := uint64(0), Range{}
	for _, x := range want {
		bytes += x.Len()
	}
	if len(want) > 0 {
		first = want[0]
	}
	if r.Bytes() != bytes || r.First() != first {
		t.Fatalf("Bytes %d, First %v; want %d, %v", r.Bytes(), r.First(), bytes, first)
	}
	last := Range{}
	for off := uint64(0); ; {
		x := r.Next(off)
		if i := slices.IndexFunc(want, func(w Range) bool { return w.End > off }); i < 0 && x != (Range{}) || i >= 0 && x != want[i] {
			t.Fatalf("Next(%d) is %v of %v", off, x, want)
		}
		if x == (Range{}) {
			break
		}
		last = x
		off = x.End - uint64(x.Len()&1) // its last byte, or behind it
		if off < x.End && r.Next(off) != x {
			t.Fatalf("Next(%d) is %v, want %v", off, r.Next(off), x)
		}
		off = x.End
	}
	if r.Last() != last {
		t.Fatalf("Last is %v, want %v", r.Last(), last)
	}
	// RFC 2018, 4: most recent first, each once, as many as fit.
	const base = 0xffffff00 // so that sequence numbers wrap
	var blocks [4]seq.Range
	n := r.Recent(blocks[:], recents, base)
	if n != min(4, len(want)) {
		t.Fatalf("Recent gave %d blocks of %d ranges", n, len(want))
	}
	var model []Range
	for _, off := range m.recent {
		if x := m.holding(off); x != (Range{}) && !slices.Contains(model, x) {
			model = append(model, x)
		}
	}
	for i, b := range blocks[:n] {
		x := Range{uint64(b.Start - base), uint64(b.End - base)}
		if !slices.Contains(want, x) || slices.Contains(blocks[:i], b) {
			t.Fatalf("block %d is %v, twice or no range of %v", i, x, want)
		}
		if i < len(model) && i < recents && x != model[i] {
			t.Fatalf("block %d is %v, want %v", i, x, model[i])
		}
	}
}

// lowest is the first run of what is in [start, end).
func (m *bitmap) lowest(start, end uint64) (r Range) {
	for start < end && !m.in[start] {
		start++
	}
	for r = (Range{start, start}); r.End < end && m.in[r.End]; r.End++ {
	}
	if r.Len() == 0 {
		return Range{}
	}
	return r
}

// TestFresh: ranges that changed are reported once each as such, the first ones first, and the others after them.
func TestFresh(t *testing.T) {
	var r Ranges
	want := func(most int, starts ...uint64) {
		t.Helper()
		var blocks [3]seq.Range
		n := r.Recent(blocks[:], most, 0)
		var got []uint64
		for _, b := range blocks[:n] {
			got = append(got, uint64(b.Start))
		}
		if !slices.Equal(got, starts) {
			t.Errorf("blocks at %v, want %v", got, starts)
		}
	}
	fresh := func(n int) {
		t.Helper()
		if r.Fresh() != n {
			t.Errorf("%d ranges to be reported, want %d", r.Fresh(), n)
		}
	}
	fresh(0)
	for i := range uint64(4) {
		r.Add(10*i, 10*i+5)
		r.Add(10*i+5, 10*i+6) // no other range
	}
	fresh(4)
	want(3, 20, 10, 0)
	fresh(1)
	want(3, 30, 20, 10)
	fresh(0)
	r.Add(0, 8)
	r.Add(10, 18)
	fresh(2)
	want(1, 0, 30, 20)
	fresh(1)
	r.Add(8, 10) // joins both
	fresh(1)
	r.Add(40, 41)
	r.Trim(30)
	fresh(1)
	want(3, 40, 30)
	r.Add(50, 51)
	r.Clear()
	fresh(0)
	for i := range uint64(20) {
		r.Add(10*i, 10*i+5)
	}
	fresh(recents)
}

func testRanges(t testing.TB, draw func(n int) int, steps, span int) {
	var r Ranges
	m := &bitmap{in: make([]bool, span+50)}
	for range steps {
		switch draw(16) {
		case 0:
			off := uint64(draw(span))
			r.Trim(off)
			m.recent = slices.DeleteFunc(m.recent, func(v uint64) bool { return m.holding(v).End <= off })
			for i, v := range m.recent {
				m.recent[i] = max(v, off)
			}
			clear(m.in[:off])
		default:
			start := uint64(draw(span))
			end := start + uint64(draw(6))
			wantDup := m.lowest(start, end)
			newly, dup, merged := r.Add(start, end)
			if dup != wantDup {
				t.Fatalf("Add(%d, %d): %v was there, want %v", start, end, dup, wantDup)
			}
			if want := m.add(start, end); newly != want {
				t.Fatalf("Add(%d, %d) = %d new, want %d", start, end, newly, want)
			}
			if start < end {
				if want := m.holding(start); merged != want {
					t.Fatalf("Add(%d, %d) merged to %v, want %v", start, end, merged, want)
				}
				m.recent = slices.Insert(m.recent, 0, start)
				if len(m.recent) > recents {
					m.recent = m.recent[:recents]
				}
			}
		}
		checkRanges(t, &r, m)
	}
}

func TestRangesModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		testRanges(t, rng.IntN, 400, 20<<(seed%7))
	}
}

func FuzzRanges(f *testing.F) {
	f.Add([]byte("\x01\x10\x03\x01\x20\x04\x01\x12\x05\x00\x11"))
	f.Fuzz(func(t *testing.T, in []byte) {
		draw := func(n int) int {
			if len(in) == 0 {
				return 0
			}
			v := int(in[0]) * n >> 8
			in = in[1:]
			return v
		}
		testRanges(t, draw, len(in)/3, 200)
	})
}

func TestRangesLimit(t *testing.T) {
	for _, limit := range []int{3, 100} {
		var r Ranges
		r.SetLimit(limit)
		for i := range uint64(limit) {
			r.Add(10*i, 10*i+5)
		}
		if n, _, m := r.Add(10_000, 10_001); n != 0 || m != (Range{}) || r.Refused() != 1 || r.Len() != limit {
			t.Fatalf("Add to a full set: %d, %v", n, m)
		}
		if n, _, m := r.Add(5, 10); n != 5 || m != (Range{0, 15}) || r.Len() != limit-1 {
			t.Fatalf("joining two ranges of a full set: %d, %v", n, m)
		}
		r.Clear()
		if r.Len() != 0 || r.Bytes() != 0 || r.Recent(make([]seq.Range, 4), 4, 0) != 0 {
			t.Fatal("Clear left something")
		}
	}
}

func TestRangesAllocs(t *testing.T) {
	var r Ranges
	var blocks [4]seq.Range
	for _, n := range []uint64{20, 500} {
		run := func() {
			for i := range n {
				r.Add(i*20, i*20+10)
				r.Recent(blocks[:], 4, 0)
			}
			for i := range n {
				r.Trim(i * 20)
			}
			r.Trim(1 << 40)
		}
		if a := testing.AllocsPerRun(100, run); a != 0 {
			t.Errorf("%d ranges: %v allocations", n, a)
		}
	}
}

// BenchmarkRanges fills every other one of n slots, then the rest.
func BenchmarkRanges(b *testing.B) {
	for _, n := range []struct {
		name string
		n    uint64
	}{{"1", 1}, {"16", 16}, {"32", 32}, {"1000", 1000}} {
		b.Run(n.name, func(b *testing.B) {
			var r Ranges
			i := uint64(0)
			for b.Loop() {
				k := i * 0x9e3779b1 % n.n
				r.Add(k*20, k*20+10+i&7)
				i++
				if r.Len() == int(n.n) && i%(4*n.n) == 0 {
					r.Clear()
				}
			}
		})
	}
}
