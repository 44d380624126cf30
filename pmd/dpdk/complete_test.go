//go:build dpdk

package dpdk

import (
	"bytes"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// TestCompletions has a PMD whose frames come back only when the receiver frees them, as from a network card that has sent them, call back:
// until then they are not complete, and afterwards their buffers are what they were.
func TestCompletions(t *testing.T) {
	p := open(t, Config{Vdev: "net_ring0", Buffers: 2048})
	q := p.Queue(0).(*Queue)
	if q.Uncompleted() != 0 || q.c.tells != 0 {
		t.Fatal("net_ring cannot be asked for what it has sent")
	}
	q.c.tells = 1 // so that it is the receiver's doing alone
	rx := make([]*pmd.Buf, 64)
	frame := bytes.Repeat([]byte("0123456789"), 100)
	for round := range 1000 {
		var tx []*pmd.Buf
		for range 3 {
			b := q.Pool().Get()
			if !b.Append(frame) || b.Off() != pmd.Headroom || b.Cap() < 2048 {
				t.Fatalf("round %d: a buffer with %d bytes of room at %d", round, b.Cap(), b.Off())
			}
			tx = append(tx, b)
		}
		if n, _ := q.Poll(tx, nil); n != 3 || q.Uncompleted() != 3 {
			t.Fatalf("round %d: %d frames taken, %d not complete", round, n, q.Uncompleted())
		}
		// The marked one is no buffer of ours while it is on its way, so that reception drops it.
		_, n := q.Poll(nil, rx)
		for _, b := range rx[:n] {
			if !bytes.Equal(b.Bytes(), frame) {
				t.Fatalf("round %d: a frame changed", round)
			}
			q.Pool().Put(b)
		}
		if n != 2 || q.Uncompleted() != 0 {
			t.Fatalf("round %d: %d frames arrived, %d are not complete", round, n, q.Uncompleted())
		}
	}
	// A single frame after a mark goes without; the next takes it along.
	for i, want := range []int{1, 2, 0} {
		var tx []*pmd.Buf
		if i < 2 {
			b := q.Pool().Get()
			b.Append(frame)
			tx = append(tx, b)
		}
		_, n := q.Poll(tx, nil)
		if n != 0 || i < 2 && q.Uncompleted() != want {
			t.Errorf("%d frames are not complete, want %d", q.Uncompleted(), want)
		}
	}
	_, n := q.Poll(nil, rx)
	for _, b := range rx[:n] {
		q.Pool().Put(b)
	}
	if q.Uncompleted() != 0 {
		t.Errorf("%d frames are not complete", q.Uncompleted())
	}
	if err := q.Pool().CheckLeaks(); err != nil {
		t.Error(err)
	}
}
