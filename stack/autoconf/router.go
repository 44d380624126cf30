package autoconf

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Router solicitations: the first interval, doubled up to the last one until a default router is known (RFC 7559, 2).
const (
	solicitFirst = 4 * time.Second
	solicitMax   = time.Hour
)

// Limits of what routers can make us keep.
const (
	maxRouters  = 8
	maxPrefixes = 16
	maxServers  = 8
)

// minLifetime is what a router that is not authenticated can shorten the life of an address to (RFC 4862, 5.5.3 (e)).
const minLifetime = 2 * time.Hour

// Router is a default router.
type Router struct {
	Addr       netip.Addr
	Until      plugins.Time
	Preference int8 // RFC 4191, 2.1
	Failed     bool // it did not answer lately
}

type prefix struct {
	p     netip.Prefix
	until plugins.Time
}

type server struct {
	addr  netip.Addr
	until plugins.Time
}

// routerState is what is known from router advertisements.
type routerState struct {
	due      plugins.Time // of the next solicitation
	interval time.Duration
	routers  []Router
	prefixes []prefix
	servers  []server
	mtu      int
}

func (r *routerState) deadline() plugins.Time {
	at := r.due
	for i := range r.routers {
		at = min(at, r.routers[i].Until)
	}
	for i := range r.prefixes {
		at = min(at, r.prefixes[i].until)
	}
	for i := range r.servers {
		at = min(at, r.servers[i].until)
	}
	return at
}

func (r *routerState) snapshot(s *Snapshot) {
	s.Routers = slices.Clone(r.routers)
	slices.SortStableFunc(s.Routers, func(a, b Router) int { // RFC 4861, 6.3.6; RFC 4191, 3.2
		if a.Failed != b.Failed {
			if b.Failed {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Preference, a.Preference)
	})
	for _, p := range r.prefixes {
		s.OnLink = append(s.OnLink, p.p)
	}
	for _, x := range r.servers {
		s.DNS = append(s.DNS, x.addr)
	}
	s.MTU = r.mtu
}

// solicit begins to look for routers. The link-local address has waited already, so that this need not (RFC 4861, 6.3.7).
func (h *Host) solicit(now plugins.Time) {
	if h.cfg.SLAAC && h.router.due == plugins.Never && len(h.router.routers) == 0 {
		h.router.due, h.router.interval = now, 0
	}
}

func (h *Host) pollRouters(now plugins.Time) {
	r := &h.router
	old := len(r.routers) + len(r.prefixes) + len(r.servers)
	r.routers = slices.DeleteFunc(r.routers, func(x Router) bool { return x.Until <= now })
	r.prefixes = slices.DeleteFunc(r.prefixes, func(x prefix) bool { return x.until <= now })
	r.servers = slices.DeleteFunc(r.servers, func(x server) bool { return x.until <= now })
	h.changed = h.changed || len(r.routers)+len(r.prefixes)+len(r.servers) != old
	src := h.usable()
	if src == (wire.Addr{}) {
		return
	}
	h.solicit(now)
	if r.due > now {
		return
	}
	h.sendND(src, wire.AllRouters, &wire.ND{Type: wire.ICMP6RouterSol, LLA: h.cfg.MAC, HasLLA: true})
	if r.interval == 0 {
		r.interval = solicitFirst
	} else {
		r.interval = min(2*r.interval, solicitMax)
	}
	r.interval += time.Duration(h.rng.Int64N(int64(r.interval/5))) - r.interval/10 // RFC 7559, 2: ± 10 %
	r.due = now.Add(r.interval)
}

// Advertised takes a router advertisement (RFC 4861, 6.3.4; RFC 4862, 5.5.3; RFC 8106, 5.3.1).
func (h *Host) Advertised(now plugins.Time, from wire.Addr, a *wire.RouterAdv) {
	if !h.cfg.SLAAC {
		return
	}
	h.stats.Adverts++
	h.takeRouter(now, from, a)
	if mtu := int(a.MTU); mtu >= wire.MinMTU6 && mtu <= h.cfg.MTU && mtu != h.router.mtu {
		h.router.mtu, h.changed = mtu, true
	} else if mtu != 0 && mtu != h.router.mtu {
		h.stats.Ignored++
	}
	for i := range a.Prefixes[:a.NumPrefixes] {
		h.takePrefix(now, &a.Prefixes[i])
	}
	for i := range a.Servers[:a.NumServers] {
		h.takeServer(now, &a.Servers[i])
	}
	h.schedule()
}

func (h *Host) takeRouter(now plugins.Time, from wire.Addr, a *wire.RouterAdv) {
	r := &h.router
	if a.Lifetime > 0 {
		r.due = plugins.Never // RFC 7559, 2.1
	}
	x := Router{Addr: from.Netip(), Until: now.Add(a.Lifetime), Preference: a.Preference}
	i := slices.IndexFunc(r.routers, func(y Router) bool { return y.Addr == x.Addr })
	switch {
	case i < 0 && a.Lifetime == 0:
	case i < 0 && len(r.routers) == maxRouters:
		h.stats.Ignored++
	case i < 0:
		r.routers, h.changed = append(r.routers, x), true
	case a.Lifetime == 0:
		r.routers, h.changed = slices.Delete(r.routers, i, i+1), true
	default:
		old := r.routers[i]
		r.routers[i] = x
		h.changed = h.changed || old.Failed || old.Preference != x.Preference
	}
}

// RouterFailed says that a does not answer: another default router is to be preferred (RFC 4861, 6.3.6).
func (h *Host) RouterFailed(a wire.Addr) {
	for i := range h.router.routers {
		if x := &h.router.routers[i]; x.Addr == a.Netip() && !x.Failed {
			x.Failed, h.changed = true, true
		}
	}
}

// NotRouter says that a is no router any more (RFC 4861, 7.2.5).
func (h *Host) NotRouter(a wire.Addr) {
	n := len(h.router.routers)
	h.router.routers = slices.DeleteFunc(h.router.routers, func(x Router) bool { return x.Addr == a.Netip() })
	h.changed = h.changed || len(h.router.routers) != n
	h.schedule()
}

// until is the end of a lifetime.
func until(now plugins.Time, d time.Duration) plugins.Time {
	if d == wire.Forever {
		return plugins.Never
	}
	return now.Add(d)
}

func (h *Host) takePrefix(now plugins.Time, p *wire.Prefix) {
	if p.Addr.IsLinkLocal() || p.Addr.IsMulticast() || p.Addr.Is4() || p.Bits == 0 || p.Preferred > p.Valid {
		h.stats.Ignored++ // RFC 4861, 6.3.4; RFC 4862, 5.5.3 (b), (c)
		return
	}
	network := netip.PrefixFrom(p.Addr.Netip(), int(p.Bits)).Masked()
	if p.OnLink {
		h.takeOnLink(now, network, p.Valid)
	}
	if p.Auto {
		h.takeAuto(now, network, p)
	}
}

func (h *Host) takeOnLink(now plugins.Time, network netip.Prefix, valid time.Duration) {
	r := &h.router
	i := slices.IndexFunc(r.prefixes, func(x prefix) bool { return x.p == network })
	switch {
	case i >= 0 && valid == 0:
		r.prefixes, h.changed = slices.Delete(r.prefixes, i, i+1), true
	case i >= 0:
		r.prefixes[i].until = until(now, valid)
	case valid == 0:
	case len(r.prefixes) == maxPrefixes:
		h.stats.Ignored++
	default:
		r.prefixes, h.changed = append(r.prefixes, prefix{network, until(now, valid)}), true
	}
}

func (h *Host) takeAuto(now plugins.Time, network netip.Prefix, p *wire.Prefix) {
	autos := 0
	for _, x := range h.addrs {
		if x.Origin != Auto {
			continue
		}
		autos++
		if x.Prefix.Masked() == network {
			h.renew(now, x, p)
			return
		}
	}
	switch {
	case p.Valid == 0:
	case network.Bits() != 64 || autos == maxAddrs: // RFC 4862, 5.5.3 (d): prefix and identifier make 128 bits
		h.stats.Ignored++
	default:
		h.add(h.identifier(network, 0), Auto, until(now, p.Preferred), until(now, p.Valid), now)
	}
}

// renew gives an address new lifetimes (RFC 4862, 5.5.3 (e)).
func (h *Host) renew(now plugins.Time, x *addr, p *wire.Prefix) {
	x.Preferred = until(now, p.Preferred)
	switch v := until(now, p.Valid); {
	case p.Valid > minLifetime || v > x.Valid:
		x.Valid = v
	case x.Valid.Sub(now) <= minLifetime:
	default:
		x.Valid = now.Add(minLifetime)
	}
	switch {
	case x.State == Preferred && x.Preferred <= now:
		x.State, h.changed = Deprecated, true
	case x.State == Deprecated && x.Preferred > now:
		x.State, h.changed = Preferred, true
	}
}

func (h *Host) takeServer(now plugins.Time, d *wire.DNSServer) {
	r := &h.router
	a := d.Addr.Netip()
	i := slices.IndexFunc(r.servers, func(x server) bool { return x.addr == a })
	switch {
	case d.Addr.IsMulticast() || d.Addr.Is4() || d.Addr == wire.Addr{}:
		h.stats.Ignored++
	case i >= 0 && d.Lifetime == 0:
		r.servers, h.changed = slices.Delete(r.servers, i, i+1), true
	case i >= 0:
		r.servers[i].until = until(now, d.Lifetime)
	case d.Lifetime == 0:
	case len(r.servers) == maxServers:
		h.stats.Ignored++
	default:
		r.servers, h.changed = append(r.servers, server{a, until(now, d.Lifetime)}), true
	}
}
