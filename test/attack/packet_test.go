package attack

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// fragment builds a fragment of a datagram that is never whole.
func (n *Net) fragment(src netip.Addr, proto uint8, id uint16, off, size int, more bool) []byte {
	f := n.ip(wire.AddrFrom(src), proto, size)
	frag := uint16(off / 8)
	if more {
		frag |= 0x2000
	}
	wire.PutIPv4Frag(f[wire.EthLen:], wire.AddrFrom(src), victim, proto, 0, 64, id, frag, wire.IPv4Len+size)
	return f
}

// Fragments of datagrams that never become whole, overlapping, tiny, too long or alike: the memory for them is bounded, whoever sends
// them, and no work is done twice.
func TestFragmentFlood(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 1))
	for _, c := range []struct {
		name string
		make func(n *Net, i int) []byte
	}{
		{"first fragments", func(n *Net, i int) []byte {
			return n.fragment(Outside(i%60_000), wire.ProtoUDP, uint16(i), 0, 1480, true)
		}},
		{"last fragments", func(n *Net, i int) []byte {
			return n.fragment(Outside(i%60_000), wire.ProtoTCP, uint16(i), 65_000, 400, false)
		}},
		{"of one source", func(n *Net, i int) []byte { return n.fragment(Outside(1), wire.ProtoUDP, uint16(i), 0, 1480, true) }},
		{"tiny pieces", func(n *Net, i int) []byte {
			return n.fragment(Outside(i/4000), wire.ProtoUDP, uint16(i/4000), 16+i%4000*16, 8, true)
		}},
		{"overlapping", func(n *Net, i int) []byte {
			return n.fragment(Outside(i/100), wire.ProtoUDP, 7, rng.IntN(1000)*8, 16+rng.IntN(100)*8, true)
		}},
		{"anything", func(n *Net, i int) []byte {
			return n.fragment(Outside(rng.IntN(100)), uint8(rng.Uint32()), uint16(rng.IntN(8)), rng.IntN(8192)*8, rng.IntN(1400), rng.IntN(3) > 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New(t, Config{})
			n.Serve(backlog)
			h := n.Ask(20_000)
			n.Idle(100 * time.Millisecond)
			n.Reset()
			most := int64(0)
			n.perSecond(2*time.Second, 30_000, func(i int) {
				n.Inject(c.make(n, i))
				if i%1000 == 0 {
					most = max(most, n.Stats().Frag.Bytes)
				}
			})
			n.cost()
			t.Logf("at most %d bytes; %+v", most, n.Stats().Frag)
			h.Want(50, time.Second)
			if most > 5<<20 || n.Peak > 8<<20 {
				t.Errorf("%d bytes of fragments, %d in all", most, n.Peak)
			}
			if n.Out > 3000 {
				t.Errorf("%d answers", n.Out)
			}
			n.Idle(2 * time.Minute)
			if s := n.Stats().Frag; s.Bytes != 0 || s.Datagrams != 0 {
				t.Errorf("%d datagrams with %d bytes are left", s.Datagrams, s.Bytes)
			}
		})
	}
}

// neighbour6 is the i-th neighbour of IPv6, who does not exist.
func neighbour6(i int) netip.Addr {
	a := netip.MustParseAddr("2001:db8::").As16()
	binary.BigEndian.PutUint32(a[12:], uint32(1000+i))
	return netip.AddrFrom16(a)
}

// nd builds a message of neighbour discovery to the victim.
func (n *Net) nd(src, dst netip.Addr, mac wire.MAC, m wire.ND) []byte {
	f := make([]byte, wire.EthLen+wire.IPv6Len+wire.MaxNDLen)
	s, d := wire.AddrFrom(src), wire.AddrFrom(dst)
	size := wire.PutND(f[wire.EthLen+wire.IPv6Len:], s, d, &m)
	wire.PutEthernet(f, n.macs[0], mac, wire.EtherTypeIPv6)
	wire.PutIPv6(f[wire.EthLen:], s, d, wire.ProtoICMPv6, 0, 255, 0, size)
	return f[:wire.EthLen+wire.IPv6Len+size]
}

// Solicitations from neighbours that do not exist, advertisements that nobody asked for, and router advertisements that are not followed.
func TestNDPFlood(t *testing.T) {
	n := New(t, Config{IPv6: true})
	n.Serve(backlog)
	h := n.Ask(20_000)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	solicited := uint64(0)
	n.perSecond(3*time.Second, 20_000, func(i int) {
		who, mac := neighbour6(i%50_000), wire.MAC{2, 2, 0, byte(i >> 16), byte(i >> 8), byte(i)}
		switch i % 4 {
		case 0:
			solicited++
			n.Inject(n.nd(who, Victim6, mac, wire.ND{Type: wire.ICMP6NeighborSol, Target: wire.AddrFrom(Victim6), LLA: mac, HasLLA: true}))
		case 1:
			n.Inject(n.nd(who, Victim6, mac, wire.ND{Type: wire.ICMP6NeighborAdv, Flags: wire.NDSolicited | wire.NDOverride, Target: wire.AddrFrom(who), LLA: mac, HasLLA: true}))
		case 2:
			n.Inject(n.nd(who, Victim6, mac, wire.ND{Type: wire.ICMP6RouterSol, LLA: mac, HasLLA: true}))
		case 3:
			n.Inject(n.nd(who, Victim6, mac, wire.ND{Type: wire.ICMP6NeighborAdv, Flags: wire.NDOverride, Target: wire.AddrFrom(Victim6), LLA: mac, HasLLA: true}))
		}
	})
	n.cost()
	h.Want(80, time.Second)
	s := n.Stats()
	if s.Neigh.Entries > 1024 {
		t.Errorf("%d entries", s.Neigh.Entries)
	}
	if n.Out > solicited+100 {
		t.Errorf("%d solicitations, %d answers", solicited, n.Out)
	}
}

// SYNs from neighbours of IPv6 that do not exist: a /64 has more of them than any cache (RFC 6583).
func TestNDPExhaustion(t *testing.T) {
	n := New(t, Config{IPv6: true})
	n.Serve(backlog)
	h := n.Ask(20_000)
	n.Idle(100 * time.Millisecond)
	n.Reset()
	before := n.Stats()
	dst := wire.AddrFrom(Victim6)
	const seconds = 3
	n.perSecond(seconds*time.Second, 20_000, func(i int) {
		src := wire.AddrFrom(neighbour6(i))
		f := make([]byte, wire.EthLen+wire.IPv6Len+wire.TCPLen)
		wire.PutEthernet(f, n.macs[0], AttackerMAC, wire.EtherTypeIPv6)
		wire.PutIPv6(f[wire.EthLen:], src, dst, wire.ProtoTCP, 0, 64, 0, wire.TCPLen)
		seg := f[wire.EthLen+wire.IPv6Len:]
		wire.PutTCP(seg, &wire.TCP{SrcPort: 4000, DstPort: 9, Seq: 1, Flags: wire.SYN, Window: 1024}, wire.TCPLen)
		binary.BigEndian.PutUint16(seg[wire.TCPChecksum:], wire.Fold(wire.Sum(seg, wire.PseudoSum(src, dst, wire.ProtoTCP, len(seg)))))
		n.Inject(f)
	})
	n.cost()
	h.Want(80, time.Second)
	s := n.Stats()
	if s.TCP.OutRsts == before.TCP.OutRsts {
		t.Error("no SYN was taken up")
	}
	if s.Neigh.Entries > 1024 || s.Neigh.Full == before.Neigh.Full {
		t.Errorf("%+v", s.Neigh)
	}
	if got := s.Neigh.Requests - before.Neigh.Requests; got > (seconds+1)*1024 {
		t.Errorf("the victim asked %d times", got)
	}
}
