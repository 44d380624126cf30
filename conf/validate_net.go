package conf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func (v *validator) ports() {
	if len(v.c.Ports) == 0 && !v.has("port") && !v.broken {
		v.at("port", "at least one [[port]] is needed")
	}
	names, taken := map[string]int{}, map[netip.Addr]string{}
	for i := range v.c.Ports {
		p, key := &v.c.Ports[i], fmt.Sprintf("port[%d]", i)
		v.require(key+".name", p.Name == "")
		v.require(key+".driver", p.Driver == "" && p.Parent == "")
		if first, ok := names[p.Name]; ok && p.Name != "" {
			v.at(key+".name", "%q is the name of the port on line %d already", p.Name, first)
		} else {
			names[p.Name] = v.line(key)
		}
		between(v, key+".mtu", p.MTU, 576, 9216) // RFC 791: every host takes 576 bytes
		between(v, key+".queues", p.Queues, 1, 64)
		between(v, key+".buffers", p.Buffers, 256, 1<<20)
		if p.Ring != 0 && (p.Ring < 64 || p.Ring > 32768 || p.Ring&(p.Ring-1) != 0) {
			v.at(key+".ring", "%d is not a power of two from 64 to 32768", p.Ring)
		}
		v.driver(key, p)
		v.addresses(key, p, taken)
	}
	if !v.broken {
		v.peers()
		v.devices()
		v.exceptions()
	}
}

// driver checks the keys that only some drivers have.
func (v *validator) driver(key string, p *Port) {
	if p.Parent != "" || v.has(key+".vlan") {
		v.vlan(key, p)
		return
	}
	if p.Driver == "" {
		return
	}
	for _, k := range []struct{ name, value, drivers string }{
		{"interface", p.Interface, "afpacket tap"},
		{"vdev", p.Vdev, "dpdk"},
		{"device", p.Device, "dpdk"},
		{"peer", p.Peer, "memlink"},
		{"replay", p.Replay, "pcap"},
		{"record", p.Record, "pcap"},
	} {
		if k.value != "" && !slices.Contains(strings.Fields(k.drivers), p.Driver) {
			v.at(key+"."+k.name, "has no meaning with driver = %q", p.Driver)
		}
	}
	switch p.Driver {
	case DriverDPDK:
		if (p.Vdev == "") == (p.Device == "") && !v.broken && !v.bad(key+".vdev") && !v.bad(key+".device") {
			v.at(key, "driver = \"dpdk\" needs either vdev or device")
		}
	case DriverAFPacket, DriverTap:
		v.require(key+".interface", p.Interface == "")
		if len(p.Interface) > 15 || strings.ContainsAny(p.Interface, "/ ") {
			v.at(key+".interface", "%q is not the name of an interface (at most 15 bytes)", p.Interface)
		}
	case DriverMemlink:
		v.require(key+".peer", p.Peer == "")
	case DriverPcap:
		v.require(key+".replay", p.Replay == "")
	}
	if (p.Driver == DriverMemlink || p.Driver == DriverPcap) && p.MAC == nil && !v.bad(key+".mac") {
		v.require(key+".mac", true)
	}
}

// addresses checks a port's addresses and its gateway. taken holds the addresses so far, with their keys.
func (v *validator) addresses(key string, p *Port, taken map[netip.Addr]string) {
	if len(p.Addresses) == 0 && !p.SLAAC && !p.DHCP {
		v.require(key+".addresses", true)
	}
	ipv6 := p.SLAAC
	v.dhcp(key, p)
	for i, a := range p.Addresses {
		k := fmt.Sprintf("%s.addresses[%d]", key, i)
		if !a.IsValid() {
			continue
		}
		ipv6 = ipv6 || a.Addr().Is6()
		switch {
		case a.Bits() == 0 || a.Addr().IsMulticast() || a.Addr().IsUnspecified() || a.Addr().IsLoopback() || a.Addr().Is4In6():
			v.at(k, "%v is not an address of a host", a)
		case a.Addr().Is4() && a.Bits() < 31 && (a.Addr() == a.Masked().Addr() || a.Addr() == broadcast(a)):
			v.at(k, "%v is the network's own or broadcast address", a)
		}
		if other, ok := taken[a.Addr()]; ok {
			v.at(k, "%v is an address of %s already", a.Addr(), other)
		}
		taken[a.Addr()] = k
	}
	if ipv6 && p.MTU < 1280 && !v.bad(key+".mtu") {
		v.at(key+".mtu", "%d is too little for IPv6, which needs 1280", p.MTU) // RFC 8200, 5
	}
	v.gateway(key, "gateway", p, p.Gateway, ipv6)
	if p.Gateway6.IsValid() && !p.Gateway6.Is6() {
		v.at(key+".gateway6", "%v is not an IPv6 address", p.Gateway6)
		return
	}
	if p.Gateway6.IsValid() && p.Gateway.Is6() {
		v.at(key+".gateway6", "gateway is one of IPv6 already")
	}
	v.gateway(key, "gateway6", p, p.Gateway6, ipv6)
}

// gateway checks that a gateway is another host on link: in one of the port's networks, or link-local.
func (v *validator) gateway(port, name string, p *Port, gw netip.Addr, ipv6 bool) {
	key := port + "." + name
	depends := []string{name, "name", "addresses", "slaac", "dhcp"}
	if !gw.IsValid() || v.broken || v.odd[port] || slices.ContainsFunc(depends, func(k string) bool { return v.bad(port + "." + k) }) {
		return
	}
	own := func(a netip.Prefix) bool { return a.Addr() == gw.WithZone("") }
	switch zone := gw.Zone(); {
	case slices.ContainsFunc(p.Addresses, own):
		v.at(key, "%v is the port's own address", gw)
	case zone != "" && zone != p.Name:
		v.at(key, "%v is in the zone of another port", gw)
	case gw.Is6() && !ipv6:
		v.at(key, "%v has no meaning without IPv6: the port needs an IPv6 address, or slaac = true", gw)
	case gw.Is6() && gw.IsLinkLocalUnicast():
	case !slices.ContainsFunc(p.Addresses, func(a netip.Prefix) bool { return a.Contains(gw) }) && len(p.Addresses) > 0:
		v.at(key, "%v is in none of the port's networks", gw)
	}
}

// dhcp checks that nothing else says what a DHCP server is to say.
func (v *validator) dhcp(key string, p *Port) {
	if !p.DHCP {
		return
	}
	for i, a := range p.Addresses {
		if a.Addr().Is4() {
			v.at(fmt.Sprintf("%s.addresses[%d]", key, i), "has no meaning with dhcp = true, which asks for the IPv4 address")
		}
	}
	if p.Gateway.Is4() {
		v.at(key+".gateway", "has no meaning with dhcp = true, which asks for the gateway too")
	}
}

func broadcast(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for i := range 32 {
		if i >= p.Bits() {
			a[i/8] |= 0x80 >> (i % 8)
		}
	}
	return netip.AddrFrom4(a)
}

// peers checks that memlink ports come in pairs.
func (v *validator) peers() {
	for i := range v.c.Ports {
		p, key := &v.c.Ports[i], fmt.Sprintf("port[%d].peer", i)
		if p.Driver != DriverMemlink || p.Peer == "" {
			continue
		}
		if q := v.port(p.Peer); q == nil {
			v.at(key, "there is no port %q", p.Peer)
		} else if q == p || q.Driver != DriverMemlink || q.Peer != p.Name {
			v.at(key, "port %q is not a memlink whose peer is %q", p.Peer, p.Name)
		}
	}
}

func (v *validator) port(name string) *Port {
	for i := range v.c.Ports {
		if v.c.Ports[i].Name == name {
			return &v.c.Ports[i]
		}
	}
	return nil
}

// workers checks the workers and completes what they leave out: without any, each queue of each port has an adaptive worker;
// a worker without a port belongs to the only one; one without a queue gets the next that is free, else NoQueue.
func (v *validator) workers() {
	if len(v.c.Workers) == 0 && !v.has("worker") {
		for _, p := range v.c.Ports {
			for q := range max(0, min(p.Queues, 64)) {
				v.c.Workers = append(v.c.Workers, Worker{Core: AnyCore, Poll: PollAdaptive, Port: p.Name, Queue: q})
			}
		}
	}
	owner := map[string]int{} // "port queue" → line
	cores := map[int]int{}
	for i := range v.c.Workers {
		w, key := &v.c.Workers[i], fmt.Sprintf("worker[%d]", i)
		between(v, key+".core", w.Core, AnyCore, 4095)
		if w.Poll == PollSpin {
			if w.Core == AnyCore && !v.bad(key+".core") {
				v.at(key+".core", "poll = \"spin\" needs a core of its own")
			} else if first, ok := cores[w.Core]; ok && !v.sharesCore(i) {
				v.at(key+".core", "core %d is taken by the worker on line %d", w.Core, first)
			}
		}
		if w.Core >= 0 && (w.Poll == PollSpin || cores[w.Core] == 0) {
			cores[w.Core] = v.line(key)
		}
		if w.Port == "" && len(v.c.Ports) == 1 && !v.bad(key+".port") {
			w.Port = v.c.Ports[0].Name
		}
		p := v.port(w.Port)
		switch {
		case v.bad(key + ".port"):
		case w.Port == "" && len(v.c.Ports) > 0 && v.c.Ports[0].Name != "":
			v.at(key+".port", "is missing: there are several ports")
		case p == nil && len(v.c.Ports) > 0 && w.Port != "":
			v.at(key+".port", "there is no port %q", w.Port)
		case p != nil && w.Queue >= 0:
			v.queue(key, w, p, owner)
		case w.Queue < NoQueue && v.has(key+".queue") && !v.bad(key+".queue"):
			v.at(key+".queue", "%d is out of range (%d: none)", w.Queue, NoQueue)
		}
	}
	v.freeQueues(owner)
	v.mixedCores()
	v.sharedQueues()
}

func (v *validator) queue(key string, w *Worker, p *Port, owner map[string]int) {
	id := fmt.Sprint(w.Port, " ", w.Queue)
	if first, ok := owner[id]; ok {
		v.at(key+".queue", "queue %d of port %q belongs to the worker on line %d", w.Queue, w.Port, first)
	} else if w.Queue >= p.Queues && !v.bad("port") {
		v.at(key+".queue", "port %q has %d queues, numbered from 0", w.Port, p.Queues)
	}
	owner[id] = v.line(key)
}

// freeQueues gives workers that name no queue the next free one, and notes queues that nobody polls.
func (v *validator) freeQueues(owner map[string]int) {
	for i := range v.c.Workers {
		w := &v.c.Workers[i]
		p := v.port(w.Port)
		if w.Queue != autoQueue || p == nil {
			continue
		}
		w.Queue = NoQueue
		for q := range max(0, min(p.Queues, 64)) {
			if id := fmt.Sprint(w.Port, " ", q); owner[id] == 0 {
				owner[id] = v.line(fmt.Sprintf("worker[%d]", i))
				w.Queue = q
				break
			}
		}
	}
	if v.bad("worker") || v.bad("port") {
		return
	}
	for i, p := range v.c.Ports {
		for q := range max(0, min(p.Queues, 64)) {
			if owner[fmt.Sprint(p.Name, " ", q)] == 0 && p.Name != "" {
				v.at(fmt.Sprintf("port[%d].queues", i), "queue %d of port %q has no [[worker]]", q, p.Name)
			}
		}
	}
}

// mixedCores notes an adaptive worker on the core of a spinning one, which would never let it run.
func (v *validator) mixedCores() {
	for i, a := range v.c.Workers {
		for _, s := range v.c.Workers {
			key := fmt.Sprintf("worker[%d].core", i)
			if a.Poll == PollAdaptive && s.Poll == PollSpin && a.Core >= 0 && a.Core == s.Core && !v.bad(key) {
				v.at(key, "core %d belongs to a spinning worker", a.Core)
			}
		}
	}
}
