package rtx

import (
	"fmt"
	"unsafe"

	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// integrity checks everything that must hold between two events, in all flows of a module.
func integrity(m *module) error {
	for _, c := range m.chunks {
		for i := range c {
			if f := &c[i]; f.has(flowOpen) {
				if err := flowIntegrity(m, f); err != nil {
					return fmt.Errorf("flow %v: %w", f.id, err)
				}
			}
		}
	}
	return nil
}

func flowIntegrity(m *module, f *flow) error {
	if f.q == nil {
		if !f.has(flowReplaying) && f.una != f.nxt || f.sackedOut|f.lostOut|f.retransOut|f.sackedPkts != 0 {
			return fmt.Errorf("no queue, but una %d nxt %d sacked %d lost %d resent %d", f.una, f.nxt, f.sackedOut, f.lostOut, f.retransOut)
		}
		return nil
	}
	q := f.q
	var n int
	var sacked, lost, retrans, pkts uint32
	var inSent, inLost int
	at := q.head.seq
	if !f.has(flowReplaying) && at != f.una {
		return fmt.Errorf("queue begins at %d, una is %d", at, f.una)
	}
	hint := q.hint == nil
	var prev *segment
	for g := q.head; g != nil; prev, g = g, g.next {
		n++
		if g.seq != at || !seq.Before(g.seq, g.end) || g.prev != prev {
			return fmt.Errorf("segment %d [%d,%d) is not where it should be (%d)", n, g.seq, g.end, at)
		}
		at = g.end
		hint = hint || q.hint == g
		if g.is(segSacked) {
			sacked += g.len()
			pkts += g.pkts
			if g.is(segLost|segRetrans) || prev != nil && prev.is(segSacked) {
				return fmt.Errorf("segment [%d,%d): flags %b after %v", g.seq, g.end, g.flags, prev)
			}
			continue
		}
		if g.is(segLost) {
			lost += g.len()
		}
		if g.is(segRetrans) {
			retrans += g.len()
		}
		if g.waiting() {
			inLost++
		} else {
			inSent++
		}
	}
	if q.tail != prev || n != q.n || !hint {
		return fmt.Errorf("tail, count %d (want %d) or hint is wrong", q.n, n)
	}
	if !f.has(flowReplaying) && at != f.nxt {
		return fmt.Errorf("queue ends at %d, nxt is %d", at, f.nxt)
	}
	if lost != f.lostOut || retrans != f.retransOut {
		return fmt.Errorf("lost %d resent %d, want %d and %d", f.lostOut, f.retransOut, lost, retrans)
	}
	if !f.has(flowNoSACK) && (sacked != f.sackedOut || pkts != f.sackedPkts) {
		return fmt.Errorf("sacked %d (%d packets), want %d (%d)", f.sackedOut, f.sackedPkts, sacked, pkts)
	}
	if f.sackedOut+f.lostOut > at-f.una {
		return fmt.Errorf("sacked %d and lost %d are more than what is outstanding", f.sackedOut, f.lostOut)
	}
	if err := listIntegrity(q.xhead, q.xtail, inSent, func(g *segment) bool { return !g.is(segSacked) && !g.waiting() }); err != nil {
		return fmt.Errorf("order of transmission: %w", err)
	}
	if err := listIntegrity(q.lhead, q.ltail, inLost, (*segment).waiting); err != nil {
		return fmt.Errorf("waiting segments: %w", err)
	}
	before := q.before == nil
	for g := q.xhead; g != nil && !before; g = g.xnext {
		before = g == q.before
	}
	if !before {
		return fmt.Errorf("before is not in the order of transmission")
	}
	for g := q.xhead; g != nil && g.xnext != nil && !f.has(flowReplaying); g = g.xnext {
		if seq.After(g.txid, g.xnext.txid) {
			return fmt.Errorf("transmission %d comes before %d", g.txid, g.xnext.txid)
		}
	}
	return indexIntegrity(m, q)
}

func listIntegrity(head, tail *segment, want int, member func(*segment) bool) error {
	n := 0
	var prev *segment
	for g := head; g != nil; prev, g = g, g.xnext {
		n++
		if g.xprev != prev || !member(g) || n > want {
			return fmt.Errorf("segment %d [%d,%d) flags %b does not belong", n, g.seq, g.end, g.flags)
		}
	}
	if tail != prev || n != want {
		return fmt.Errorf("%d segments, want %d", n, want)
	}
	return nil
}

func indexIntegrity(m *module, q *queue) error {
	x := q.idx
	if x == nil {
		if q.n > m.pool.idx.threshold {
			return fmt.Errorf("%d segments without an index", q.n)
		}
		return nil
	}
	g := q.head
	runs := 0
	var prev *run
	for r := x.first; r != nil; prev, r = r, r.next {
		runs++
		if r.prev != prev || r.lo >= r.hi || prev != nil && !seq.Before(prev.key, r.key) {
			return fmt.Errorf("run %d is empty or out of order", runs)
		}
		for i := r.lo; i < r.hi; i++ {
			if g == nil || r.segs[i] != g || r.keys[i] != g.key || seq.Before(g.key, r.key) || r.next != nil && seq.AfterEq(g.key, r.next.key) {
				return fmt.Errorf("entry %d of run %d is not the segment of the queue", i, runs)
			}
			g = g.next
		}
		if e, ok := x.tree.Get(entry{key: r.key}); !ok || e.run != r {
			return fmt.Errorf("run %d is not in the tree", runs)
		}
	}
	if g != nil || x.last != prev || x.tree.Len() != runs {
		return fmt.Errorf("index has %d runs, the tree %d; or it lacks segments", runs, x.tree.Len())
	}
	return nil
}

func TestStateSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, most uintptr
	}{
		{"flow", unsafe.Sizeof(flow{}), 256},
		{"segment", unsafe.Sizeof(segment{}), 96},
	} {
		t.Logf("%s has %d bytes", c.name, c.got)
		if c.got > c.most {
			t.Errorf("%s has %d bytes, at most %d were meant", c.name, c.got, c.most)
		}
	}
}

// tree makes a btree module whose index has the given threshold and run length, to test it on short queues.
func tree(threshold, runLen int) *module {
	m := mustModule(NewBTree(nil, 1))
	m.pool.idx.threshold, m.pool.idx.runLen = threshold, runLen
	return m
}

func list() *module { return mustModule(NewList(nil, 1)) }

func mustModule(m Module, err error) *module {
	if err != nil {
		panic(err)
	}
	return m.(*module)
}

const ms = plugins.Time(1e6)
