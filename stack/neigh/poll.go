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
	t := c.wheel.Next()
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
			out[n] = c.request(e)
			n++
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

// request asks for e: by broadcast, or by unicast if we know an address (RFC 1122, 2.3.2.1 (2)).
func (c *Cache) request(e *entry) Output {
	c.stats.Requests++
	o := Output{wire.Broadcast, wire.ARP{Op: wire.ARPRequest, SHA: c.cfg.MAC, SPA: c.source(e.addr), TPA: e.addr.As4()}}
	if e.state == Probe {
		o.Dst = e.mac
	}
	return o
}

// source is the one of our addresses that shares the most leading bits with a.
func (c *Cache) source(a wire.Addr) (best [4]byte) {
	target, most := a.As4(), -1
	for i := range c.locals {
		if n := commonBits(c.locals[i].addr, target); n > most {
			most, best = n, c.locals[i].addr
		}
	}
	return best
}

// fail removes an entry that nobody answered for, and puts its queue before the chain failed.
func (c *Cache) fail(i uint32, failed *pmd.Buf) *pmd.Buf {
	e := &c.entries[i]
	c.stats.Failed++
	if e.head != nil {
		e.tail.Next = failed
		failed = e.head
	}
	c.remove(i)
	return failed
}

// commonBits is the number of leading bits that a and b share.
func commonBits(a, b [4]byte) int {
	return bits.LeadingZeros32(binary.BigEndian.Uint32(a[:]) ^ binary.BigEndian.Uint32(b[:]))
}
