package stack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/autoconf"
	"github.com/fastpath-tcp/fastpath/stack/route"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Route is a route. Without a gateway its destinations are on link. Among routes of the same length the lowest metric wins.
type Route struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
	Metric  int
}

// Address is an address of the interface.
type Address struct {
	Prefix           netip.Prefix
	Origin           string       // "static", "link-local", "slaac"
	State            string       // "tentative", "preferred", "deprecated", "duplicate"
	Preferred, Valid plugins.Time // until when; plugins.Never: for ever
}

// ErrTentative is the error of connecting from an address that is still being verified (RFC 4862, 5.4). Wait with Settled and try again.
var ErrTentative = errors.New("stack: the local address is still being verified")

// addressing is the configuration of the interface, of which the table is made that workers use.
type addressing struct {
	mu      sync.Mutex
	four    []netip.Prefix
	static  []Route
	dns     []netip.Addr // of the binding
	six     autoconf.Snapshot
	ipv6    bool
	settled chan struct{} // closed when no address is tentative
	warned  map[netip.Addr]bool
}

// Metrics of routes that nobody gave one: static default routes, and those from router advertisements.
const (
	metricStatic = 0
	metricRouter = 1024
)

var (
	anyV4     = netip.MustParsePrefix("0.0.0.0/0")
	anyV6     = netip.MustParsePrefix("::/0")
	linkLocal = netip.MustParsePrefix("fe80::/64")
)

// addresses makes the first table, and the part that configures IPv6 if there is to be any.
func (s *Stack) addresses(seed uint64) error {
	a := &s.addr
	a.settled, a.warned = make(chan struct{}), map[netip.Addr]bool{}
	close(a.settled)
	a.ipv6 = s.cfg.SLAAC || slices.ContainsFunc(s.cfg.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if len(s.cfg.Addrs) == 0 && !s.cfg.SLAAC && !s.cfg.Dynamic {
		return errors.New("stack: no addresses")
	}
	if a.ipv6 {
		if s.mtu < wire.MinMTU6 {
			return fmt.Errorf("stack: the port's MTU is %d, IPv6 needs %d", s.mtu, wire.MinMTU6)
		}
		s.auto = autoconf.New(s.autoConfig(seed), s.clock.Now())
	}
	for _, p := range s.cfg.Addrs {
		if p.Addr().Is6() {
			if err := s.auto.AddStatic(p, s.clock.Now()); err != nil {
				return err
			}
		} else {
			a.four = append(a.four, p)
		}
	}
	for _, gw := range []netip.Addr{s.cfg.Gateway, s.cfg.Gateway6} {
		if gw.Is4() {
			a.static = append(a.static, Route{anyV4, gw, metricStatic})
		} else if gw.IsValid() {
			a.static = append(a.static, Route{anyV6, gw.WithZone(""), metricStatic})
		}
	}
	if s.auto != nil {
		a.six = s.auto.Snapshot()
	}
	return s.publish(false)
}

func (s *Stack) autoConfig(seed uint64) autoconf.Config {
	rng := rand.New(rand.NewPCG(seed, 0x69707636))
	c := autoconf.Config{MAC: s.mac, MTU: s.mtu, Name: s.port.Info().Name, Secret: s.cfg.Secret, Seed: rng.Uint64(), SLAAC: s.cfg.SLAAC, Transmits: 1}
	if len(c.Secret) == 0 {
		c.Secret = binary.BigEndian.AppendUint64(nil, rng.Uint64())
	}
	if s.cfg.DADTransmits != 0 {
		c.Transmits = max(s.cfg.DADTransmits, 0)
	}
	return c
}

// publish makes a new table and gives it to the workers, which take it up at their next turn. The caller holds addr.mu, or is New. It fails
// if a route's gateway is on no link, unless that is to be suffered: then the route is left out.
func (s *Stack) publish(suffer bool) error {
	t := new(route.Table)
	a := &s.addr
	for _, p := range a.four {
		if err := t.AddAddr(0, p); err != nil {
			return err
		}
	}
	tentative, err := a.addSix(t)
	if err != nil {
		return err
	}
	for _, r := range a.static {
		if err := t.AddRoute(r.Prefix, 0, r.Gateway, r.Metric); err != nil {
			if !suffer {
				return err
			}
			s.log.Warn("a route is not used", "port", s.port.Info().Name, "error", err)
		}
	}
	s.routes.Store(t)
	select {
	case <-a.settled:
		if tentative {
			a.settled = make(chan struct{})
		}
	default:
		if !tentative {
			close(a.settled)
		}
	}
	for _, w := range s.workers {
		w.kicked()
	}
	return nil
}

// addSix adds what is known of IPv6, and reports whether an address is tentative.
func (a *addressing) addSix(t *route.Table) (tentative bool, err error) {
	if !a.ipv6 {
		return false, nil
	}
	onLink := append([]netip.Prefix{linkLocal}, a.six.OnLink...)
	for _, x := range a.six.Addrs {
		state := route.Preferred
		switch x.State {
		case autoconf.Duplicate:
			continue
		case autoconf.Tentative:
			state, tentative = route.Tentative, true
		case autoconf.Deprecated:
			state = route.Deprecated
		}
		if err := t.AddOffLink(0, x.Prefix, state); err != nil {
			return false, err
		}
		if x.Origin == autoconf.Static {
			onLink = append(onLink, x.Prefix.Masked())
		}
	}
	for i, p := range onLink {
		if !slices.Contains(onLink[:i], p) {
			if err := t.AddRoute(p, 0, netip.Addr{}, 0); err != nil {
				return false, err
			}
		}
	}
	for i, r := range a.six.Routers {
		if err := t.AddRoute(anyV6, 0, r.Addr, metricRouter+i); err != nil {
			return false, err
		}
	}
	t.SetMTU6(a.six.MTU)
	return tentative, nil
}

// learned takes what address configuration has found out. It runs on the worker that does it.
func (s *Stack) learned(six autoconf.Snapshot) {
	a := &s.addr
	a.mu.Lock()
	defer a.mu.Unlock()
	a.six = six
	for _, x := range six.Addrs {
		if addr := x.Prefix.Addr(); x.State == autoconf.Duplicate && !a.warned[addr] {
			a.warned[addr] = true
			s.log.Warn("another host has this address: it is not used", "port", s.port.Info().Name, "address", addr)
		}
	}
	if err := s.publish(true); err != nil { // what was learned was checked when it was learned
		s.log.Error("the routes are not changed", "port", s.port.Info().Name, "error", err)
	}
}

// change edits the configuration of IPv4 and of routes, and takes the edit back if no table can be made of it.
func (s *Stack) change(edit func(a *addressing) error) error {
	a := &s.addr
	a.mu.Lock()
	defer a.mu.Unlock()
	four, static, dns := slices.Clone(a.four), slices.Clone(a.static), a.dns
	err := edit(a)
	if err == nil {
		err = s.publish(false)
	}
	if err != nil {
		a.four, a.static, a.dns = four, static, dns
	}
	return err
}

// AddAddr gives the interface another address, with the length of its network. An IPv6 address is verified before it is used.
func (s *Stack) AddAddr(p netip.Prefix) error {
	if !p.Addr().Is6() {
		return s.change(func(a *addressing) error { a.four = append(a.four, p); return nil })
	}
	return s.configure(func(h *autoconf.Host, now plugins.Time) error { return h.AddStatic(p, now) })
}

// RemoveAddr takes an address away. Connections from it get no more segments; routes through its network must be removed before.
func (s *Stack) RemoveAddr(addr netip.Addr) error {
	if addr.Is6() {
		return s.configure(func(h *autoconf.Host, now plugins.Time) error { return h.RemoveStatic(addr, now) })
	}
	return s.change(func(a *addressing) error {
		n := len(a.four)
		if a.four = slices.DeleteFunc(a.four, func(p netip.Prefix) bool { return p.Addr() == addr }); len(a.four) == n {
			return fmt.Errorf("stack: %v is no address of this stack", addr)
		}
		return nil
	})
}

// configure runs f on the worker that configures IPv6.
func (s *Stack) configure(f func(h *autoconf.Host, now plugins.Time) error) (err error) {
	w := s.workers[0]
	if w.auto == nil {
		return fmt.Errorf("stack: port %s was started without IPv6", s.port.Info().Name)
	}
	if !w.do(func() {
		if err = f(w.auto, w.now); err == nil {
			w.autoconf()
		}
	}) {
		return ErrClosed
	}
	return err
}

// AddRoute adds a route.
func (s *Stack) AddRoute(r Route) error {
	return s.change(func(a *addressing) error { a.static = append(a.static, r); return nil })
}

// RemoveRoute removes a route that was configured or added.
func (s *Stack) RemoveRoute(r Route) error {
	return s.change(func(a *addressing) error {
		i := slices.Index(a.static, r)
		if i < 0 {
			return fmt.Errorf("stack: there is no route to %v via %v", r.Prefix, r.Gateway)
		}
		a.static = slices.Delete(a.static, i, i+1)
		return nil
	})
}

// Settled waits until no address is being verified any more.
func (s *Stack) Settled(ctx context.Context) error {
	s.addr.mu.Lock()
	c := s.addr.settled
	s.addr.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
	}
	select { // of two that are ready, select takes any
	case <-c:
		return nil
	default:
		return ctx.Err()
	}
}

// Addrs are the addresses of the interface, except duplicate ones.
func (s *Stack) Addrs() (all []netip.Prefix) {
	for _, x := range s.Addresses() {
		if x.State != autoconf.Duplicate.String() {
			all = append(all, x.Prefix)
		}
	}
	return all
}

// Addresses describes the addresses of the interface.
func (s *Stack) Addresses() (all []Address) {
	s.addr.mu.Lock()
	defer s.addr.mu.Unlock()
	for _, p := range s.addr.four {
		all = append(all, Address{p, autoconf.Static.String(), autoconf.Preferred.String(), plugins.Never, plugins.Never})
	}
	for _, x := range s.addr.six.Addrs {
		all = append(all, Address{x.Prefix, x.Origin.String(), x.State.String(), x.Preferred, x.Valid})
	}
	return all
}

// Routes are the routes that were configured or added, and those that routers advertise.
func (s *Stack) Routes() []Route {
	s.addr.mu.Lock()
	defer s.addr.mu.Unlock()
	all := slices.Clone(s.addr.static)
	for _, p := range s.addr.six.OnLink {
		all = append(all, Route{Prefix: p})
	}
	for i, r := range s.addr.six.Routers {
		all = append(all, Route{anyV6, r.Addr, metricRouter + i})
	}
	return all
}

// DNS are the name servers that the stack has learned: those of DHCP, then those that routers advertise (RFC 8106, 5.3.1).
func (s *Stack) DNS() []netip.Addr {
	s.addr.mu.Lock()
	defer s.addr.mu.Unlock()
	return slices.Concat(s.addr.dns, s.addr.six.DNS)
}
