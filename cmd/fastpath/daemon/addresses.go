package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/stack"
)

// addresses are those that the port has now, each with its state if it is not the usual one: "2001:db8::1/64 tentative".
func (p *port) addresses() []string {
	all := []string{}
	for _, a := range p.stack.Addresses() {
		s := a.Prefix.String()
		if a.State != preferred {
			s += " " + a.State
		}
		all = append(all, s)
	}
	return all
}

// States of a stack.Address.
const (
	preferred = "preferred"
	tentative = "tentative"
	duplicate = "duplicate"
)

// seenAddresses are the states in which a port's addresses have been announced.
type seenAddresses map[netip.Prefix]string

// configured are the addresses that a port has from the start. Those of IPv6 are verified first: they come later.
func (p *port) configured() seenAddresses {
	seen := seenAddresses{}
	for _, a := range p.conf.Addresses {
		if a.Addr().Is4() {
			seen[a] = preferred
		}
	}
	return seen
}

// addressEvents announces addresses that have come, that are gone, or whose state is another one. What is being verified is no news.
func (d *Daemon) addressEvents(p *port, seen seenAddresses) {
	now := p.stack.Addresses()
	for old, state := range seen {
		if !slices.ContainsFunc(now, func(a stack.Address) bool { return a.Prefix == old }) {
			delete(seen, old)
			d.addressEvent(p, old, "gone", "", state)
		}
	}
	for _, a := range now {
		if a.State == tentative || seen[a.Prefix] == a.State {
			continue
		}
		was := seen[a.Prefix]
		seen[a.Prefix] = a.State
		d.addressEvent(p, a.Prefix, a.State, p.origin(a), was)
	}
}

// origin is who gave the port an address: the stack takes that of a lease for a static one.
func (p *port) origin(a stack.Address) string {
	if p.conf.DHCP && a.Prefix.Addr().Is4() {
		return "dhcp"
	}
	return a.Origin
}

// addressEvent announces that an address is in a state, or gone; was is the state before, if it had one.
func (d *Daemon) addressEvent(p *port, a netip.Prefix, state, origin, was string) {
	text := fmt.Sprintf("port %s: address %v is %s", p.conf.Name, a, state)
	fields := []any{"port", p.conf.Name, "address", a, "state", state}
	level := slog.LevelInfo
	switch {
	case state == duplicate:
		text += ": another host has it, it is not used"
		level = slog.LevelWarn
	case origin != "":
		text += " (" + origin + ")"
	}
	for _, f := range [][2]string{{"origin", origin}, {"from", was}} {
		if f[1] != "" {
			fields = append(fields, f[0], f[1])
		}
	}
	d.events.add(control.EventAddress, text, fields...)
	d.log.Log(context.Background(), level, "address", fields...)
}
