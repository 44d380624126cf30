package conf

import "fmt"

// devices notes ports on a device that another port has: each would get the frames of both, and answer for the other. A link of several
// networks is one port with several addresses, or has VLANs.
func (v *validator) devices() {
	interfaces, cards := map[string]int{}, map[string]int{}
	for i := range v.c.Ports {
		p, key := &v.c.Ports[i], fmt.Sprintf("port[%d]", i)
		name, field := p.kernelInterface()
		v.taken(interfaces, key, field, name)
		if p.Driver == DriverDPDK {
			v.taken(cards, key, "device", p.Device)
		}
	}
}

// taken notes that a key of a port names what another one does; ports are the numbers of those so far.
func (v *validator) taken(ports map[string]int, key, field, name string) {
	if name == "" {
		return
	}
	if first, ok := ports[name]; ok {
		v.at(key+"."+field, "%q is the %s of the port on line %d already", name, map[bool]string{true: "device", false: "interface"}[field == "device"], first)
		return
	}
	ports[name] = v.line(key)
}

// kernelInterface is the kernel's interface on which a port is, and the key that names it; "" if there is none.
func (p *Port) kernelInterface() (name, key string) {
	switch p.Driver {
	case DriverAFPacket, DriverTap:
		return p.Interface, "interface"
	case DriverDPDK:
		return vdevInterface(p.Vdev), "vdev"
	}
	return "", ""
}
