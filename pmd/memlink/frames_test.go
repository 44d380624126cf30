package memlink

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

func TestCorrupt(t *testing.T) {
	d := newBed(t, Path{Corrupt: 10 * Percent, CorruptFrom: 20}, nil)
	bad := 0
	d.raw = func(f []byte) {
		n := 0
		for i, b := range f[:len(f)-4] {
			n += bits.OnesCount8(b)
			if b != 0 && i < 20 {
				t.Errorf("byte %d changed", i)
			}
		}
		bad += n
	}
	for n := range 1000 {
		d.send(n, 1000)
		d.receive()
	}
	c := d.a.Counters()
	// A flip within the four bytes of the number is not seen by this count.
	if c.Corrupted < 60 || c.Corrupted > 140 || bad > int(c.Corrupted) || bad < int(c.Corrupted)-5 {
		t.Errorf("%d frames corrupted (want about 100), %d bits changed", c.Corrupted, bad)
	}
}

func TestDuplicate(t *testing.T) {
	d := newBed(t, Path{Duplicate: 20 * Percent, Loss: Loss{Frames: []uint64{1}}}, nil)
	for n := range 1000 {
		d.send(n, 100)
		d.receive()
	}
	got := numbers(d.finish())
	c := d.a.Counters()
	if !slices.IsSorted(got) || len(got) != 999+int(c.Duplicated) || c.Duplicated < 150 || c.Duplicated > 250 {
		t.Errorf("%d frames arrived, %d duplicated, want about 200", len(got), c.Duplicated)
	}
	if twice := len(got) - len(slices.Compact(got)); twice != int(c.Duplicated) {
		t.Errorf("%d frames arrived twice, %d duplicated", twice, c.Duplicated)
	}
}

func TestDuplicateWithoutBuffers(t *testing.T) {
	d := newBed(t, Path{Duplicate: Always}, func(c *Config) { c.Bufs = 3 })
	pool := d.a.Queue(0).Pool()
	held := pool.Get()
	d.send(0, 60) // and its twin: the pool is empty
	pool.Put(held)
	d.send(1, 60)
	d.receive()
	if got := numbers(d.got); !slices.Equal(got, []int{0, 0, 1}) {
		t.Errorf("frames %v arrived, want 0, 0, 1", got)
	}
	if c := d.a.Counters(); c.Duplicated != 1 || c.Uncopied != 1 {
		t.Errorf("counters %+v", c)
	}
}

func TestMarking(t *testing.T) {
	for _, p := range []Path{{Rate: 1e9, MarkFrames: 3}, {Rate: 1e9, MarkBytes: 54 * 3}} {
		d := newBed(t, p, nil)
		var marks []bool
		d.raw = func(f []byte) { marks = append(marks, f[15]&3 == 3) }
		for i := range 6 {
			b := d.a.Queue(0).Pool().Get()
			b.Append(append([]byte{12: 8, 14: 0x45, 15: byte(1 + i/5)}, make([]byte, 38)...))
			d.sendBuf(b)
		}
		d.finish()
		if want := []bool{false, false, false, true, true, true}; !slices.Equal(marks, want) {
			t.Errorf("marks %v, want %v", marks, want)
		}
		if c := d.a.Counters(); c.Marked != 3 || c.QueueDrops != 0 {
			t.Errorf("counters %+v", c)
		}
	}
}

// TestPeerSeesOnlyTheFrame wants what a sender asked of its port not to reach the receiver.
func TestPeerSeesOnlyTheFrame(t *testing.T) {
	for _, p := range []Path{{}, {Loss: Loss{Frames: []uint64{9}}}} {
		a, b := must(t, Config{AtoB: p})
		f := a.Queue(0).Pool().Get()
		f.SetLen(60)
		f.Flags, f.SegSize, f.L2Len, f.L3Len, f.L4Len, f.Hash = pmd.TxIPCsum|pmd.RxCsumGood, 1448, 14, 20, 20, 7
		f.Next = f
		a.Queue(0).Poll([]*pmd.Buf{f}, nil)
		var rx [1]*pmd.Buf
		if _, n := b.Queue(0).Poll(nil, rx[:]); n != 1 {
			t.Fatal("not received")
		}
		if g := rx[0]; g.Flags != 0 || g.SegSize != 0 || g.L2Len+g.L3Len+g.L4Len != 0 || g.Hash != 0 || g.Next != nil {
			t.Errorf("received %+v", g)
		}
		rx[0].Free()
		closeBoth(t, a, b)
	}
}
