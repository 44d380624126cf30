package memlink

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// TestExtra: frames with a delay of their own, within the bound, come behind later ones without.
func TestExtra(t *testing.T) {
	now := plugins.Time(1)
	a, b, err := New(Config{
		Virtual: true, Now: func() plugins.Time { return now }, AtoB: Path{Delay: time.Millisecond}, ExtraMost: 5 * time.Millisecond,
		Extra: func(frame []byte) time.Duration { return time.Duration(frame[20]) * time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	q := a.Queue(0)
	var tx [3]*pmd.Buf
	for i, ms := range []byte{4, 0, 9} {
		frame := make([]byte, 100)
		frame[20] = ms
		tx[i] = q.Pool().Get()
		tx[i].Append(frame)
	}
	q.Poll(tx[:], nil)
	var got []byte
	var rx [4]*pmd.Buf
	for _, at := range []time.Duration{1, 5, 6} { // milliseconds
		if next := b.NextRelease(); next != plugins.Time(1).Add(at*time.Millisecond) {
			t.Errorf("the next frame comes at %v, not after %v ms", next, at)
		}
		now = plugins.Time(1).Add(at * time.Millisecond)
		_, n := b.Queue(0).Poll(nil, rx[:])
		for _, f := range rx[:n] {
			got = append(got, f.Bytes()[20])
			f.Free()
		}
	}
	if string(got) != "\x00\x04\x09" {
		t.Errorf("frames came as %v", got)
	}
	for _, p := range []*Port{a, b} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

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
