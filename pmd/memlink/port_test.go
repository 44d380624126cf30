package memlink

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"golang.org/x/sys/unix"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	now := func() plugins.Time { return 0 }
	for _, tc := range []struct {
		want string
		c    Config
	}{
		{"MTU:", Config{MTU: 40}},
		{"MTU:", Config{MTU: 70000}},
		{"Queues:", Config{Queues: -1}},
		{"Ring:", Config{Ring: 1000}},
		{"Bufs:", Config{Bufs: -5}},
		{"BufSize:", Config{BufSize: 512}},
		{"A.MAC:", Config{A: End{MAC: []byte{1, 2}}}},
		{"B.MAC:", Config{B: End{MAC: []byte{1, 2}}}},
		{"RSSTable:", Config{RSSKey: make([]byte, 40), Steer: steer(1)}},
		{"RSSKey:", Config{RSSKey: make([]byte, 40), RSSTable: []uint16{0}}},
		{"RSSKey:", Config{RSSKey: make([]byte, 4), RSSTable: []uint16{0}, Steer: steer(1)}},
		{"RSSTable[1]:", Config{RSSKey: make([]byte, 40), RSSTable: []uint16{0, 1}, Steer: steer(1)}},
		{"Now:", Config{Virtual: true}},
		{"Now:", Config{AtoB: Path{Delay: 1}}},
		{"AtoB.Rate:", Config{AtoB: Path{Rate: 1 << 62}, Now: now}},
		{"AtoB.Overhead:", Config{AtoB: Path{Overhead: -1}}},
		{"BtoA.QueueBytes:", Config{BtoA: Path{Rate: 1, QueueBytes: -1}, Now: now}},
		{"BtoA.QueueFrames: without Rate", Config{BtoA: Path{QueueFrames: 1}}},
		{"BtoA.MarkBytes:", Config{BtoA: Path{MarkBytes: 1}}},
		{"BtoA.MarkFrames:", Config{BtoA: Path{MarkFrames: 1}}},
		{"AtoB.Delay:", Config{AtoB: Path{Delay: -1}, Now: now}},
		{"AtoB.Jitter:", Config{AtoB: Path{Delay: 1, Jitter: 2}, Now: now}},
		{"AtoB.ReorderDelay:", Config{AtoB: Path{Reorder: 1}, Now: now}},
		{"AtoB.Reorder:", Config{AtoB: Path{Reorder: 1_000_000_001, ReorderDelay: 1}, Now: now}},
		{"AtoB.CorruptBits:", Config{AtoB: Path{CorruptBits: 16}}},
		{"AtoB.CorruptFrom:", Config{AtoB: Path{CorruptFrom: -1}}},
		{"AtoB.Corrupt:", Config{AtoB: Path{Corrupt: Always + 1}}},
		{"AtoB.Duplicate:", Config{AtoB: Path{Duplicate: Always + 1}}},
		{"AtoB.Loss.Random:", Config{AtoB: Path{Loss: Loss{Random: Always + 1}}}},
		{"AtoB.Loss.Frames[1]:", Config{AtoB: Path{Loss: Loss{Frames: []uint64{4, 0}}}}},
		{"AtoB.Loss.BurstLen:", Config{AtoB: Path{Loss: Loss{Burst: 1}}}},
		{"AtoB.Loss.Burst:", Config{AtoB: Path{Loss: Loss{Burst: Always + 1, BurstLen: 1}}}},
		{"AtoB.Loss.Gilbert.ToBad:", Config{AtoB: Path{Loss: Loss{Gilbert: Gilbert{ToBad: Always + 1}}}}},
	} {
		_, _, err := New(tc.c)
		if err == nil || !strings.Contains(err.Error(), "memlink: "+tc.want) {
			t.Errorf("want an error on %q, got: %v", tc.want, err)
		}
	}
	_, _, err := New(Config{MTU: 1, Ring: 3})
	if err == nil || !strings.Contains(err.Error(), "MTU:") || !strings.Contains(err.Error(), "Ring:") {
		t.Errorf("want both errors at once, got: %v", err)
	}
}

func TestPathSizesThePool(t *testing.T) {
	// 1 Gbit/s × 150 ms are 18.75 MB, 12385 frames of 1514 bytes.
	a, b := must(t, Config{AtoB: Path{Rate: 1e9, Delay: 150 * time.Millisecond}, Now: func() plugins.Time { return 0 }})
	if n := a.Queue(0).Pool().Len(); n < 4096+12385 || n > maxBufs {
		t.Errorf("%d buffers for a path that holds 12385 frames", n)
	}
	closeBoth(t, a, b)
}

func TestOversizedFrameIsAnError(t *testing.T) {
	for _, c := range []Config{{}, {AtoB: Path{Loss: Loss{Frames: []uint64{99}}}}, {Queues: 2, Steer: steer(2)}} {
		a, b := must(t, c)
		tx := make([]*pmd.Buf, 3)
		take(a.Queue(0).Pool(), tx, 1518)
		tx[1].SetLen(1519)
		if n, _ := a.Queue(0).Poll(tx, nil); n != 3 {
			t.Errorf("%d of 3 frames taken", n)
		}
		var rx [4]*pmd.Buf
		got := 0
		for q := range b.NumQueues() {
			_, n := b.Queue(q).Poll(nil, rx[:])
			pmd.FreeAll(rx[:n])
			got += n
		}
		if s := a.Stats(); got != 2 || s.TxErrors != 1 || s.TxFrames != 2 || s.TxBytes != 2*1518 {
			t.Errorf("%d frames arrived, stats %+v", got, s)
		}
		closeBoth(t, a, b)
	}
}

func TestClose(t *testing.T) {
	for _, p := range []Path{{}, {Delay: time.Second}} {
		v := &virtual{}
		a, b := must(t, Config{AtoB: p, Now: v.read, Virtual: true})
		tx := make([]*pmd.Buf, 10)
		take(a.Queue(0).Pool(), tx, 60)
		a.Queue(0).Poll(tx[:5], nil)
		if !a.LinkUp() || !b.LinkUp() {
			t.Error("the link is not up")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if a.LinkUp() {
			t.Error("the link is up though the peer is closed")
		}
		// What is sent now is lost, and freed; what was sent before is freed by the second Close.
		if n, _ := a.Queue(0).Poll(tx[5:], nil); n != 5 || a.Stats().TxErrors != 5 {
			t.Errorf("%d of 5 frames taken, stats %+v", n, a.Stats())
		}
		if err := b.Close(); !errors.Is(err, pmd.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if ntx, nrx := a.Queue(0).Poll(nil, tx); ntx+nrx != 0 {
			t.Error("a closed port yields frames")
		}
	}
}

func TestLeakNamesTheReceiver(t *testing.T) {
	a, b := must(t, Config{})
	var tx, rx [1]*pmd.Buf
	a.Queue(0).Pool().Track(true)
	take(a.Queue(0).Pool(), tx[:], 60)
	a.Queue(0).Poll(tx[:], nil)
	receiveAndForget(b, rx[:])
	err := errors.Join(a.Close(), b.Close())
	pmd.Forgive(err)
	if err == nil || !strings.Contains(err.Error(), "receiveAndForget") || !strings.Contains(err.Error(), "pool memlink:a.0: 1 buffers") {
		t.Errorf("want the receiver's name, got: %v", err)
	}
}

//go:noinline
func receiveAndForget(b *Port, rx []*pmd.Buf) int { _, n := b.Queue(0).Poll(nil, rx); return n }

// TestLine compares the line with a sorted slice, whether or not what it is told of later frames is true.
func TestLine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var l line
		var model []entry
		spread := int64(1 + r.IntN(1000))
		for range 3000 {
			if r.IntN(5) < 3 {
				at := plugins.Time(r.Int64N(spread))
				b := new(pmd.Buf)
				model = append(model, entry{at, l.seq, b})
				l.push(at, at-50+plugins.Time(r.Int64N(60)), b)
				slices.SortStableFunc(model, func(x, y entry) int { return int(x.at - y.at) })
			} else if len(model) > 0 {
				if l.next() != model[0].at {
					t.Fatalf("next is %d, want %d", l.next(), model[0].at)
				}
				if l.pop() != model[0].buf {
					t.Fatal("another frame than the earliest")
				}
				model = model[1:]
			}
			if l.len() != len(model) {
				t.Fatalf("length %d, want %d", l.len(), len(model))
			}
		}
	}
}

// Jitter puts no more into the heap than what it reorders, however many frames are on their way.
func TestLineJitter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var l line
	const jitter = 200
	for now := plugins.Time(0); now < 100_000; now++ {
		late := plugins.Time(0)
		if now%1000 == 0 {
			late = 5000 // Reorder
		}
		l.push(now+plugins.Time(r.Int64N(2*jitter+1))+late, now, new(pmd.Buf))
		if len(l.heap) > 2*jitter+100 {
			t.Fatalf("%d of %d frames are in the heap", len(l.heap), l.len())
		}
	}
}

// TestThreads runs both ends on goroutines of their own, in both directions, with parking. It is for the race detector too.
func TestThreads(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    Config
	}{
		{"clean", Config{Ring: 64, Bufs: 512}},
		{"steered", Config{Ring: 64, Bufs: 512, Queues: 2, Steer: steer(2)}},
		{"path", Config{Ring: 64, Bufs: 512, AtoB: Path{Delay: 50 * time.Microsecond, Jitter: 20 * time.Microsecond}, BtoA: Path{Duplicate: Percent}, Now: monotonic}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := must(t, tc.c)
			const frames = 20000
			var wg sync.WaitGroup
			var senders atomic.Int32
			senders.Store(int32(2 * a.NumQueues()))
			for _, p := range []*Port{a, b} {
				for i := range p.NumQueues() {
					wg.Go(func() { exchange(t, p, i, frames, &senders) })
				}
			}
			wg.Wait()
			for _, p := range []*Port{a, b} {
				s, sent := p.Stats(), p.peer.Stats().TxFrames+p.peer.Counters().Duplicated
				if want := uint64(frames * p.NumQueues()); s.TxFrames != want || s.RxFrames != sent {
					t.Errorf("port %s: %d frames sent, want %d; received %d of %d", p.end.Name, s.TxFrames, want, s.RxFrames, sent)
				}
			}
			closeBoth(t, a, b)
		})
	}
}

// exchange sends frames on queue i, and receives until no queue sends any more and nothing is on its way.
func exchange(t *testing.T, p *Port, i, frames int, senders *atomic.Int32) {
	q := p.Queue(i)
	var rx [32]*pmd.Buf
	var tx []*pmd.Buf
	sent := 0
	for sent < frames || senders.Load() > 0 || p.NextRelease() != plugins.Never {
		for len(tx) < 16 && sent+len(tx) < frames {
			b := q.Pool().Get()
			if b == nil {
				break
			}
			b.SetLen(60 + sent%100)
			for k := range b.Bytes() {
				b.Bytes()[k] = byte(sent + k)
			}
			tx = append(tx, b)
		}
		ntx, nrx := q.Poll(tx, rx[:])
		if sent += ntx; ntx > 0 && sent == frames {
			senders.Add(-1)
		}
		tx = slices.Delete(tx, 0, ntx)
		for _, b := range rx[:nrx] {
			f := b.Bytes()
			for k := range f {
				if f[k] != f[0]+byte(k) {
					t.Errorf("byte %d changed", k)
				}
			}
			b.Free()
		}
		if ntx+nrx == 0 {
			park(q.(pmd.Parker))
		}
	}
}

// park waits for a frame, or for 10 ms because the end comes without one.
func park(q pmd.Parker) {
	if q.Park() {
		fds := []unix.PollFd{{Fd: int32(q.WakeFD()), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 10)
	}
	q.Unpark()
}
