package tcp

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// oracle is the log as a map from sequence number to what is known of that byte.
type oracle struct {
	una, nxt uint32
	segs     []segment
}

func (o *oracle) counts() (sacked, lost uint32) {
	for _, s := range o.segs {
		switch {
		case s.mark&rtx.MarkSacked != 0:
			sacked += s.len()
		case s.mark&rtx.MarkLost != 0:
			lost += s.len()
		}
	}
	return sacked, lost
}

// TestSegLogModel compares the log with a plain slice that is searched from the front, across the wrap of sequence numbers.
func TestSegLogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l segLog
		pool := &ringPool{budget: new(mem.Budget)}
		iss := rapid.SampledFrom([]uint32{0, 1000, 1<<31 - 50, 1<<32 - 50, 1<<32 - 1}).Draw(t, "iss")
		o := oracle{una: iss, nxt: iss}
		txID := uint32(0)
		// A range of whole or partial segments.
		draw := func() seq.Range {
			n := o.nxt - o.una
			a := rapid.Uint32Range(0, n).Draw(t, "from")
			b := rapid.Uint32Range(a, n).Draw(t, "to")
			return seq.Range{Start: o.una + a, End: o.una + b}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				n := rapid.Uint32Range(1, 20).Draw(t, "n")
				txID++
				s := segment{seq: o.nxt, end: o.nxt + n, txID: txID}
				*l.push(pool) = s
				o.segs = append(o.segs, s)
				o.nxt += n
			},
			"ack": func(t *rapid.T) {
				r := draw()
				l.ack(r.End)
				o.una = r.End
				for len(o.segs) > 0 && seq.BeforeEq(o.segs[0].end, r.End) {
					o.segs = o.segs[1:]
				}
				if len(o.segs) > 0 && seq.Before(o.segs[0].seq, r.End) {
					o.segs[0].seq = r.End
				}
			},
			"sack": func(t *rapid.T) {
				r := draw()
				l.sack(r)
				for i := range o.segs {
					if s := &o.segs[i]; seq.AfterEq(s.seq, r.Start) && seq.BeforeEq(s.end, r.End) {
						s.mark = s.mark&^rtx.MarkLost | rtx.MarkSacked
					}
				}
			},
			"lose": func(t *rapid.T) {
				r := draw()
				id := rapid.Uint32Range(0, txID).Draw(t, "id")
				marked := l.lose(r, id)
				want := uint32(0)
				for i := range o.segs {
					s := &o.segs[i]
					if seq.After(s.end, r.Start) && seq.Before(s.seq, r.End) && s.mark&(rtx.MarkSacked|rtx.MarkLost) == 0 && s.txID <= id {
						s.mark |= rtx.MarkLost
						want++
					}
				}
				if marked != want {
					t.Fatalf("lose marked %d, want %d", marked, want)
				}
			},
			"resend": func(t *rapid.T) {
				if len(o.segs) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(o.segs)-1).Draw(t, "i")
				if o.segs[i].mark&rtx.MarkSacked != 0 {
					t.Skip("nobody sends again what was SACKed")
				}
				txID++
				l.resent(l.at(uint32(i)))
				l.at(uint32(i)).txID = txID
				o.segs[i].mark = o.segs[i].mark&^rtx.MarkLost | rtx.MarkRetrans
				o.segs[i].txID = txID
			},
			"renege": func(t *rapid.T) {
				l.renege()
				for i := range o.segs {
					o.segs[i].mark &^= rtx.MarkSacked
				}
			},
			"": func(t *rapid.T) {
				if int(l.n) != len(o.segs) {
					t.Fatalf("%d entries, want %d", l.n, len(o.segs))
				}
				for i, want := range o.segs {
					if got := *l.at(uint32(i)); got != want {
						t.Fatalf("entry %d is %+v, want %+v", i, got, want)
					}
				}
				if sacked, lost := o.counts(); l.sacked != sacked || l.lost != lost {
					t.Fatalf("sacked %d, lost %d, want %d, %d", l.sacked, l.lost, sacked, lost)
				}
				for s := o.una; ; s++ {
					want := 0
					for want < len(o.segs) && seq.BeforeEq(o.segs[want].end, s) {
						want++
					}
					if got := l.find(s); int(got) != want {
						t.Fatalf("find(una+%d) is %d, want %d", s-o.una, got, want)
					}
					if s == o.nxt {
						break
					}
				}
			},
		})
	})
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
				for i, r := range q.r {
					if !seq.Before(r.Start, r.End) || i > 0 && !seq.Before(q.r[i-1].End, r.Start) {
						t.Fatalf("not in order or not joined: %v", q.r)
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
			*c.out.log.push(&p.rings) = segment{seq: i, end: i + 1, mark: rtx.MarkLost}
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
	if nothing.log.n != 0 || nothing.log.ring != nil || nothing.lost.r != nil || nothing.prr != (prr{}) {
		t.Fatalf("nothing was written to: %+v", nothing)
	}
}
