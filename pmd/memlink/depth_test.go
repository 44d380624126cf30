package memlink

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// TestQueuedAndDropped: the queue's depth at any time, and each frame that is dropped, once.
func TestQueuedAndDropped(t *testing.T) {
	now := plugins.Time(1)
	var seen [2]int
	a, b, err := New(Config{
		Virtual: true, Now: func() plugins.Time { return now },
		// 1000-byte frames at 8 Mbit/s: one per millisecond; the first is lost, of the others three fit.
		AtoB: Path{Rate: 8e6, QueueFrames: 3, Loss: Loss{Frames: []uint64{1}}},
		Dropped: func(fromA bool, frame []byte) {
			if len(frame) != 1000 {
				t.Errorf("a frame of %d bytes", len(frame))
			}
			if fromA {
				seen[0]++
			} else {
				seen[1]++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	q := a.Queue(0)
	var tx [6]*pmd.Buf
	for i := range tx {
		tx[i] = q.Pool().Get()
		if !tx[i].Append(make([]byte, 1000)) {
			t.Fatal("no room")
		}
	}
	if n, _ := q.Poll(tx[:], nil); n != len(tx) {
		t.Fatalf("%d sent", n)
	}
	if seen != [2]int{3, 0} { // the first, and the fifth and sixth
		t.Errorf("dropped: %v", seen)
	}
	for _, c := range []struct {
		after  time.Duration
		frames int
	}{{0, 3}, {999 * time.Microsecond, 3}, {time.Millisecond, 2}, {2500 * time.Microsecond, 1}, {3 * time.Millisecond, 0}} {
		if frames, bytes := a.Queued(plugins.Time(1).Add(c.after)); frames != c.frames || bytes != c.frames*1000 {
			t.Errorf("after %v: %d frames, %d bytes", c.after, frames, bytes)
		}
	}
	if frames, bytes := b.Queued(now); frames != 0 || bytes != 0 {
		t.Errorf("the clean direction: %d frames, %d bytes", frames, bytes)
	}
	for _, p := range []*Port{a, b} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
