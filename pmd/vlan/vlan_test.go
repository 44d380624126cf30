package vlan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/fault"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

func link(t testing.TB, c memlink.Config, ids ...uint16) (a, b []*Port) {
	t.Helper()
	pa, pb, err := memlink.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return split(t, pa, ids...), split(t, pb, ids...)
}

func split(t testing.TB, p pmd.Port, ids ...uint16) []*Port {
	t.Helper()
	var cs []Config
	for _, id := range ids {
		cs = append(cs, Config{ID: id})
	}
	ps, err := New(p, cs)
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// TestConformance: a VLAN is a port like any other, tagged or native, with one queue or two, and over a port that takes less than it is
// offered.
func TestConformance(t *testing.T) {
	for _, id := range []uint16{Untagged, 1, MaxID} {
		for name, c := range map[string]memlink.Config{"one queue": {Ring: 256, Bufs: 1024}, "two queues": {Queues: 2, Ring: 256, Bufs: 1024},
			"tso": {Ring: 256, Bufs: 1024, TSO: 65000}} {
			t.Run(fmt.Sprint(id, " ", name), func(t *testing.T) {
				pmdtest.Run(t, func(t *testing.T) (pmd.Port, pmd.Port) {
					a, b := link(t, c, id)
					return a[0], b[0]
				}, pmdtest.Options{TxRing: 256})
			})
		}
	}
	t.Run("short", func(t *testing.T) {
		pmdtest.Run(t, func(t *testing.T) (pmd.Port, pmd.Port) {
			pa, pb, err := memlink.New(memlink.Config{Ring: 256, Bufs: 1024})
			if err != nil {
				t.Fatal(err)
			}
			var ports [2]pmd.Port
			for i, p := range []pmd.Port{pa, pb} {
				f, err := fault.New(p, fault.Config{Seed: 1, ShortTx: fault.Percent * 50})
				if err != nil {
					t.Fatal(err)
				}
				ports[i] = split(t, f, 7)[0]
			}
			return ports[0], ports[1]
		}, pmdtest.Options{})
	})
}

func frame(q pmd.Queue, etherType uint16, payload ...byte) *pmd.Buf {
	b := q.Pool().Get()
	b.SetLen(60)
	f := b.Bytes()
	clear(f)
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(f[12:], etherType)
	copy(f[14:], payload)
	return b
}

func closeAll(t *testing.T, ports ...[]*Port) {
	t.Helper()
	for _, ps := range ports {
		for _, p := range ps {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if err := p.Close(); !errors.Is(err, pmd.ErrClosed) {
				t.Errorf("closed twice: %v", err)
			}
		}
	}
}

// TestSplit: each port receives its own frames, whichever is polled, and what goes over the wire is tagged.
func TestSplit(t *testing.T) {
	pa, raw, err := memlink.New(memlink.Config{Ring: 256, Bufs: 1024})
	if err != nil {
		t.Fatal(err)
	}
	a := split(t, pa, Untagged, 100, 200)
	out, rx := raw.Queue(0), make([]*pmd.Buf, 64)
	send := func(etherType uint16, payload ...byte) {
		if n, _ := out.Poll([]*pmd.Buf{frame(out, etherType, payload...)}, nil); n != 1 {
			t.Fatal("not sent")
		}
	}
	for _, f := range [][]byte{{0x08, 0, 0xa0}, {0x81, 0, 0, 100, 0x08, 0, 0xb0}, {0x81, 0, 0xe0, 200, 0x08, 0, 0xc0}, {0x81, 0, 0xe0, 0, 0x08, 0, 0xd0},
		{0x81, 0, 0, 101, 0x08, 0, 0xe0}, {0x81, 0, 0x0f, 0xff, 0x08, 0, 0xf0}, {0x88, 0xa8, 0, 100, 0x81, 0, 0, 100}} {
		send(uint16(f[0])<<8|uint16(f[1]), f[2:]...)
	}
	want := [][][]byte{{{0x08, 0, 0xa0}, {0x08, 0, 0xd0}, {0x88, 0xa8, 0, 100}}, {{0x08, 0, 0xb0}}, {{0x08, 0, 0xc0}}}
	for _, i := range []int{2, 0, 1} {
		_, n := a[i].Queue(0).Poll(nil, rx)
		if n != len(want[i]) {
			t.Fatalf("%d frames for port %d, want %d", n, i, len(want[i]))
		}
		for j, b := range rx[:n] {
			if !bytes.HasPrefix(b.Bytes()[12:], want[i][j]) || !bytes.HasPrefix(b.Bytes(), []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}) {
				t.Errorf("frame %d for port %d: %x", j, i, b.Bytes()[:20])
			}
			b.Free()
		}
	}
	if n := a[0].Foreign(); n != 2 {
		t.Errorf("%d foreign frames, want 2", n)
	}
	if s := a[0].Stats(); s.RxDropped != 2 || s.RxFrames != 3 {
		t.Errorf("%+v", s)
	}
	for i, tci := range map[int][]byte{0: {0x08, 0, 0xaa}, 1: {0x81, 0, 0, 100, 0x08, 0, 0xaa}, 2: {0x81, 0, 0, 200, 0x08, 0, 0xaa}} {
		q := a[i].Queue(0)
		b := frame(q, 0x0800, 0xaa)
		b.Flags, b.L2Len = pmd.TxIPCsum, 14
		b.Flags = 0
		if n, _ := q.Poll([]*pmd.Buf{b}, nil); n != 1 {
			t.Fatal("not sent")
		}
		_, n := out.Poll(nil, rx)
		if n != 1 || !bytes.HasPrefix(rx[0].Bytes()[12:], tci) {
			t.Errorf("port %d: %d frames, %x", i, n, rx[0].Bytes()[:20])
		}
		rx[0].Free()
		if s := a[i].Stats(); s.TxFrames != 1 || s.TxBytes != 60 {
			t.Errorf("port %d: %+v", i, s)
		}
	}
	if i := a[1].Info(); i.Name != raw.Info().Name[:0]+pa.Info().Name+".100" || i.MTU != 1500 || a[1].ID() != 100 {
		t.Errorf("%+v", i)
	}
	closeAll(t, a)
	if err := raw.Close(); err != nil {
		t.Error(err)
	}
}

// TestWaiting: frames for a port that nobody polls wait, up to a bound; those of a closed one are dropped; nothing leaks.
func TestWaiting(t *testing.T) {
	a, b := link(t, memlink.Config{Ring: 256, Bufs: 2048}, Untagged, 100)
	from, rx := b[1].Queue(0), make([]*pmd.Buf, 64)
	sent := 0
	for range 20 {
		for range 50 {
			if n, _ := from.Poll([]*pmd.Buf{frame(from, 0x0800)}, nil); n == 1 {
				sent++
			}
		}
		if _, n := a[0].Queue(0).Poll(nil, rx); n != 0 {
			t.Fatal("a frame of another VLAN")
		}
	}
	if q := a[1].Queue(0).(pmd.Parker); q.Park() {
		t.Error("a port with frames waiting may sleep")
	} else {
		q.Unpark()
	}
	if s := a[1].Stats(); s.RxFrames != Waiting || s.RxDropped != uint64(sent-Waiting) {
		t.Errorf("%d sent, %+v", sent, s)
	}
	if err := a[1].Close(); err != nil {
		t.Fatal(err)
	}
	from.Poll([]*pmd.Buf{frame(from, 0x0800)}, nil)
	a[0].Queue(0).Poll(nil, rx)
	if s := a[1].Stats(); s.RxDropped != uint64(sent-Waiting)+1 {
		t.Errorf("after closing: %+v", s)
	}
	closeAll(t, a[:1], b)
}

// TestNoHeadroom: a frame that has no room for a tag is lost, not those around it.
func TestNoHeadroom(t *testing.T) {
	a, b := link(t, memlink.Config{Ring: 256, Bufs: 1024}, 100)
	q := a[0].Queue(0)
	tight := frame(q, 0x0800)
	tight.ResetAt(0)
	tight.SetLen(60)
	tx := []*pmd.Buf{frame(q, 0x0800, 1), tight, frame(q, 0x0800, 2)}
	for polls := 0; len(tx) > 0; polls++ {
		n, _ := q.Poll(tx, nil)
		if tx = tx[n:]; polls > 5 {
			t.Fatal("no progress")
		}
	}
	rx := make([]*pmd.Buf, 64)
	_, n := b[0].Queue(0).Poll(nil, rx)
	if n != 2 || rx[0].Bytes()[14] != 1 || rx[1].Bytes()[14] != 2 {
		t.Errorf("%d frames arrived", n)
	}
	for _, b := range rx[:n] {
		b.Free()
	}
	if s := a[0].Stats(); s.TxErrors != 1 || s.TxFrames != 2 {
		t.Errorf("%+v", s)
	}
	closeAll(t, a, b)
}

func TestRefused(t *testing.T) {
	p, other, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cs := range [][]Config{{}, {{ID: 4095}}, {{ID: 1}, {ID: 1}}} {
		if _, err := New(p, cs); err == nil {
			t.Errorf("%v was accepted", cs)
		}
	}
	if err := errors.Join(p.Close(), other.Close()); err != nil {
		t.Error(err)
	}
}
