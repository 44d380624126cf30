package neigh

import (
	"encoding/binary"
	"math/bits"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Deadline is the next time at which Poll has work; Never if there is none.
func (c *Cache) Deadline() plugins.Time {
	t := min(c.wheel.Next(), c.probe.due)
	for i := range c.locals {
		t = min(t, c.locals[i].due)
	}
	return t
}

// Poll runs what is due. It writes up to len(out) packets to send and returns how many, and the chain of packets whose next
// hop did not answer (host unreachable), for the caller to free. What does not fit into out is due again at once.
func (c *Cache) Poll(now plugins.Time, out []Output) (n int, failed *pmd.Buf) {
	for i := range c.locals {
		if l := &c.locals[i]; l.due <= now && n < len(out) {
			out[n] = c.announcement(l.addr)
			n++
			c.stats.Requests++
			l.announces--
			l.due = now.Add(announceInterval)
			if l.announces == 0 {
				l.due = plugins.Never
			}
		}
	}
	n += c.pollProbe(now, out[n:])
	c.failed = c.failed[:0]
	c.due = c.wheel.Advance(now, c.due[:0])
	for _, i := range c.due {
		e := &c.entries[i]
		switch e.state {
		case Delay:
			e.state, e.tries = Probe, 0
			fallthrough
		case Probe, Incomplete:
			if e.tries == Retries {
				failed = c.fail(i, failed)
				continue
			}
			if n == len(out) {
				c.wheel.Set(i, now)
				continue
			}
			if c.request(e, &out[n]) {
				n++
			}
			e.tries++
			e.asked = now
			c.wheel.Set(i, now.Add(RetransTime))
		case Reachable, Stale:
			if now-e.used >= plugins.Time(StaleTime) {
				c.remove(i) // RFC 1122, 2.3.2.1: entries must not stay for ever
				continue
			}
			c.wheel.Set(i, e.used.Add(StaleTime))
		}
	}
	return n, failed
}

// request asks for e: by broadcast or to the group of its address, or by unicast if we know an address (RFC 1122, 2.3.2.1 (2); RFC
// 4861, 7.2.2). It returns false if we have no address to ask from.
func (c *Cache) request(e *entry, o *Output) bool {
	src, ok := c.source(e.addr)
	if !ok {
		return false
	}
	c.stats.Requests++
	if e.addr.Is4() {
		*o = Output{Dst: wire.Broadcast, ARP: wire.ARP{Op: wire.ARPRequest, SHA: c.cfg.MAC, SPA: src.As4(), TPA: e.addr.As4()}}
	} else {
		*o = Output{Src: src, To: e.addr.SolicitedNode(), ND: wire.ND{Type: wire.ICMP6NeighborSol, Target: e.addr, LLA: c.cfg.MAC, HasLLA: true}}
		o.Dst = o.To.GroupMAC()
	}
	if e.state == Probe {
		o.Dst = e.mac
		if !e.addr.Is4() {
			o.To = e.addr
		}
	}
	return true
}

// source is the one of our addresses that shares the most leading bits with a.
func (c *Cache) source(a wire.Addr) (best wire.Addr, ok bool) {
	most := -1
	for i := range c.locals {
		l := c.locals[i].addr
		if n := commonBits(l, a); l.Is4() == a.Is4() && n > most {
			most, best = n, l
		}
	}
	return best, most >= 0
}

// Failed are the next hops that the last Poll gave up, because nobody answered (RFC 4861, 7.2.2). The slice is valid until the next Poll.
func (c *Cache) Failed() []wire.Addr { return c.failed }

// fail removes an entry that nobody answered for, and puts its queue before the chain failed.
func (c *Cache) fail(i uint32, failed *pmd.Buf) *pmd.Buf {
	e := &c.entries[i]
	c.stats.Failed++
	c.failed = append(c.failed, e.addr)
	if e.head != nil {
		e.tail.Next = failed
		failed = e.head
	}
	c.remove(i)
	return failed
}

// commonBits is the number of leading bits that a and b share.
func commonBits(a, b wire.Addr) int {
	if n := bits.LeadingZeros64(binary.BigEndian.Uint64(a[:]) ^ binary.BigEndian.Uint64(b[:])); n < 64 {
		return n
	}
	return 64 + bits.LeadingZeros64(binary.BigEndian.Uint64(a[8:])^binary.BigEndian.Uint64(b[8:]))
}
