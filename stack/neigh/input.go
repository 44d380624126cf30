package neigh

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Output is an ARP packet to send, and the Ethernet address to send it to.
type Output struct {
	Dst wire.MAC
	ARP wire.ARP
}

// Ready are packets that waited for an entry which Input completed: the caller sends the chain to MAC.
type Ready struct {
	Chain *pmd.Buf
	MAC   wire.MAC
	Addr  wire.Addr
}

// Input takes a received ARP packet. If send is true, out is the answer to send.
//
// The rule of RFC 826: a sender that is known is updated, whomever the packet is for; one that is not known is learned only
// if the packet is for us; then a request for us is answered. A sender address of 0.0.0.0 is a probe (RFC 5227, 2.1.1): it is
// answered, and nothing is learned.
func (c *Cache) Input(now plugins.Time, a *wire.ARP) (out Output, send bool, ready Ready) {
	if a.SHA == c.cfg.MAC {
		return out, false, ready // our own, come back
	}
	probe := a.SPA == [4]byte{}
	if a.SHA.IsMulticast() || a.SHA == (wire.MAC{}) || a.SPA[0] >= 224 || a.SPA[0] == 127 || a.SPA[0] == 0 && !probe {
		c.stats.Ignored++
		return out, false, ready
	}
	if l := c.local(a.SPA); l != nil {
		out, send = c.conflict(now, l)
		return out, send, ready
	}
	mine := c.local(a.TPA) != nil
	if !probe {
		ready = c.learn(now, a, wire.AddrFrom4(a.SPA), mine)
	}
	if mine && a.Op == wire.ARPRequest {
		c.stats.Replies++
		out = Output{a.SHA, wire.ARP{Op: wire.ARPReply, SHA: c.cfg.MAC, SPA: a.TPA, THA: a.SHA, TPA: a.SPA}}
		send = true
	}
	return out, send, ready
}

// learn merges the sender of a into the cache.
func (c *Cache) learn(now plugins.Time, a *wire.ARP, spa wire.Addr, mine bool) (ready Ready) {
	i, ok := c.index[spa]
	if !ok {
		if !mine || a.Op != wire.ARPRequest {
			return ready // nobody asked
		}
		if i = c.alloc(spa, now); i == 0 {
			return ready
		}
		e := &c.entries[i]
		e.mac, e.updated = a.SHA, now
		c.stale(i, now)
		return ready
	}
	e := &c.entries[i]
	answer := mine && a.Op == wire.ARPReply && a.THA == c.cfg.MAC
	if e.state == Incomplete {
		e.mac, e.updated = a.SHA, now
		c.stats.Resolved++
		ready = Ready{e.takeQueue(), e.mac, e.addr}
	} else if e.mac != a.SHA {
		// Two that answer for one address would make it flap (Linux's locktime). A gratuitous packet says that it moved.
		if now-e.updated < plugins.Time(LockTime) && a.SPA != a.TPA {
			c.stats.Locked++
			return ready
		}
		c.stats.Changed++
		e.mac, e.updated = a.SHA, now
		if !answer {
			c.stale(i, now)
			return ready
		}
	}
	switch {
	case answer:
		c.reachable(i, now)
	case e.state == Incomplete:
		c.stale(i, now)
	}
	return ready
}

// conflict defends one of our addresses, which somebody else uses: one announcement per DEFEND_INTERVAL. We keep the
// address, because we were configured with it (RFC 5227, 2.4 (c)).
func (c *Cache) conflict(now plugins.Time, l *local) (out Output, send bool) {
	c.stats.Conflicts++
	if now < l.defended.Add(defendInterval) {
		return out, false
	}
	l.defended = now
	c.stats.Requests++
	return c.announcement(l.addr), true
}

// announcement is a request for our own address (RFC 5227, 1.1).
func (c *Cache) announcement(addr [4]byte) Output {
	return Output{wire.Broadcast, wire.ARP{Op: wire.ARPRequest, SHA: c.cfg.MAC, SPA: addr, TPA: addr}}
}

func (c *Cache) local(a [4]byte) *local {
	for i := range c.locals {
		if c.locals[i].addr == a {
			return &c.locals[i]
		}
	}
	return nil
}

// AddLocal makes a one of our own IPv4 addresses: requests for it are answered. If announce is set, it is announced twice,
// from now on (RFC 5227, 2.3).
func (c *Cache) AddLocal(a wire.Addr, announce bool, now plugins.Time) {
	l := local{addr: a.As4(), due: plugins.Never, defended: now.Add(-defendInterval)}
	if announce {
		l.announces, l.due = announceNum, now
	}
	if old := c.local(l.addr); old != nil {
		*old = l
		return
	}
	c.locals = append(c.locals, l)
}
