package conf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func (v *validator) apps() {
	names := map[string]int{}
	type listener struct {
		addr netip.AddrPort
		udp  bool
		line int
	}
	var taken []listener
	for i := range v.c.Apps {
		a, key := &v.c.Apps[i], fmt.Sprintf("app[%d]", i)
		v.require(key+".kind", a.Kind == "")
		v.require(key+".listen", !a.Listen.IsValid())
		if a.Name == "" {
			a.Name = fmt.Sprintf("%s%d", a.Kind, i)
		}
		if first, ok := names[a.Name]; ok {
			v.at(key+".name", "%q is the name of the application on line %d already", a.Name, first)
		} else {
			names[a.Name] = v.line(key)
		}
		v.appKeys(key, a)
		if a.Listen.IsValid() {
			v.listen(key, a)
			for _, t := range taken {
				if t.udp == a.UDP() && t.addr.Port() == a.Listen.Port() &&
					(t.addr.Addr() == a.Listen.Addr() || t.addr.Addr().IsUnspecified() || a.Listen.Addr().IsUnspecified()) {
					v.at(key+".listen", "%v overlaps with the application on line %d", a.Listen, t.line)
				}
			}
			taken = append(taken, listener{a.Listen, a.UDP(), v.line(key)})
		}
	}
}

// listen checks that the address belongs to a port.
func (v *validator) listen(key string, a *App) {
	if a.Listen.Port() == 0 {
		v.at(key+".listen", "port 0 does not name a port")
	}
	if a.Listen.Addr().IsUnspecified() || v.broken || v.bad("port") {
		return
	}
	for _, p := range v.c.Ports {
		if slices.ContainsFunc(p.Addresses, func(x netip.Prefix) bool { return x.Addr() == a.Listen.Addr().WithZone("") }) {
			return
		}
	}
	v.at(key+".listen", "%v is not an address of any [[port]]", a.Listen.Addr())
}

// backend checks that fastpath can reach a proxy's backend: a port does not reach itself, and none reaches loopback addresses.
func (v *validator) backend(key string, addr netip.Addr) {
	if addr.IsLoopback() {
		v.at(key+".backend", "%v is not reached over fastpath: set via = %q", addr, ViaKernel)
		return
	}
	plain := addr.WithZone("")
	owner, others := "", false
	for _, p := range v.c.Ports {
		switch gateway := p.Gateway; {
		case slices.ContainsFunc(p.Addresses, func(x netip.Prefix) bool { return x.Addr() == plain }):
			owner = p.Name
		case addr.Zone() != "" && addr.Zone() != p.Name:
		case plain.Is6() && (p.SLAAC || p.Gateway6.IsValid() || gateway.Is6()), plain.Is4() && (p.DHCP || gateway.Is4()),
			slices.ContainsFunc(p.Addresses, func(x netip.Prefix) bool { return x.Contains(plain) }):
			others = true
		}
	}
	if owner != "" && !others {
		v.at(key+".backend", "%v is the address of port %q itself, which does not reach itself, and no other port has a route to it: "+
			"name another host, or let the application listen on the proxy's address", addr, owner)
	}
}

// appKeys checks the keys that only some kinds of application have.
func (v *validator) appKeys(key string, a *App) {
	if a.Kind == "" {
		return
	}
	for name, kinds := range map[string]string{
		"rate": "http source", "root": "http", "size": "http source", "seed": "http source", "upload": "http",
		"backend": "proxy", "via": "proxy", "idle_timeout": "http echo discard source proxy",
	} {
		if k := key + "." + name; v.has(k) && !slices.Contains(strings.Fields(kinds), a.Kind) {
			v.at(k, "has no meaning with kind = %q", a.Kind)
		}
	}
	if a.Kind == AppProxy {
		v.require(key+".backend", !a.Backend.IsValid())
		if a.Backend.IsValid() && (a.Backend.Port() == 0 || a.Backend.Addr().IsUnspecified()) {
			v.at(key+".backend", "%v is not an address to connect to", a.Backend)
		} else if a.Via == ViaFastpath {
			v.backend(key, a.Backend.Addr())
		}
	}
	if a.Root != "" && (v.has(key+".size") || v.has(key+".seed")) {
		v.at(key+".root", "serves files, so that size and seed have no meaning")
	}
}
