package neigh

import (
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Heard takes the source link-layer address of a solicitation or a router advertisement: from is at mac (RFC 4861, 6.3.4 and 7.2.3).
// Call it for solicitations only if they are for us.
func (c *Cache) Heard(now plugins.Time, from wire.Addr, mac wire.MAC, router bool) (ready Ready) {
	if mac == c.cfg.MAC || mac.IsMulticast() || mac == (wire.MAC{}) || c.local(from) != nil {
		c.stats.Ignored++
		return ready
	}
	i, ok := c.index[from]
	if !ok {
		if i = c.alloc(from, now); i == 0 {
			return ready
		}
	}
	e := &c.entries[i]
	e.router = e.router || router
	switch {
	case !ok:
		e.mac, e.updated = mac, now
		c.stale(i, now)
	case e.state == Incomplete:
		ready = c.resolve(now, e, mac)
		c.stale(i, now)
	case e.mac != mac:
		c.stats.Changed++
		e.mac, e.updated = mac, now
		c.stale(i, now)
	}
	return ready
}

// Advertised takes a neighbour advertisement (RFC 4861, 7.2.5). notRouter says that the neighbour has been a router and is none any
// more: it must not be a default router either.
func (c *Cache) Advertised(now plugins.Time, n *wire.ND) (ready Ready, notRouter bool) {
	if c.local(n.Target) != nil {
		c.stats.Conflicts++
		return ready, false
	}
	i, ok := c.index[n.Target]
	if !ok || n.HasLLA && n.LLA == c.cfg.MAC {
		return ready, false // nobody asked, or our own, come back
	}
	e := &c.entries[i]
	was := e.router
	solicited := n.Flags&wire.NDSolicited != 0
	differs := n.HasLLA && n.LLA != e.mac
	switch {
	case e.state == Incomplete:
		if !n.HasLLA {
			return ready, false
		}
		ready = c.resolve(now, e, n.LLA)
		differs = true
	case differs && n.Flags&wire.NDOverride == 0:
		if e.state == Reachable {
			c.stale(i, now)
		}
		return ready, false
	case differs:
		c.stats.Changed++
		e.mac, e.updated = n.LLA, now
	}
	switch {
	case solicited:
		c.reachable(i, now)
	case differs:
		c.stale(i, now)
	}
	e.router = n.Flags&wire.NDRouter != 0
	return ready, was && !e.router
}

// resolve gives an incomplete entry its address. The caller gives it another state.
func (c *Cache) resolve(now plugins.Time, e *entry, mac wire.MAC) Ready {
	e.mac, e.updated = mac, now
	c.stats.Resolved++
	return Ready{e.takeQueue(), mac, e.addr}
}
