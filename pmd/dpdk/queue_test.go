//go:build dpdk

package dpdk

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/yerden/go-dpdk/lcore"
)

// TestForeignPool sends a frame from memory that DPDK does not know.
func TestForeignPool(t *testing.T) {
	p := open(t, Config{Vdev: "net_ring0"})
	pool, err := pmd.NewPool("foreign", 4, 2048)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Unmap()
	b := pool.Get()
	frame := bytes.Repeat([]byte("abcdefgh"), 50)
	b.Append(frame)
	q := p.Queue(0)
	if n, _ := q.Poll([]*pmd.Buf{b}, nil); n != 1 {
		t.Fatal("Poll did not take the frame")
	}
	if err := pool.CheckLeaks(); err != nil || pool.Free() != 4 {
		t.Errorf("%d of 4 buffers are back, %v", pool.Free(), err)
	}
	rx := make([]*pmd.Buf, 4)
	if _, n := q.Poll(nil, rx); n != 1 || !bytes.Equal(rx[0].Bytes(), frame) || rx[0].Pool() != q.Pool() {
		t.Fatalf("%d frames arrived", n)
	}
	q.Pool().Put(rx[0])
}

// TestUnsendable wants frames that the port cannot send to be counted and freed, and the good ones among them sent.
func TestUnsendable(t *testing.T) {
	p := open(t, Config{Vdev: "net_ring0", BufSize: 4096})
	q := p.Queue(0)
	frame := func(n int, f func(*pmd.Buf)) *pmd.Buf {
		b := q.Pool().Get()
		b.SetLen(n)
		if f != nil {
			f(b)
		}
		return b
	}
	tx := []*pmd.Buf{
		frame(0, nil), frame(13, nil), frame(14, nil),
		frame(1500+18, nil), frame(1500+19, nil),
		frame(100, func(b *pmd.Buf) { b.Flags = pmd.TxTCPCsum }),
		frame(100, func(b *pmd.Buf) { b.SegSize = 50 }),
		frame(60, nil),
	}
	if n, _ := q.Poll(tx, nil); n != len(tx) {
		t.Fatalf("Poll took %d of %d", n, len(tx))
	}
	rx := make([]*pmd.Buf, 8)
	_, n := q.Poll(nil, rx)
	var sizes []int
	for _, b := range rx[:n] {
		sizes = append(sizes, b.Len())
		q.Pool().Put(b)
	}
	if len(sizes) != 3 || sizes[0] != 14 || sizes[1] != 1518 || sizes[2] != 60 {
		t.Errorf("frames of %v bytes arrived", sizes)
	}
	if s := p.Stats(); s.TxErrors != 5 || s.TxFrames != 3 {
		t.Errorf("%+v", s)
	}
	if err := q.Pool().CheckLeaks(); err != nil {
		t.Error(err)
	}
}

// TestSegments wants a frame that takes the receiver more than one buffer to be counted and freed.
func TestSegments(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "vhost.sock")
	back := open(t, Config{Vdev: "net_vhost0,iface=" + sock, MTU: 3000, BufSize: 4096})
	front := open(t, Config{Vdev: "net_virtio_user0,path=" + sock})
	until(t, back.LinkUp)
	send(t, back, make([]byte, 3000), nil)
	send(t, back, make([]byte, 1500), nil)
	receive(t, front, func(b *pmd.Buf) bool {
		if b.Len() != 1500 {
			t.Errorf("a frame of %d bytes arrived", b.Len())
		}
		return true
	})
	if s := front.Stats(); s.RxErrors != 1 || s.RxFrames != 1 {
		t.Errorf("%+v", s)
	}
}

// TestSharing wants buffers to flow to where they are short: to the pool's free list at first, and back to the PMD when the owner
// holds too many free ones.
func TestSharing(t *testing.T) {
	p := open(t, Config{Vdev: "net_null0", Buffers: 1024})
	q := p.Queue(0)
	pool := q.Pool()
	rx := make([]*pmd.Buf, 64)
	var held []*pmd.Buf
	for {
		_, n := q.Poll(nil, rx)
		held = append(held, rx[:n]...)
		if n == 0 {
			break
		}
	}
	if free := pool.Free(); free == 0 || free > 2*pool.High || len(held)+free < 1024-128 {
		t.Fatalf("%d held, %d free of 1024", len(held), free)
	}
	for _, b := range held {
		pool.Put(b)
	}
	for range 20 {
		q.Poll(nil, nil)
	}
	if free := pool.Free(); free > pool.High || free < pool.Low {
		t.Errorf("%d free, want between %d and %d", free, pool.Low, pool.High)
	}
	var out []*pmd.Buf
	for b := pool.Get(); b != nil; b = pool.Get() {
		out = append(out, b)
	}
	q.Poll(nil, nil)
	if free := pool.Free(); free < pool.Low {
		t.Errorf("%d free after a Poll with an empty pool, want %d", free, pool.Low)
	}
	// A mempool that runs dry gets some of what the owner has free, though that is less than High.
	pool.Low, pool.High = 8, 4096
	for _, b := range out {
		pool.Put(b)
	}
	held = held[:0]
	for range 100 {
		_, n := q.Poll(nil, rx)
		held = append(held, rx[:n]...)
	}
	if free := pool.Free(); free > 128 {
		t.Errorf("%d free while reception has no buffer", free)
	}
	for _, b := range held {
		pool.Put(b)
	}
}

// TestPollAllocates covers the PMDs that the conformance suite does not reach.
func TestPollAllocates(t *testing.T) {
	for _, vdev := range []string{"net_null0", "net_ring0"} {
		t.Run(vdev, func(t *testing.T) {
			p := open(t, Config{Vdev: vdev})
			p.Queue(0).Pool().Track(false)
			turn := pollTurn(p, 32)
			if n := testing.AllocsPerRun(1000, turn); n != 0 {
				t.Errorf("a turn allocates %v times", n)
			}
			if s := p.Stats(); s.TxFrames < 32000 || s.RxFrames < 32000 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// pollTurn returns a function that sends n frames and frees what it receives.
func pollTurn(p pmd.Port, n int) func() {
	q := p.Queue(0)
	pool := q.Pool()
	tx, rx := make([]*pmd.Buf, n), make([]*pmd.Buf, n)
	return func() {
		for i := range tx {
			tx[i] = pool.Get()
			tx[i].SetLen(64)
		}
		ntx, nrx := q.Poll(tx, rx)
		for _, b := range tx[ntx:] {
			pool.Put(b)
		}
		for _, b := range rx[:nrx] {
			pool.Put(b)
		}
	}
}

func BenchmarkPoll(b *testing.B) {
	for _, c := range []struct {
		name, vdev string
		frames     int
	}{
		{"null/idle", "net_null0", 0}, {"null/1", "net_null0", 1}, {"null/32", "net_null0", 32}, {"null/64", "net_null0", 64},
		{"ring/1", "net_ring0", 1}, {"ring/32", "net_ring0", 32}, {"ring/64", "net_ring0", 64},
	} {
		b.Run(c.name, func(b *testing.B) {
			turn := pollTurn(open(b, Config{Vdev: c.vdev}), c.frames)
			b.ReportAllocs()
			for b.Loop() {
				turn()
			}
			if c.frames > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.frames), "ns/frame")
			}
		})
	}
}

// BenchmarkAFPacket sends and receives through a veth pair. The call that sends should stay below some 20 µs.
func BenchmarkAFPacket(b *testing.B) {
	v := veth(b)
	from, to := openOn(b, v.A, 0, "", Config{}), openOn(b, v.B, 1, "", Config{})
	qf, qt := from.Queue(0), to.Queue(0)
	const n = 8 // the burst
	tx, rx := make([]*pmd.Buf, n), make([]*pmd.Buf, 64)
	frame := make([]byte, 1514)
	copy(frame, to.Info().MAC)
	for b.Loop() {
		for i := range tx {
			tx[i] = qf.Pool().Get()
			tx[i].Append(frame)
		}
		ntx, _ := qf.Poll(tx, nil)
		for _, f := range tx[ntx:] {
			qf.Pool().Put(f)
		}
		_, nrx := qt.Poll(nil, rx)
		for _, f := range rx[:nrx] {
			qt.Pool().Put(f)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/frame")
	b.ReportMetric(float64(to.Stats().RxFrames)/float64(b.N*n), "arrived")
}

// TestThreads polls one queue from several threads, one after the other: none of them is EAL's.
func TestThreads(t *testing.T) {
	p := open(t, Config{Vdev: "net_ring0"})
	threads := make([]lcore.Thread, 3)
	for i := range threads {
		threads[i] = lcore.NewLockedThread(make(chan func()))
		defer threads[i].Close()
	}
	turn := pollTurn(p, 32)
	for i := range 3000 {
		threads[i%len(threads)].Exec(true, turn)
	}
	if s := p.Stats(); s.TxFrames != 3000*32 || s.RxFrames != s.TxFrames {
		t.Errorf("%+v", s)
	}
}
