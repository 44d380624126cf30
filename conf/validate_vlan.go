package conf

import "fmt"

// maxVLAN is the largest VLAN ID (IEEE 802.1Q: 4095 is reserved).
const maxVLAN = 4094

// vlan checks a port that is a VLAN of another one, and gives it what it shares with that.
func (v *validator) vlan(key string, p *Port) {
	v.require(key+".parent", p.Parent == "")
	v.require(key+".vlan", !v.has(key+".vlan"))
	if v.has(key + ".vlan") {
		between(v, key+".vlan", p.VLAN, 1, maxVLAN)
	}
	for _, k := range []string{"driver", "interface", "vdev", "device", "peer", "replay", "record", "mac", "queues", "ring", "buffers", "tso"} {
		if v.has(key + "." + k) {
			v.at(key+"."+k, "has no meaning with parent: it is the parent's")
		}
	}
	if p.Parent == "" || v.broken {
		return
	}
	parent := v.port(p.Parent)
	switch {
	case parent == nil:
		v.at(key+".parent", "there is no port %q", p.Parent)
		return
	case parent == p || parent.Parent != "":
		v.at(key+".parent", "port %q is a VLAN itself", p.Parent)
		return
	}
	p.Queues, p.Buffers = parent.Queues, parent.Buffers
	switch {
	case !v.has(key + ".mtu"):
		p.MTU = parent.MTU
	case p.MTU > parent.MTU && !v.bad(key+".mtu"):
		v.at(key+".mtu", "%d is more than the parent's %d", p.MTU, parent.MTU)
	}
	for i := range v.c.Ports {
		if q := &v.c.Ports[i]; q == p {
			break
		} else if q.Parent == p.Parent && q.VLAN == p.VLAN {
			v.at(key+".vlan", "port %q is VLAN %d of %q already", q.Name, p.VLAN, p.Parent)
		}
	}
}

// root is the port whose device p uses: p, or its parent.
func (p *Port) root() string {
	if p.Parent != "" {
		return p.Parent
	}
	return p.Name
}

// sharedQueues notes workers that may not poll the same queue of a device: its VLANs receive for each other, so that one thread has to
// poll them all.
func (v *validator) sharedQueues() {
	if v.bad("worker") || v.bad("port") {
		return
	}
	first := map[string]int{} // "device queue" → number of the first worker
	for i := range v.c.Workers {
		w := &v.c.Workers[i]
		p := v.port(w.Port)
		if p == nil || w.Queue < 0 {
			continue
		}
		id := fmt.Sprint(p.root(), " ", w.Queue)
		j, ok := first[id]
		if !ok {
			first[id] = i
			continue
		}
		if o := &v.c.Workers[j]; o.Poll != w.Poll || w.Poll == PollSpin && o.Core != w.Core {
			v.at(fmt.Sprintf("worker[%d].poll", i), "ports %q and %q share queue %d of %q: both of their workers must be adaptive, or spin on the same core",
				o.Port, w.Port, w.Queue, p.root())
		}
	}
}

// sharesCore reports whether all spinning workers before worker i on its core belong to other VLANs of the same device: one thread
// polls them all.
func (v *validator) sharesCore(i int) bool {
	w := &v.c.Workers[i]
	p := v.port(w.Port)
	for j := range i {
		o := &v.c.Workers[j]
		if o.Poll != PollSpin || o.Core != w.Core {
			continue
		}
		if q := v.port(o.Port); p == nil || q == nil || p == q || p.root() != q.root() {
			return false
		}
	}
	return true
}
