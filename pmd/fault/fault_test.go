package fault

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

func link(t testing.TB, c Config, l memlink.Config) (*Port, *memlink.Port) {
	t.Helper()
	a, b, err := memlink.New(l)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(a, c)
	if err != nil {
		t.Fatal(err)
	}
	return f, b
}

// TestConformance wants a port without faults, and one that only takes less than it could, to keep the contract.
func TestConformance(t *testing.T) {
	for name, c := range map[string]Config{"none": {}, "short": {Seed: 1, ShortTx: 50 * Percent}} {
		t.Run(name, func(t *testing.T) {
			pmdtest.Run(t, func(t *testing.T) (pmd.Port, pmd.Port) {
				a, b := link(t, c, memlink.Config{Ring: 256, Bufs: 1024, TSO: 65000})
				f, err := New(b, c)
				if err != nil {
					t.Fatal(err)
				}
				return a, f
			}, pmdtest.Options{})
		})
	}
}

// outcome is what came of sending frames.
type outcome struct {
	seen []int // numbers of the frames that arrived
	bad  int   // arrived with bits changed
	c    Counters
}

// run sends n frames through the faulty port, or to it.
func run(t *testing.T, c Config, n int, receive bool) (o outcome) {
	t.Helper()
	f, b := link(t, c, memlink.Config{Ring: 64, Bufs: 256})
	from, to := f.Queue(0), b.Queue(0)
	if receive {
		from, to = to, from
	}
	var tx []*pmd.Buf
	rx := make([]*pmd.Buf, 64)
	for sent := 0; sent < n; {
		for len(tx) < 16 && sent+len(tx) < n {
			b := from.Pool().Get()
			if b == nil {
				break
			}
			b.SetLen(100)
			i := sent + len(tx)
			for j := range b.Bytes() {
				b.Bytes()[j] = byte(i >> (j % 3 * 8))
			}
			tx = append(tx, b)
		}
		k, _ := from.Poll(tx, nil)
		sent += k
		tx = slices.Delete(tx, 0, k)
		_, k = to.Poll(nil, rx)
		for _, b := range rx[:k] {
			p := b.Bytes()
			num := int(p[0]) | int(p[1])<<8 | int(p[2])<<16
			flips := 0
			for j, x := range p {
				flips += bits.OnesCount8(x ^ p[j%3])
			}
			if flips > 15 {
				t.Errorf("frame %d: %d bits changed", num, flips)
			}
			if flips > 0 {
				o.bad++
			}
			o.seen = append(o.seen, num)
			b.Free()
		}
	}
	o.c = f.Counters()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	return o
}

func near(got, want int) bool { d := got - want; return d*d <= 25*want }

func TestFrames(t *testing.T) {
	const n = 20000
	faults := Frames{Loss: 5 * Percent, Duplicate: 3 * Percent, Corrupt: 2 * Percent}
	for _, receive := range []bool{false, true} {
		c := Config{Seed: 3, Tx: faults}
		if receive {
			c = Config{Seed: 3, Rx: faults}
		}
		o := run(t, c, n, receive)
		lost, dup, bad, other := o.c.TxLost, o.c.TxDuplicated, o.c.TxCorrupted, o.c.RxLost+o.c.RxDuplicated+o.c.RxCorrupted
		if receive {
			lost, dup, bad, other = o.c.RxLost, o.c.RxDuplicated, o.c.RxCorrupted, o.c.TxLost+o.c.TxDuplicated+o.c.TxCorrupted
		}
		if !near(int(lost), n/20) || !near(int(dup), n*95/100*3/100) || !near(int(bad), n*95/100*2/100) || other != 0 {
			t.Errorf("receive %v: counters %+v", receive, o.c)
		}
		if len(o.seen) != n-int(lost)+int(dup) || o.bad != int(bad) || !slices.IsSorted(o.seen) {
			t.Errorf("receive %v: %d frames arrived, %d changed; counters %+v", receive, len(o.seen), o.bad, o.c)
		}
		if twice := len(o.seen) - len(slices.Compact(slices.Clone(o.seen))); twice != int(dup) {
			t.Errorf("receive %v: %d frames arrived twice, %d were duplicated", receive, twice, dup)
		}
		again := run(t, c, n, receive)
		if again.c != o.c || !slices.Equal(again.seen, o.seen) {
			t.Errorf("receive %v: the same seed gave another result", receive)
		}
		c.Seed++
		if other := run(t, c, n, receive); slices.Equal(other.seen, o.seen) {
			t.Errorf("receive %v: another seed gave the same result", receive)
		}
	}
}

// checksum is that of an IPv4 header (RFC 1071).
func checksum(header []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum&0xffff)
}

// Of frames with ECT a share is marked, with a checksum that is right, and of others none.
func TestMarks(t *testing.T) {
	const n = 10_000
	header := func(i int) []byte { // of IPv4, behind an Ethernet header: every other one with ECT(0)
		f := append(make([]byte, 12, 34), 8, 0, 0x45, byte(i%2*2), 0, 20, byte(i>>8), byte(i), 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		binary.BigEndian.PutUint16(f[24:], checksum(f[14:]))
		return f
	}
	for _, receive := range []bool{false, true} {
		c := Config{Seed: 3, Tx: Frames{Mark: 2 * Percent}}
		if receive {
			c = Config{Seed: 3, Rx: Frames{Mark: 2 * Percent}}
		}
		f, b := link(t, c, memlink.Config{Ring: 64, Bufs: 256})
		from, to := f.Queue(0), b.Queue(0)
		if receive {
			from, to = to, from
		}
		var rx [8]*pmd.Buf
		marks := 0
		for i := range n {
			one := from.Pool().Get()
			one.Append(header(i))
			from.Poll([]*pmd.Buf{one}, nil)
			if _, k := to.Poll(nil, rx[:]); k != 1 {
				t.Fatalf("%d frames at once", k)
			}
			switch p := rx[0].Bytes(); {
			case p[15]&3 == 3 && i%2 == 1:
				marks++
				fallthrough
			case int(p[15]) == i%2*2:
				if checksum(p[14:34]) != 0 {
					t.Errorf("frame %d has a bad checksum: % x", i, p)
				}
			default:
				t.Errorf("frame %d: % x", i, p)
			}
			rx[0].Free()
		}
		got := f.Counters()
		if !near(marks, n/2*2/100) || int(got.TxMarked+got.RxMarked) != marks || receive != (got.RxMarked > 0) {
			t.Errorf("receive %v: %d marks, counters %+v", receive, marks, got)
		}
		if err := errors.Join(f.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestCertainLoss(t *testing.T) {
	if o := run(t, Config{Tx: Frames{Loss: Always}}, 500, false); len(o.seen) != 0 || o.c.TxLost != 500 {
		t.Errorf("%d frames arrived, counters %+v", len(o.seen), o.c)
	}
}

func TestShortTx(t *testing.T) {
	o := run(t, Config{Seed: 1, ShortTx: Always}, 2000, false)
	if o.c.Shortened == 0 || len(o.seen) < 1900 || !slices.IsSorted(o.seen) {
		t.Errorf("%d frames arrived, counters %+v", len(o.seen), o.c)
	}
}

func TestExhaustion(t *testing.T) {
	f, b := link(t, Config{Seed: 1, Exhaust: 10 * Percent, ExhaustPolls: 5}, memlink.Config{Bufs: 64})
	q := f.Queue(0)
	spell, empty := 0, 0
	for range 1000 {
		q.Poll(nil, nil)
		if b := q.Pool().Get(); b != nil {
			q.Pool().Put(b)
			if spell != 0 && spell != 5 {
				t.Fatalf("the pool was empty for %d Polls, want 5", spell)
			}
			spell = 0
		} else {
			spell++
			empty++
		}
	}
	// A cycle is 10 Polls until it happens on average, and 5 without buffers.
	if n := int(f.Counters().Exhausted); !near(n, 1000/15) || empty > 5*n {
		t.Errorf("exhausted %d times, %d Polls without buffers", n, empty)
	}
	for f.queues[0].polls == 0 {
		q.Poll(nil, nil)
	}
	if err := f.Close(); err != nil { // with the pool exhausted
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// offloads is a port that claims to offload.
type offloads struct{ pmd.Port }

func (o *offloads) Info() pmd.Info {
	i := o.Port.Info()
	i.Caps |= pmd.TxCsum | pmd.TSO | pmd.RxCsum
	i.MaxTSO = 65000
	return i
}

func TestCorruptionIsNotHiddenByOffloads(t *testing.T) {
	a, b, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(&offloads{Port: a}, Config{Tx: Frames{Corrupt: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if i := f.Info(); i.Caps&(pmd.TxCsum|pmd.TSO) != 0 || i.MaxTSO != 0 || i.Caps&pmd.RxCsum == 0 {
		t.Errorf("info %+v", i)
	}
	q := newQueue(&Port{cfg: Config{Rx: Frames{Corrupt: Always}}}, a.Queue(0), 0)
	buf := q.Pool().Get()
	buf.SetLen(60)
	buf.Flags = pmd.RxCsumGood | pmd.RxHash
	old := bytes.Clone(buf.Bytes())
	rx := []*pmd.Buf{buf, nil}
	if n := q.spoilRx(rx, 1); n != 1 || buf.Flags != pmd.RxHash || bytes.Equal(old, buf.Bytes()) {
		t.Errorf("%d frames, flags %b", n, buf.Flags)
	}
	q.free(buf)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	for want, c := range map[string]Config{
		"Tx.Loss:":      {Tx: Frames{Loss: Always + 1}},
		"Rx.Corrupt:":   {Rx: Frames{Corrupt: Always + 1}},
		"ShortTx:":      {ShortTx: Always + 1},
		"ExhaustPolls:": {Exhaust: 1},
	} {
		a, b, err := memlink.New(memlink.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(a, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error on %q, got: %v", want, err)
		}
		a.Close()
		b.Close()
	}
}
