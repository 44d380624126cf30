package posix

import (
	"net"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Sent is an IP packet that the stack has sent, and when.
type Sent struct {
	At     plugins.Time
	Packet []byte
}

var stackMAC, peerMAC = wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 0, 0, 0, 0, 2}

// port is the stack's port: what it sends is kept with its time, what is injected comes in with the next turn. Every neighbour that the
// stack looks for answers at once.
type port struct {
	mtu  int
	now  func() plugins.Time
	pool *pmd.Pool
	in   [][]byte // frames that the stack has not received yet
	out  []Sent
}

// Scripts may send segments longer than the MTU, as receive offload makes them.
const (
	poolSize = 512
	bufSize  = 65536 + pmd.Headroom + wire.EthLen
)

func newPort(mtu int, now func() plugins.Time) (*port, error) {
	pool, err := pmd.NewPool("script", poolSize, bufSize)
	if err != nil {
		return nil, err
	}
	return &port{mtu: mtu, now: now, pool: pool}, nil
}

// Info implements pmd.Port.
func (p *port) Info() pmd.Info {
	return pmd.Info{Driver: "script", Name: "script", MAC: net.HardwareAddr(stackMAC[:]), MTU: p.mtu,
		Caps: pmd.Copies | pmd.AnyPool | pmd.Prompt, Virtual: true}
}

// NumQueues implements pmd.Port.
func (p *port) NumQueues() int { return 1 }

// Queue implements pmd.Port.
func (p *port) Queue(int) pmd.Queue { return p }

// Stats implements pmd.Port.
func (p *port) Stats() pmd.Stats { return pmd.Stats{} }

// LinkUp implements pmd.Port.
func (p *port) LinkUp() bool { return true }

// Close implements pmd.Port.
func (p *port) Close() error {
	err := p.pool.CheckLeaks()
	if e := p.pool.Unmap(); err == nil {
		err = e
	}
	return err
}

// TxRoom implements pmd.Queue.
func (p *port) TxRoom() int { return poolSize }

// Pool implements pmd.Queue.
func (p *port) Pool() *pmd.Pool { return p.pool }

// WakeFD implements pmd.Queue.
func (p *port) WakeFD() int { return -1 }

// Poll implements pmd.Queue.
func (p *port) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	for _, b := range tx {
		p.sent(b.Bytes())
		b.Free()
	}
	for nrx < len(rx) && len(p.in) > 0 {
		b := p.pool.Get()
		if b == nil {
			break
		}
		if b.Append(p.in[0]) {
			rx[nrx] = b
			nrx++
		} else {
			b.Free() // longer than the link carries
		}
		p.in = p.in[1:]
	}
	return len(tx), nrx
}

func (p *port) sent(f []byte) {
	if len(f) < wire.EthLen {
		return
	}
	body := f[wire.EthLen:]
	switch uint16(f[12])<<8 | uint16(f[13]) {
	case wire.EtherTypeARP:
		p.arp(body)
	case wire.EtherTypeIPv6:
		if p.neighbour6(f) {
			return
		}
		fallthrough
	case wire.EtherTypeIPv4:
		p.out = append(p.out, Sent{p.now(), append([]byte(nil), body...)})
	}
}

// arp answers requests for any address but the stack's own probes.
func (p *port) arp(body []byte) {
	a, d := wire.ParseARP(body)
	if d != wire.DropNone || a.Op != wire.ARPRequest || a.SPA == a.TPA || a.SPA == [4]byte{} {
		return
	}
	f := make([]byte, wire.EthMinLen)
	wire.PutEthernet(f, stackMAC, peerMAC, wire.EtherTypeARP)
	wire.PutARP(f[wire.EthLen:], &wire.ARP{Op: wire.ARPReply, SHA: peerMAC, SPA: a.TPA, THA: a.SHA, TPA: a.SPA})
	p.in = append(p.in, f)
}

// neighbour6 reports whether a frame is of neighbour discovery or a listener report, and answers solicitations.
func (p *port) neighbour6(f []byte) bool {
	var k wire.Packet
	if wire.Parse(f, &k, false) != wire.DropNone || k.Proto != wire.ProtoICMPv6 || len(k.Payload) == 0 {
		return false
	}
	var n wire.ND
	switch t := k.Payload[0]; {
	case t == wire.ICMP6NeighborSol && wire.ParseND(&k, &n) == wire.DropNone && !k.Src.IsZero():
		p.advertise(k.Src, n.Target)
		return true
	case t >= 130 && t <= 137 || t == 143: // listener reports (RFC 3810), neighbour discovery
		return true
	}
	return false
}

// nd sends a message of neighbour discovery to the stack.
func (p *port) nd(src, dst wire.Addr, n *wire.ND) {
	f := make([]byte, wire.EthLen+wire.IPv6Len+wire.MaxNDLen)
	m := wire.PutND(f[wire.EthLen+wire.IPv6Len:], src, dst, n)
	wire.PutEthernet(f, stackMAC, peerMAC, wire.EtherTypeIPv6)
	wire.PutIPv6(f[wire.EthLen:], src, dst, wire.ProtoICMPv6, 0, 255, 0, m)
	p.in = append(p.in, f[:wire.EthLen+wire.IPv6Len+m])
}

// advertise tells the stack's address to that the neighbour target is here.
func (p *port) advertise(to, target wire.Addr) {
	p.nd(target, to, &wire.ND{Type: wire.ICMP6NeighborAdv, Flags: wire.NDSolicited | wire.NDOverride | wire.NDRouter, Target: target, LLA: peerMAC, HasLLA: true})
}

// ask makes the address of a neighbour known, by its own request for the stack's.
func (p *port) ask(from, to netip.Addr) {
	if from.Is6() {
		p.nd(wire.AddrFrom(from), wire.AddrFrom(to), &wire.ND{Type: wire.ICMP6NeighborSol, Target: wire.AddrFrom(to), LLA: peerMAC, HasLLA: true})
		return
	}
	f := make([]byte, wire.EthMinLen)
	wire.PutEthernet(f, wire.Broadcast, peerMAC, wire.EtherTypeARP)
	wire.PutARP(f[wire.EthLen:], &wire.ARP{Op: wire.ARPRequest, SHA: peerMAC, SPA: from.As4(), TPA: to.As4()})
	p.in = append(p.in, f)
}

// inject lets the stack receive an IP packet.
func (p *port) inject(ip []byte) {
	f := make([]byte, max(wire.EthLen+len(ip), wire.EthMinLen))
	typ := uint16(wire.EtherTypeIPv4)
	if len(ip) > 0 && ip[0]>>4 == 6 {
		typ = wire.EtherTypeIPv6
	}
	wire.PutEthernet(f, stackMAC, peerMAC, typ)
	copy(f[wire.EthLen:], ip)
	p.in = append(p.in, f)
}
