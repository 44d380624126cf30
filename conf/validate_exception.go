package conf

import (
	"fmt"
	"strings"
)

// exceptions checks the exception paths of the ports.
func (v *validator) exceptions() {
	names := map[string]int{}
	for i := range v.c.Ports {
		p, key := &v.c.Ports[i], fmt.Sprintf("port[%d]", i)
		if p.Exception == "" {
			for _, k := range []string{"exception_addresses", "exception_rate", "exception_unclaimed"} {
				if v.has(key + "." + k) {
					v.at(key+"."+k, "has no meaning without exception")
				}
			}
			continue
		}
		if len(p.Exception) > 15 || strings.ContainsAny(p.Exception, "/ %") {
			v.at(key+".exception", "%q is not the name of an interface (at most 15 bytes)", p.Exception)
		}
		if first, ok := names[p.Exception]; ok {
			v.at(key+".exception", "%q is the device of the port on line %d already", p.Exception, first)
		}
		names[p.Exception] = v.line(key)
		for j := range v.c.Ports {
			if v.c.Ports[j].Interface == p.Exception {
				v.at(key+".exception", "%q is the interface of port %q", p.Exception, v.c.Ports[j].Name)
			}
		}
		between(v, key+".exception_rate", p.ExceptionRate, 1, 10_000_000)
		for j, a := range p.ExceptionAddresses {
			k := fmt.Sprintf("%s.exception_addresses[%d]", key, j)
			if !a.IsValid() || v.bad(k) {
				continue
			}
			if a.Addr().IsMulticast() || a.Addr().IsUnspecified() || a.Addr().IsLoopback() {
				v.at(k, "%v is not an address of a host", a)
			}
			if !p.ExceptionUnclaimed {
				for _, own := range p.Addresses {
					if own.Addr() == a.Addr() {
						v.at(k, "%v is fastpath's own: the kernel would get nothing there without exception_unclaimed", a.Addr())
					}
				}
			}
		}
	}
}
