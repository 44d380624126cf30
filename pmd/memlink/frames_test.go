package memlink

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

func checksum(p []byte) uint16 {
	var sum uint32
	for ; len(p) > 1; p = p[2:] {
		sum += uint32(binary.BigEndian.Uint16(p))
	}
	if len(p) == 1 {
		sum += uint32(p[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

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

func ipv4(ecn byte, vlan bool) []byte {
	f := make([]byte, 12, 100)
	if vlan {
		f = append(f, 0x81, 0x00, 0, 5)
	}
	f = append(f, 0x08, 0x00)
	ip := make([]byte, 40)
	ip[0], ip[1], ip[8], ip[9] = 0x45, 0x28|ecn, 64, 6
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:20]))
	return append(f, ip...)
}

func ipv6(ecn byte) []byte {
	f := append(make([]byte, 12, 100), 0x86, 0xdd)
	ip := make([]byte, 60)
	ip[0], ip[1] = 0x6a, 0x80|ecn<<4
	return append(f, ip...)
}

func TestMarkCE(t *testing.T) {
	for _, vlan := range []bool{false, true} {
		for ecn := range byte(4) {
			f := ipv4(ecn, vlan)
			marked := markCE(f)
			ip := f[len(f)-40:]
			want := ecn
			if ecn == 1 || ecn == 2 {
				want = 3
			}
			if marked != (want != ecn) || ip[1] != 0x28|want || checksum(ip[:20]) != 0 {
				t.Errorf("ECN %d, VLAN %v: marked %v, TOS %#x, checksum %#x", ecn, vlan, marked, ip[1], checksum(ip[:20]))
			}
		}
	}
	for ecn := range byte(4) {
		f := ipv6(ecn)
		want := ecn
		if ecn == 1 || ecn == 2 {
			want = 3
		}
		if marked := markCE(f); marked != (want != ecn) || f[15] != 0x80|want<<4 || f[14] != 0x6a {
			t.Errorf("IPv6, ECN %d: marked %v, header % x", ecn, marked, f[14:18])
		}
	}
}

func FuzzMarkCE(f *testing.F) {
	f.Add(ipv4(1, false))
	f.Add(ipv4(2, true))
	f.Add(ipv6(1))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		old := bytes.Clone(p)
		if !markCE(p) {
			if !bytes.Equal(p, old) {
				t.Error("changed without a mark")
			}
			return
		}
		if markCE(p) {
			t.Error("marked twice")
		}
	})
}

func TestMarking(t *testing.T) {
	for _, p := range []Path{{Rate: 1e9, MarkFrames: 3}, {Rate: 1e9, MarkBytes: 54 * 3}} {
		d := newBed(t, p, nil)
		var marks []bool
		d.raw = func(f []byte) { marks = append(marks, f[15]&3 == 3) }
		for i := range 6 {
			b := d.a.Queue(0).Pool().Get()
			b.Append(ipv4(byte(1+i/5), false))
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
