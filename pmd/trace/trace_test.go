package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/gopacket/gopacket/pcapgo"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

// ticks is a clock that goes on by one with each reading.
type ticks struct{ n atomic.Int64 }

func (c *ticks) now() plugins.Time { return plugins.Time(c.n.Add(1)) }

func link(t testing.TB, c memlink.Config) (*Port, *memlink.Port, *ticks) {
	t.Helper()
	a, b, err := memlink.New(c)
	if err != nil {
		t.Fatal(err)
	}
	clock := &ticks{}
	return New(a, clock.now), b, clock
}

func closeBoth(t testing.TB, a, b pmd.Port) {
	t.Helper()
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name string
		arm  bool
		o    Options
	}{{"off", false, Options{}}, {"on", true, Options{}}, {"full", true, Options{Slots: 4, Snap: 20}}} {
		t.Run(tc.name, func(t *testing.T) {
			pmdtest.Run(t, func(t *testing.T) (pmd.Port, pmd.Port) {
				a, b, clock := link(t, memlink.Config{Ring: 256, Bufs: 1024, TSO: 65000})
				b2 := New(b, clock.now)
				if tc.arm {
					for _, p := range []*Port{a, b2} {
						if _, err := p.Start(tc.o); err != nil {
							t.Fatal(err)
						}
					}
				}
				return a, b2
			}, pmdtest.Options{TxRing: 256})
		})
	}
}

func frames(t testing.TB, q pmd.Queue, first, n, size int) (bs []*pmd.Buf) {
	t.Helper()
	for i := range n {
		b := q.Pool().Get()
		if b == nil {
			t.Fatal("pool exhausted")
		}
		b.SetLen(size)
		clear(b.Bytes())
		binary.BigEndian.PutUint32(b.Bytes()[14:], uint32(first+i))
		bs = append(bs, b)
	}
	return bs
}

// record is one frame of a capture.
type record struct {
	at     int64
	dir    uint32
	n      int
	caplen int
	length int
}

// drain returns what a capture holds now.
func drain(t testing.TB, c *Capture, epoch int64) (rs []record) {
	t.Helper()
	var buf bytes.Buffer
	w, err := pcap.NewWriter(&buf, pcap.WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Drain(w, epoch)
	if err := errors.Join(err, w.Finish(c.Dropped())); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&buf, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, ci, o, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, record{ci.Timestamp.UnixNano(), o.Flags.ToUint32(), int(binary.BigEndian.Uint32(f[14:])), len(f), ci.Length})
	}
	if n != len(rs) {
		t.Errorf("Drain wrote %d frames and returned %d", len(rs), n)
	}
	return rs
}

// TestOnlyWhatWasTaken wants refused frames to appear once, when the port takes them.
func TestOnlyWhatWasTaken(t *testing.T) {
	a, b, clock := link(t, memlink.Config{Ring: 128})
	q := a.Queue(0)
	before := frames(t, q, 1000, 1, 60)
	q.Poll(before, nil)
	if clock.n.Load() != 0 {
		t.Error("the clock is read though no capture runs")
	}
	c, err := a.Start(Options{Snap: 64})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Start(Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("second Start: %v", err)
	}
	tx := frames(t, q, 0, 300, 100)
	var rx [256]*pmd.Buf
	got := -1 // the one from before
	for len(tx) > 0 || got < 300 {
		n, _ := q.Poll(tx, nil)
		tx = tx[n:]
		_, k := b.Queue(0).Poll(nil, rx[:50])
		pmd.FreeAll(rx[:k])
		got += k
	}
	rs := drain(t, c, 0)
	if len(rs) != 300 || c.Dropped() != 0 {
		t.Fatalf("%d frames captured, %d dropped; want 300", len(rs), c.Dropped())
	}
	for i, r := range rs {
		if r.n != i || r.dir != 2 || r.caplen != 64 || r.length != 100 {
			t.Fatalf("captured frame %d is %+v", i, r)
		}
	}
	c.Stop()
	c.Stop()
	q.Poll(frames(t, q, 0, 1, 60), nil)
	if rs := drain(t, c, 0); len(rs) != 0 || !c.Stopped() {
		t.Errorf("%d frames captured after Stop", len(rs))
	}
	c2, err := a.Start(Options{})
	if err != nil {
		t.Error(err)
	}
	closeBoth(t, a, b)
	if !c2.Stopped() {
		t.Error("Close does not stop the capture")
	}
}

// TestLarge wants a capture to show a large frame as it is on the wire, and nothing of one that the port refuses.
func TestLarge(t *testing.T) {
	a, b, _ := link(t, memlink.Config{Ring: 8, TSO: 65000})
	defer closeBoth(t, a, b)
	c, err := a.Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	const head, mss = 54, 1000
	q := a.Queue(0)
	build := func() *pmd.Buf {
		l, _ := q.Pool().Chain(3)
		l.SetLen(head)
		h := l.Bytes()
		clear(h)
		copy(h[12:], []byte{8, 0, 0x45, 0, (40 + 5*mss) >> 8, (40 + 5*mss) & 0xff, 0, 0, 0, 0, 64, 6})
		h[46] = 5 << 4
		for m := l.More; m != nil; m = m.More {
			m.SetLen(5 * mss / 2 / 2)
			clear(m.Bytes())
		}
		n := l.More.More
		n.SetLen(n.Cap())
		clear(n.Bytes())
		l.More.SetLen(5*mss - n.Len() - 1000)
		l.SetLen(head + 1000)
		clear(l.Bytes()[head:])
		l.SegSize, l.L2Len, l.L3Len, l.L4Len, l.Flags = mss, 14, 20, 20, pmd.TxIPCsum|pmd.TxTCPCsum
		return l
	}
	tx := []*pmd.Buf{build(), build()} // the ring has room for one
	if n, _ := q.Poll(tx, nil); n != 1 {
		t.Fatalf("%d taken", n)
	}
	c.Stop()
	q.Pool().Put(tx[1])
	var shown [][]byte
	if _, err := c.Each(func(f Frame) error { shown = append(shown, bytes.Clone(f.Data)); return nil }); err != nil {
		t.Fatal(err)
	}
	var rx [16]*pmd.Buf
	_, n := b.Queue(0).Poll(nil, rx[:])
	if n != 5 || len(shown) != n {
		t.Fatalf("%d frames arrived, %d are in the capture, want 5", n, len(shown))
	}
	for i, f := range rx[:n] {
		if !bytes.Equal(f.Bytes(), shown[i]) {
			t.Errorf("frame %d: captured % x, arrived % x", i, shown[i][:head], f.Bytes()[:head])
		}
		f.Free()
	}
}

func TestBothDirectionsAndFilter(t *testing.T) {
	a, b, _ := link(t, memlink.Config{})
	q := a.Queue(0)
	odd := func(f []byte) bool { return f[17]&1 == 1 }
	c, err := a.Start(Options{Keep: odd})
	if err != nil {
		t.Fatal(err)
	}
	b.Queue(0).Poll(frames(t, b.Queue(0), 100, 4, 60), nil)
	var rx [8]*pmd.Buf
	_, n := q.Poll(frames(t, q, 0, 4, 70), rx[:])
	pmd.FreeAll(rx[:n])
	q.Poll(nil, rx[:])
	want := []record{{501, 2, 1, 70, 70}, {501, 2, 3, 70, 70}, {501, 1, 101, 60, 60}, {501, 1, 103, 60, 60}}
	got := drain(t, c, 500)
	if len(got) != len(want) {
		t.Fatalf("captured %+v, want %+v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("captured %+v, want %+v", got[i], want[i])
		}
	}
	closeBoth(t, a, b)
}

func TestDropsAreCounted(t *testing.T) {
	a, b, _ := link(t, memlink.Config{})
	q := a.Queue(0)
	c, err := a.Start(Options{Slots: 8, Keep: func(f []byte) bool { return f[17] != 3 }})
	if err != nil {
		t.Fatal(err)
	}
	q.Poll(frames(t, q, 0, 20, 60), nil) // 19 pass the filter
	if rs := drain(t, c, 0); len(rs) != 8 || c.Dropped() != 11 || rs[7].n != 8 {
		t.Errorf("%d frames captured, %d dropped; want 8 and 11", len(rs), c.Dropped())
	}
	q.Poll(frames(t, q, 0, 2, 60), nil)
	if rs := drain(t, c, 0); len(rs) != 2 || c.Dropped() != 11 {
		t.Errorf("%d frames captured after there is room, %d dropped", len(rs), c.Dropped())
	}
	closeBoth(t, a, b)
}

func TestCountEndsTheCapture(t *testing.T) {
	a, b, _ := link(t, memlink.Config{})
	c, err := a.Start(Options{})
	if err != nil {
		t.Fatal(err)
	}
	a.Queue(0).Poll(frames(t, a.Queue(0), 0, 20, 60), nil)
	w, err := pcap.NewWriter(io.Discard, pcap.WriterConfig{Count: 7})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Drain(w, 0); n != 7 || !errors.Is(err, pcap.ErrCount) {
		t.Errorf("Drain returned %d, %v", n, err)
	}
	closeBoth(t, a, b)
}

func TestStartErrors(t *testing.T) {
	a, b, _ := link(t, memlink.Config{})
	for _, o := range []Options{{Snap: -1}, {Slots: 3}, {Slots: -8}, {Slots: 1 << 21}} {
		if _, err := a.Start(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	closeBoth(t, a, b)
}

// TestThreads captures two queues with workers of their own while a third goroutine drains; it is for the race detector too.
func TestThreads(t *testing.T) {
	a, b, _ := link(t, memlink.Config{Queues: 2})
	c, err := a.Start(Options{Slots: 64, Snap: 32})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20000
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			q, peer := a.Queue(i), b.Queue(i)
			var rx [32]*pmd.Buf
			for sent := 0; sent < n; {
				tx := frames(t, q, sent, 8, 60)
				k, _ := q.Poll(tx, nil)
				sent += k
				pmd.FreeAll(tx[k:])
				_, k = peer.Poll(nil, rx[:])
				pmd.FreeAll(rx[:k])
			}
		})
	}
	var done atomic.Bool
	captured := make(chan int)
	go func() {
		w, _ := pcap.NewWriter(io.Discard, pcap.WriterConfig{})
		total := 0
		for last := false; !last; {
			last = done.Load()
			k, err := c.Drain(w, 0)
			if err != nil {
				t.Error(err)
			}
			total += k
		}
		captured <- total
	}()
	wg.Wait()
	c.Stop()
	done.Store(true)
	sent := a.Stats().TxFrames
	if got := <-captured; uint64(got)+c.Dropped() != sent {
		t.Errorf("%d captured and %d dropped of %d", got, c.Dropped(), sent)
	}
	closeBoth(t, a, b)
}

func BenchmarkPoll(b *testing.B) {
	for _, on := range []bool{false, true} {
		name := map[bool]string{false: "off", true: "on"}[on]
		b.Run(name, func(b *testing.B) {
			p, q, _ := link(b, memlink.Config{})
			w, _ := pcap.NewWriter(io.Discard, pcap.WriterConfig{})
			var c *Capture
			if on {
				c, _ = p.Start(Options{Snap: 96})
			}
			tx := frames(b, p.Queue(0), 0, 32, 1514)
			rx := make([]*pmd.Buf, 32)
			for n := 0; n < b.N; n += 32 {
				p.Queue(0).Poll(tx, nil)
				q.Queue(0).Poll(nil, rx)
				tx, rx = rx, tx
				if on {
					_, _ = c.Drain(w, 0)
				}
			}
			b.StopTimer()
			pmd.FreeAll(tx)
			closeBoth(b, p, q)
		})
	}
}
