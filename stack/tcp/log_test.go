package tcp

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// known is what the oracle knows of one byte.
type known struct {
	txID uint32
	mark uint8
}

// oracle is the log as one entry per byte, and where the entries that were sent end.
type oracle struct {
	una, nxt uint32
	bytes    []known // from una on
	ends     []uint32
}

func (o *oracle) in(r seq.Range) []known { return o.bytes[r.Start-o.una : r.End-o.una] }

func (o *oracle) counts() (sacked, lost uint32) {
	for _, b := range o.bytes {
		switch {
		case b.mark&rtx.MarkSacked != 0:
			sacked++
		case b.mark&rtx.MarkLost != 0:
			lost++
		}
	}
	return sacked, lost
}

// early is how far the first byte in r that was sent once and is not SACKed lies below the end of the highest SACKed one.
func (o *oracle) early(r seq.Range) uint32 {
	fack := o.una
	for i, b := range o.bytes {
		if b.mark&rtx.MarkSacked != 0 {
			fack = o.una + uint32(i) + 1
		}
	}
	for i, b := range o.in(r) {
		if at := r.Start + uint32(i); b.mark&(rtx.MarkSacked|rtx.MarkRetrans) == 0 && seq.Before(at, fack) {
			return fack - at
		}
	}
	return 0
}

// packetLen is the length of a packet in the model: entries are made of whole ones, but for the last one of each, and ranges are, too.
const packetLen = 4

// TestSegLogModel compares the log with a slice of bytes, across the wrap of sequence numbers. Ranges begin and end between packets, so
// that entries are cut into as many pieces as they have packets, and no more.
func TestSegLogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := &ringPool{budget: new(mem.Budget)}
		l := segLog{pool: pool}
		iss := rapid.SampledFrom([]uint32{0, 1000, 1<<31 - 50, 1<<32 - 50, 1<<32 - 1}).Draw(t, "iss")
		o := oracle{una: iss, nxt: iss}
		var edges []uint32 // between packets, una and nxt included
		edges = append(edges, iss)
		txID := uint32(0)
		draw := func() seq.Range {
			a := rapid.IntRange(0, len(edges)-1).Draw(t, "from")
			b := rapid.IntRange(a, len(edges)-1).Draw(t, "to")
			return seq.Range{Start: edges[a], End: edges[b]}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				n := rapid.Uint32Range(1, maxRun*packetLen).Draw(t, "n")
				txID++
				*l.push() = segment{seq: o.nxt, end: o.nxt + n, txID: txID}
				for k := uint32(0); k < n; k++ {
					if k > 0 && k%packetLen == 0 {
						edges = append(edges, o.nxt+k)
					}
					o.bytes = append(o.bytes, known{txID: txID})
				}
				o.nxt += n
				edges = append(edges, o.nxt)
			},
			"ack": func(t *rapid.T) {
				to := draw().End
				if rapid.Bool().Draw(t, "inside a packet") && to != o.nxt {
					to++
				}
				want := o.early(seq.Range{Start: o.una, End: to})
				if got := l.ack(to); got != want {
					t.Fatalf("ack(una+%d) tells of a segment %d bytes early, want %d", to-o.una, got, want)
				}
				o.bytes = o.bytes[to-o.una:]
				o.una = to
				for len(edges) > 0 && seq.BeforeEq(edges[0], to) {
					edges = edges[1:]
				}
				edges = append([]uint32{to}, edges...)
			},
			"sack": func(t *rapid.T) {
				r := draw()
				want := o.early(r)
				if got := l.sack(r); got != want {
					t.Fatalf("sack(una+%d, una+%d) tells of a segment %d bytes early, want %d", r.Start-o.una, r.End-o.una, got, want)
				}
				for i := range o.in(r) {
					b := &o.in(r)[i]
					b.mark = b.mark&^rtx.MarkLost | rtx.MarkSacked
				}
			},
			"lose": func(t *rapid.T) {
				r := draw()
				id := rapid.Uint32Range(0, txID).Draw(t, "id")
				before := l.lost
				marked := l.lose(r, id, packetLen)
				want := uint32(0)
				for i := range o.in(r) {
					if b := &o.in(r)[i]; b.mark&(rtx.MarkSacked|rtx.MarkLost) == 0 && b.txID <= id {
						b.mark |= rtx.MarkLost
						want++
					}
				}
				if got := l.lost - before; got != want || marked > want || marked*packetLen < want {
					t.Fatalf("lose marked %d bytes, %d packets, want %d bytes", got, marked, want)
				}
			},
			"resend": func(t *rapid.T) {
				if l.n == 0 {
					t.Skip("empty")
				}
				p := l.seek(draw().Start)
				s := l.get(p)
				if s == nil || s.mark&rtx.MarkSacked != 0 {
					t.Skip("nobody sends again what was SACKed")
				}
				if k := rapid.Uint32Range(1, maxRun).Draw(t, "packets"); k < s.packets(packetLen) {
					at := s.seq + k*packetLen
					for i := range edges { // at the next edge: the head may begin inside a packet
						if seq.After(edges[i], s.seq) && seq.AfterEq(edges[i]+packetLen, at) {
							at = edges[i]
							break
						}
					}
					if seq.Before(at, s.end) {
						p, _ = l.cutAt(p, at)
						s = l.get(p)
					}
				}
				txID++
				l.resent(s)
				s.txID = txID
				r := seq.Range{Start: s.seq, End: s.end}
				for i := range o.in(r) {
					b := &o.in(r)[i]
					b.mark, b.txID = b.mark&^rtx.MarkLost|rtx.MarkRetrans, txID
				}
			},
			"renege": func(t *rapid.T) {
				l.renege()
				for i := range o.bytes {
					o.bytes[i].mark &^= rtx.MarkSacked
				}
			},
			"": func(t *rapid.T) {
				s := o.una
				for p := l.start(0); ; p = l.next(p) {
					g := l.get(p)
					if g == nil {
						break
					}
					if g.seq != s || !seq.Before(g.seq, g.end) {
						t.Fatalf("piece %+v of an entry at %d, want its start at una+%d", *g, p.i, s-o.una)
					}
					for ; s != g.end; s++ {
						if want := o.bytes[s-o.una]; g.mark != want.mark || g.txID != want.txID {
							t.Fatalf("una+%d is %+v, want %+v", s-o.una, *g, want)
						}
						if at := l.seek(s); at != p {
							t.Fatalf("seek(una+%d) is %+v, want %+v", s-o.una, at, p)
						}
					}
				}
				if s != o.nxt || l.get(l.seek(o.nxt)) != nil {
					t.Fatalf("the log ends at una+%d, want %d", s-o.una, o.nxt-o.una)
				}
				if l.n > 0 && l.get(l.last()).end != o.nxt {
					t.Fatalf("the last piece is %+v", *l.get(l.last()))
				}
				if sacked, lost := o.counts(); l.sacked != sacked || l.lost != lost {
					t.Fatalf("sacked %d, lost %d, want %d, %d", l.sacked, l.lost, sacked, lost)
				}
				cut := 0
				for i := range l.n {
					if l.at(i).cut != 0 {
						cut++
					}
				}
				if cut+len(pool.idle) != len(pool.cuts) {
					t.Fatalf("%d entries are cut, %d of %d pieces are free", cut, len(pool.idle), len(pool.cuts))
				}
			},
		})
		l.clear()
		if len(pool.idle) != len(pool.cuts) {
			t.Fatalf("%d of %d pieces are free at the end", len(pool.idle), len(pool.cuts))
		}
	})
}

// A module that cuts inside of packets cannot make an entry have more pieces than packets: what does not fit stays as it was, and what is
// in flight is never too low.
func TestSegLogTooManyPieces(t *testing.T) {
	l := segLog{pool: &ringPool{budget: new(mem.Budget)}}
	*l.push() = segment{seq: 0, end: 1000, txID: 1}
	for at := uint32(1); at < 1000; at += 3 {
		l.sack(seq.Range{Start: at, End: at + 1})
		l.lose(seq.Range{Start: at + 1, End: at + 2}, 1, 100)
	}
	if n := l.pool.pieces(l.at(0)).n; n != maxRun {
		t.Errorf("%d pieces", n)
	}
	if l.sacked+l.lost > maxRun || l.sacked == 0 {
		t.Errorf("sacked %d, lost %d", l.sacked, l.lost)
	}
	l.ack(1000)
	if l.n != 0 || l.sacked != 0 || l.lost != 0 || len(l.pool.idle) != 1 {
		t.Errorf("after everything was acknowledged: %+v", l)
	}
}

// Cutting an entry whose first pieces are acknowledged makes room by moving the others: the result says where the left part is now.
func TestSegLogCutMoves(t *testing.T) {
	l := segLog{pool: &ringPool{budget: new(mem.Budget)}}
	*l.push() = segment{seq: 0, end: 100 * maxRun, txID: 1, unit: 100, run: maxRun - 1}
	for i := uint32(1); i < maxRun; i++ {
		l.lose(seq.Range{Start: 100 * i, End: 100*i + 100}, maxRun, 100)
	}
	l.ack(500)
	p, ok := l.cutAt(l.seek(1000), 1050)
	if left, right := l.get(p), l.get(l.next(p)); !ok || left.seq != 1000 || left.end != 1050 || right.seq != 1050 || right.end != 1100 {
		t.Errorf("%v: left %+v, right %+v", ok, left, right)
	}
}

// TestLostQueueModel compares the queue with a set of bytes.
func TestLostQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint32{0, 1<<31 - 30, 1<<32 - 30}).Draw(t, "base")
		var q lostQueue
		lost := map[uint32]bool{}
		low := uint32(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				a := rapid.Uint32Range(low, 99).Draw(t, "from")
				b := rapid.Uint32Range(a+1, 100).Draw(t, "to")
				q.add(seq.Range{Start: base + a, End: base + b})
				for ; a < b; a++ {
					lost[a] = true
				}
			},
			"trim": func(t *rapid.T) {
				low = rapid.Uint32Range(low, 99).Draw(t, "low")
				q.trim(base + low)
				for s := range lost {
					if s < low {
						delete(lost, s)
					}
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for i, r := range q.all[q.head:] {
					if !seq.Before(r.Start, r.End) || i > 0 && !seq.Before(q.all[q.head:][i-1].End, r.Start) {
						t.Fatalf("not in order or not joined: %v", q.all[q.head:])
					}
					for s := r.Start; s != r.End; s++ {
						n++
						if !lost[s-base] {
							t.Fatalf("%d is in the queue and not lost", s-base)
						}
					}
				}
				if n != len(lost) || q.empty() != (len(lost) == 0) {
					t.Fatalf("%d bytes in the queue, want %d", n, len(lost))
				}
			},
		})
	})
}

// TestOutPool: what a pool hands out is clean, and rings are counted.
func TestOutPool(t *testing.T) {
	p := outPool{rings: ringPool{budget: new(mem.Budget)}}
	c := &Conn{out: &nothing}
	for range 3 {
		p.inUse(c)
		if c.out == &nothing || c.out.log.n != 0 || c.out.prr.on || !c.out.lost.empty() {
			t.Fatalf("not clean: %+v", c.out)
		}
		for i := range uint32(100) {
			*c.out.log.push() = segment{seq: i, end: i + 1, mark: rtx.MarkLost}
			c.out.log.lost++
		}
		c.out.lost.add(seq.Range{Start: 1, End: 2})
		c.out.prr.enter(5)
		c.out.log.ack(100)
		if c.out.log.n != 0 || c.out.log.lost != 0 {
			t.Fatalf("log %+v after everything was acknowledged", c.out.log)
		}
		p.idle(c)
		if c.out != &nothing {
			t.Fatal("an idle connection keeps its log")
		}
	}
	if used := p.rings.budget.Used(); used < 128*segmentSize || used != p.rings.bytes {
		t.Errorf("%d bytes charged, %d held", used, p.rings.bytes)
	}
	p.close()
	if used := p.rings.budget.Used(); used != 0 {
		t.Errorf("%d bytes charged at the end", used)
	}
	if nothing.log.n != 0 || nothing.log.ring != nil || nothing.lost.all != nil || nothing.prr != (prr{}) {
		t.Fatalf("nothing was written to: %+v", nothing)
	}
}
