package memlink

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// arrival is a frame that the peer received: its number and when.
type arrival struct {
	n  int
	at plugins.Time
}

// bed is a link on a virtual clock, driven by one goroutine.
type bed struct {
	testing.TB
	a, b *Port
	v    virtual
	got  []arrival
	raw  func(f []byte) // if set, sees each frame that arrives
}

func newBed(t testing.TB, p Path, more func(c *Config)) *bed {
	d := &bed{TB: t}
	d.v.now = 1_000_000
	c := Config{AtoB: p, Now: d.v.read, Virtual: true, Seed: 42}
	if more != nil {
		more(&c)
	}
	d.a, d.b = must(t, c)
	t.Cleanup(func() { closeBoth(t, d.a, d.b) })
	return d
}

// send sends frame number n with size bytes now.
func (d *bed) send(n, size int) {
	d.Helper()
	b := d.a.Queue(0).Pool().Get()
	if b == nil {
		d.Fatal("pool exhausted")
	}
	b.SetLen(size)
	f := b.Bytes()
	clear(f)
	binary.BigEndian.PutUint32(f[size-4:], uint32(n))
	d.sendBuf(b)
}

func (d *bed) sendBuf(b *pmd.Buf) {
	d.Helper()
	if k, _ := d.a.Queue(0).Poll([]*pmd.Buf{b}, nil); k != 1 {
		d.Fatal("the link refused a frame")
	}
}

// receive takes what has arrived by now.
func (d *bed) receive() {
	var rx [16]*pmd.Buf
	for {
		_, n := d.b.Queue(0).Poll(nil, rx[:])
		for _, b := range rx[:n] {
			f := b.Bytes()
			if d.raw != nil {
				d.raw(f)
			}
			d.got = append(d.got, arrival{int(binary.BigEndian.Uint32(f[len(f)-4:])), d.v.now})
			b.Free()
		}
		if n == 0 {
			return
		}
	}
}

// finish advances the clock from release to release until nothing is on its way.
func (d *bed) finish() []arrival {
	for {
		next := d.b.NextRelease()
		if next == plugins.Never {
			return d.got
		}
		d.v.now = max(d.v.now, next)
		d.receive()
	}
}

func numbers(as []arrival) (ns []int) {
	for _, a := range as {
		ns = append(ns, a.n)
	}
	return ns
}

func TestRateIsExact(t *testing.T) {
	// 1000 bytes at 3 Gbit/s take 2666 2/3 ns.
	d := newBed(t, Path{Rate: 3e9, Delay: 150 * time.Millisecond}, nil)
	start := d.v.now
	for n := range 3000 {
		d.send(n, 1000)
	}
	got := d.finish()
	if len(got) != 3000 {
		t.Fatalf("%d of 3000 frames arrived", len(got))
	}
	for i, g := range got {
		want := start + plugins.Time(8000*(i+1)/3) + 150_000_000
		if g.n != i || g.at != want {
			t.Fatalf("arrival %d: frame %d at %d, want frame %d at %d", i, g.n, g.at, i, want)
		}
	}
}

func TestRateAfterIdle(t *testing.T) {
	d := newBed(t, Path{Rate: 1e9, Overhead: 24}, nil)
	start := d.v.now
	d.send(0, 1000)
	d.v.add(100 * time.Microsecond)
	d.send(1, 1000) // the link has been idle: it starts now
	d.send(2, 476)
	want := []arrival{{0, start + 8192}, {1, start + 100_000 + 8192}, {2, start + 100_000 + 8192 + 4000}}
	d.v.now = start
	if got := d.finish(); !slices.Equal(got, want) {
		t.Errorf("arrivals %v, want %v", got, want)
	}
}

func TestDelayHasNoQueue(t *testing.T) {
	d := newBed(t, Path{Delay: 5 * time.Millisecond}, nil)
	start := d.v.now
	d.send(0, 60)
	d.v.add(1)
	d.send(1, 1500)
	d.v.add(5*time.Millisecond - 2)
	d.receive()
	if len(d.got) != 0 {
		t.Fatalf("a frame arrived %v too early", time.Nanosecond)
	}
	if next := d.b.NextRelease(); next != start.Add(5*time.Millisecond) {
		t.Errorf("NextRelease is %d, want %d", next, start.Add(5*time.Millisecond))
	}
	want := []arrival{{0, start + 5_000_000}, {1, start + 5_000_001}}
	if got := d.finish(); !slices.Equal(got, want) {
		t.Errorf("arrivals %v, want %v", got, want)
	}
	if next := d.a.NextRelease(); next != plugins.Never {
		t.Errorf("NextRelease of the sender is %d", next)
	}
}

func TestJitter(t *testing.T) {
	for _, keep := range []bool{false, true} {
		d := newBed(t, Path{Delay: 10 * time.Millisecond, Jitter: 4 * time.Millisecond, KeepOrder: keep}, nil)
		start := d.v.now
		const frames = 2000
		for n := range frames {
			d.send(n, 60)
		}
		got := d.finish()
		var sum, low, high int64 = 0, 1 << 62, 0
		for _, g := range got {
			w := int64(g.at - start)
			sum, low, high = sum+w, min(low, w), max(high, w)
		}
		if low < 6e6 || high > 14e6 || high < 13_900_000 {
			t.Errorf("keep %v: delays from %d to %d ns, want 6 to 14 ms", keep, low, high)
		}
		inOrder := slices.IsSorted(numbers(got))
		if keep != inOrder {
			t.Errorf("keep %v: in order %v", keep, inOrder)
		}
		// The mean of 2000 uniform draws of ±4 ms has a standard deviation of 52 µs.
		if mean := sum / frames; !keep && (mean < 9_790_000 || mean > 10_210_000 || low > 6_100_000) {
			t.Errorf("mean delay %d ns, least %d, want 10 ms and 6 ms", mean, low)
		}
	}
}

func TestReorder(t *testing.T) {
	d := newBed(t, Path{Delay: time.Millisecond, KeepOrder: true, Reorder: 10 * Percent, ReorderDelay: 100 * time.Microsecond}, nil)
	for n := range 1000 {
		d.send(n, 60)
		d.v.add(20 * time.Microsecond)
		d.receive()
	}
	got := d.finish()
	late := 0
	for i := 1; i < len(got); i++ {
		if got[i].n < got[i-1].n {
			late++
		}
	}
	c := d.a.Counters()
	if c.Reordered < 70 || c.Reordered > 130 || late == 0 || len(got) != 1000 {
		t.Errorf("%d of 1000 frames arrived, %d reordered (want about 100), %d seen late", len(got), c.Reordered, late)
	}
}

func TestQueueIsDropTail(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Path
		want int
	}{
		{"frames", Path{Rate: 1e9, QueueFrames: 10}, 10},
		{"bytes", Path{Rate: 1e9, QueueBytes: 7999}, 7},
		{"bytes, exactly", Path{Rate: 1e9, QueueBytes: 8000}, 8},
		{"both", Path{Rate: 1e9, QueueBytes: 8000, QueueFrames: 5}, 5},
	} {
		d := newBed(t, tc.p, nil)
		for n := range 20 {
			d.send(n, 1000)
		}
		// When the first has been served there is room for one more.
		d.v.add(8000 * time.Nanosecond)
		d.send(20, 1000)
		d.send(21, 1000)
		var want []int
		for n := range tc.want {
			want = append(want, n)
		}
		want = append(want, 20)
		if got := numbers(d.finish()); !slices.Equal(got, want) {
			t.Errorf("%s: frames %v arrived, want %v", tc.name, got, want)
		}
		if c := d.a.Counters(); int(c.QueueDrops) != 22-len(want) || c.Frames != 22 || int(c.QueuedBytes) != 1000*tc.want {
			t.Errorf("%s: counters %+v", tc.name, c)
		}
	}
}

// A policer passes its burst, then its rate, and nothing waits for it.
func TestPolicer(t *testing.T) {
	d := newBed(t, Path{PolicerRate: 8e6, PolicerBurst: 3500}, nil) // a byte each microsecond
	for n := range 5 {
		d.send(n, 1000) // three pass, 500 tokens are left
	}
	d.v.add(499 * time.Microsecond)
	d.send(5, 1000)
	d.v.add(time.Microsecond)
	d.send(6, 1000)
	d.v.add(time.Hour) // it fills up, but not more
	for n := 7; n < 12; n++ {
		d.send(n, 1000)
	}
	if got, want := numbers(d.finish()), []int{0, 1, 2, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("frames %v arrived, want %v", got, want)
	}
	if c := d.a.Counters(); c.Policed != 5 || c.Frames != 12 || c.Lost != 0 || c.QueueDrops != 0 {
		t.Errorf("counters %+v", c)
	}
}

func TestClockIsReadOncePerPoll(t *testing.T) {
	both := func(c *Config) { c.BtoA = c.AtoB }
	for _, tc := range []struct {
		name       string
		p          Path
		want, idle int
	}{
		{"clean", Path{}, 0, 0},
		{"loss", Path{Loss: Loss{Random: Percent}, Duplicate: Percent, Corrupt: Percent}, 0, 0},
		{"rate", Path{Rate: 1e9}, 1, 0},
		{"delay", Path{Delay: 1}, 1, 0},
	} {
		d := newBed(t, tc.p, both)
		var rx [4]*pmd.Buf
		d.b.Queue(0).Poll(nil, rx[:])
		if d.v.reads != tc.idle {
			t.Errorf("%s: an idle Poll reads the clock %d times", tc.name, d.v.reads)
		}
		d.send(0, 60)
		d.v.reads = 0
		b := d.b.Queue(0).Pool().Get()
		b.SetLen(60)
		d.v.add(time.Second)
		_, n := d.b.Queue(0).Poll([]*pmd.Buf{b}, rx[:])
		if d.v.reads != tc.want {
			t.Errorf("%s: Poll reads the clock %d times, want %d", tc.name, d.v.reads, tc.want)
		}
		pmd.FreeAll(rx[:n])
	}
}

// TestOneDirectionWithAClock wants frames of a direction without time to arrive at once, though the sender reads the clock to
// receive.
func TestOneDirectionWithAClock(t *testing.T) {
	d := newBed(t, Path{Loss: Loss{Frames: []uint64{2}}}, func(c *Config) { c.BtoA = Path{Delay: time.Millisecond} })
	back := d.b.Queue(0).Pool().Get()
	back.SetLen(60)
	d.b.Queue(0).Poll([]*pmd.Buf{back}, nil)
	b := d.a.Queue(0).Pool().Get()
	b.SetLen(60)
	clear(b.Bytes())
	var rx [1]*pmd.Buf
	if n, k := d.a.Queue(0).Poll([]*pmd.Buf{b}, rx[:]); n != 1 || k != 0 || d.b.NextRelease() != 0 {
		t.Errorf("%d sent, %d received, the peer's next is %d; want 1, 0, 0", n, k, d.b.NextRelease())
	}
	d.receive()
	if len(d.got) != 1 {
		t.Error("nothing arrived")
	}
}

func TestSetPath(t *testing.T) {
	d := newBed(t, Path{Rate: 1e9}, nil)
	start := d.v.now
	d.send(0, 1000)
	if err := d.a.SetPath(Path{Rate: 1e8, Delay: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	d.send(1, 1000)
	if err := d.a.SetPath(Path{}); err != nil {
		t.Fatal(err)
	}
	d.send(2, 1000) // nothing is in its way but what waited for the old rate
	want := []arrival{{0, start + 8000}, {2, start + 88_000}, {1, start + 88_000 + 1_000_000}}
	if got := d.finish(); !slices.Equal(got, want) {
		t.Errorf("arrivals %v, want %v", got, want)
	}
	if err := d.a.SetPath(Path{Delay: -1}); err == nil {
		t.Error("a negative delay was accepted")
	}
	if err := d.b.SetPath(Path{Delay: 1}); err == nil {
		t.Error("a clean direction was given a path")
	}
}

// trace runs a link with everything on and returns what arrived, when, and with which bytes.
func trace(t *testing.T, seed uint64) (as []arrival, sum []byte, c Counters) {
	d := newBed(t, Path{
		Rate: 50e6, QueueFrames: 40, Delay: 3 * time.Millisecond, Jitter: time.Millisecond, Duplicate: 2 * Percent,
		Loss:    Loss{Random: Percent, Frames: []uint64{17, 5}, Burst: Percent / 10, BurstLen: 3, Gilbert: Gilbert{Percent, 20 * Percent, 0, Always}},
		Reorder: Percent, ReorderDelay: time.Millisecond, Corrupt: Percent, CorruptBits: 15,
	}, func(c *Config) { c.Seed = seed })
	d.raw = func(f []byte) { sum = append(sum, f...) }
	for n := range 3000 {
		d.send(n, 100+n%900)
		d.v.add(90 * time.Microsecond)
		d.receive()
	}
	as = d.finish()
	return as, sum, d.a.Counters()
}

func TestDeterminism(t *testing.T) {
	as, sum, c := trace(t, 7)
	as2, sum2, c2 := trace(t, 7)
	if !slices.Equal(as, as2) || !slices.Equal(sum, sum2) || c != c2 {
		t.Error("the same seed gave another result")
	}
	as3, _, _ := trace(t, 8)
	if slices.Equal(as, as3) {
		t.Error("another seed gave the same result")
	}
	if c.Lost == 0 || c.QueueDrops == 0 || c.Duplicated == 0 || c.Reordered == 0 || c.Corrupted == 0 {
		t.Errorf("something did not happen: %+v", c)
	}
	if got := c.Frames + c.Duplicated - c.Lost - c.QueueDrops; got != uint64(len(as)) || c.InFlight != 0 {
		t.Errorf("%d frames arrived, the counters say %d: %+v", len(as), got, c)
	}
}

// TestGolden pins the draws: a change here changes every committed simulation result.
func TestGolden(t *testing.T) {
	as, sum, c := trace(t, 7)
	h := crc32.NewIEEE()
	_, _ = h.Write(sum)
	_ = binary.Write(h, binary.BigEndian, int64(len(as)))
	for _, a := range as {
		_ = binary.Write(h, binary.BigEndian, int64(a.at))
	}
	want := Counters{Frames: 3000, Lost: 158, QueueDrops: 228, Duplicated: 47, Reordered: 21, Corrupted: 28, QueuedBytes: 38701}
	if c != want || h.Sum32() != 0x31e8f6af {
		t.Errorf("counters %+v, want %+v; checksum of all frames and times %#x", c, want, h.Sum32())
	}
}
