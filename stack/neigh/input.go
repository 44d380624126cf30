package neigh

import (
	"slices"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Output is an ARP packet or a neighbour solicitation to send, and the Ethernet address to send it to.
type Output struct {
	Dst wire.MAC
	ARP wire.ARP
	// Of neighbour discovery, if To is not zero: the message and the addresses of its packet.
	ND      wire.ND
	Src, To wire.Addr
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
	if l := c.local(wire.AddrFrom4(a.SPA)); l != nil {
		out, send = c.conflict(now, l)
		return out, send, ready
	}
	c.heardProbed(wire.AddrFrom4(a.SPA), wire.AddrFrom4(a.TPA), probe && a.Op == wire.ARPRequest)
	mine := c.local(wire.AddrFrom4(a.TPA)) != nil
	if !probe {
		ready = c.learn(now, a, wire.AddrFrom4(a.SPA), mine)
	}
	if mine && a.Op == wire.ARPRequest {
		c.stats.Replies++
		out = Output{Dst: a.SHA, ARP: wire.ARP{Op: wire.ARPReply, SHA: c.cfg.MAC, SPA: a.TPA, THA: a.SHA, TPA: a.SPA}}
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
		ready = c.resolve(now, e, a.SHA)
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

// Announce announces all of our addresses anew, twice, from now on: the link was down, and who forwards frames may have forgotten or
// mistaken where we are (RFC 5227, 2.3; RFC 4861, 7.2.6).
func (c *Cache) Announce(now plugins.Time) {
	for i := range c.locals {
		c.locals[i].announces, c.locals[i].due = announceNum, now
	}
}

// announcement is a request for our own IPv4 address (RFC 5227, 1.1), or an unsolicited advertisement of an IPv6 one.
func (c *Cache) announcement(addr wire.Addr) Output {
	if !addr.Is4() {
		return Output{Dst: wire.AllNodes.GroupMAC(), Src: addr, To: wire.AllNodes,
			ND: wire.ND{Type: wire.ICMP6NeighborAdv, Flags: wire.NDOverride, Target: addr, LLA: c.cfg.MAC, HasLLA: true}}
	}
	a := addr.As4()
	return Output{Dst: wire.Broadcast, ARP: wire.ARP{Op: wire.ARPRequest, SHA: c.cfg.MAC, SPA: a, TPA: a}}
}

func (c *Cache) local(a wire.Addr) *local {
	for i := range c.locals {
		if c.locals[i].addr == a {
			return &c.locals[i]
		}
	}
	return nil
}

// SetLocals says which addresses are ours: ARP requests for them are answered, and requests are sent from them. If announce is set, IPv4
// addresses that are new are announced twice, from now on (RFC 5227, 2.3).
func (c *Cache) SetLocals(addrs []wire.Addr, announce bool, now plugins.Time) {
	c.locals = slices.DeleteFunc(c.locals, func(l local) bool { return !slices.Contains(addrs, l.addr) })
	for _, a := range addrs {
		if c.local(a) != nil {
			continue
		}
		l := local{addr: a, due: plugins.Never, defended: now.Add(-defendInterval)}
		if announce && a.Is4() {
			l.announces, l.due = announceNum, now
		}
		c.locals = append(c.locals, l)
	}
}
