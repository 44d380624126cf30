//go:build dpdk

package dpdk

import (
	"bytes"
	"os"
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
	// A single frame is marked, too: perhaps nothing follows that could speak for it.
	for i := range 2 {
		b := q.Pool().Get()
		b.Append(frame)
		if q.Poll([]*pmd.Buf{b}, nil); q.Uncompleted() != i+1 {
			t.Errorf("%d frames are not complete, want %d", q.Uncompleted(), i+1)
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

// TestVirtioCompletions has the other end of a virtio ring take frames late: until then they are not complete, and afterwards they are, though
// nothing more is sent; on each kind of ring, and whether the ring is full or not.
func TestVirtioCompletions(t *testing.T) {
	for _, ring := range rings {
		t.Run(ring.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "fastpath-virtio-") // t.TempDir has a comma in it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			back := open(t, Config{Vdev: "net_vhost0,iface=" + dir + "/ring", Buffers: 2048})
			front := open(t, Config{Vdev: "net_virtio_user0,path=" + dir + "/ring" + ring.args, Ring: 256, Buffers: 2048})
			until(t, back.LinkUp)
			q, far := front.Queue(0).(*Queue), back.Queue(0)
			frame := bytes.Repeat([]byte("0123456789"), 100)
			rx := make([]*pmd.Buf, 64)
			for round := range 300 {
				sent := 0
				for n := []int{1, 2, 3, 40, 1000}[round%5]; sent < n; { // the last is more than fit
					var tx []*pmd.Buf
					for range min(q.TxRoom(), n-sent) {
						b := q.Pool().Get()
						if b == nil {
							break
						}
						if !b.Append(frame) {
							t.Fatalf("round %d: a buffer without room", round)
						}
						tx = append(tx, b)
					}
					k, _ := q.Poll(tx, nil)
					for _, b := range tx[k:] {
						q.Pool().Put(b)
					}
					if sent += k; k == 0 {
						break
					}
				}
				q.Poll(nil, nil)
				if q.Uncompleted() != sent {
					t.Fatalf("round %d: %d of %d frames are not complete, and the other end has taken none", round, q.Uncompleted(), sent)
				}
				for got := 0; got < sent; {
					q.Poll(nil, nil) // what the ring had no room for
					_, n := far.Poll(nil, rx)
					for _, b := range rx[:n] {
						if !bytes.Equal(b.Bytes(), frame) {
							t.Fatalf("round %d: a frame changed", round)
						}
						far.Pool().Put(b)
					}
					if got += n; n == 0 && q.Uncompleted() == 0 {
						t.Fatalf("round %d: %d of %d frames arrived", round, got, sent)
					}
				}
				if q.Poll(nil, nil); q.Uncompleted() != 0 {
					t.Fatalf("round %d: %d frames are not complete, and the other end has taken all", round, q.Uncompleted())
				}
			}
		})
	}
}
