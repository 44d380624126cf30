package attack

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// bulkPort is where the victim sends to whoever connects.
const bulkPort = 19

// bulk is a connection on which the victim sends 20 000 bytes every 10 ms.
type bulk struct {
	n              *Net
	client, victim *tcp.Conn
	read           int
	next           time.Duration
}

func (n *Net) bulk(victim netip.Addr) *bulk {
	n.T.Helper()
	l, err := n.Victim.Listen(netip.AddrPortFrom(victim, bulkPort), 4)
	if err != nil {
		n.T.Fatal(err)
	}
	b := &bulk{n: n}
	if b.client, err = n.Client.Connect(netip.AddrPort{}, netip.AddrPortFrom(victim, bulkPort)); err != nil {
		n.T.Fatal(err)
	}
	if !n.Run(5*time.Second, func() bool { b.victim, _ = l.TryAccept(); return b.victim != nil }) {
		n.T.Fatal("the connection does not open")
	}
	n.Each(b.step)
	n.T.Cleanup(func() { b.client.Abort(); b.victim.Abort() })
	return b
}

func (b *bulk) step() {
	if now := time.Duration(b.n.Clock.now); now >= b.next {
		b.next = now + 10*time.Millisecond
		_, _ = b.victim.TryWrite(Content(0, 20_000)) // what does not fit is not sent
	}
	var buf [4096]byte
	for {
		k, err := b.client.TryRead(buf[:])
		if err != nil {
			return
		}
		b.read += k
	}
}

// mss is the victim's segment size.
func (b *bulk) mss() uint32 {
	for _, i := range b.n.Victim.Conns() {
		if i.Local == b.victim.Tuple.LocalAddr() && i.Remote == b.victim.Tuple.RemoteAddr() {
			return i.MSS
		}
	}
	b.n.T.Fatal("the connection is gone")
	return 0
}

// tooBig is the frame of a router's word that packet, which the victim sent, was larger than mtu.
func (n *Net) tooBig(packet []byte, mtu uint32) []byte {
	if packet[0]>>4 == 4 {
		body := make([]byte, wire.ICMPLen+wire.MaxQuote)
		return n.Proto(GatewayAddr, wire.ProtoICMP, body[:wire.PutICMPError(body, wire.ICMPUnreachable, wire.ICMPFragNeeded, mtu, packet)])
	}
	f := make([]byte, wire.EthLen+wire.IPv6Len+wire.ICMPLen+wire.MaxQuote6)
	src, dst := wire.Addr(packet[24:40]), wire.Addr(packet[8:24])
	size := wire.PutICMP6Error(f[wire.EthLen+wire.IPv6Len:], src, dst, wire.ICMP6PacketTooBig, 0, mtu, packet)
	wire.PutEthernet(f, n.macs[0], AttackerMAC, wire.EtherTypeIPv6)
	wire.PutIPv6(f[wire.EthLen:], src, dst, wire.ProtoICMPv6, 0, 64, 0, size)
	return f[:wire.EthLen+wire.IPv6Len+size]
}

// Forged reports of too big packets (RFC 5927, 7), 20 000 per second: about numbers that are not in flight they change nothing, and about
// those that are, of somebody who sees them, nothing either as long as the path goes on to deliver what is larger (7.2). A host is not
// made to send small segments so.
func TestForgedTooBig(t *testing.T) {
	for name, addr := range map[string]netip.Addr{"ipv4": VictimAddr, "ipv6": Victim6} {
		t.Run(name, func(t *testing.T) {
			n := New(t, Config{IPv6: true})
			n.Serve(backlog)
			h := n.Ask(5000)
			b := n.bulk(addr)
			n.Idle(time.Second)
			full, tcpAt, least := b.mss(), wire.EthLen+wire.IPv4Len, uint32(552)
			if addr.Is6() {
				tcpAt, least = wire.EthLen+wire.IPv6Len, wire.MinMTU6
			}
			var last []byte // the last full segment of the victim
			targeted := 0
			n.OnPath = func(toVictim bool, f []byte) [][]byte {
				if _, s, _, ok := Parse(f); ok && !toVictim && s.SrcPort == bulkPort && len(s.Payload) == int(full) {
					if last = f; targeted < 2000 { // while it is in flight
						targeted++
						n.Inject(n.tooBig(f[wire.EthLen:], least+uint32(targeted%100)))
					}
				}
				return [][]byte{f}
			}
			n.Idle(100 * time.Millisecond)
			read := b.read
			rng := rand.New(rand.NewPCG(5, 9))
			n.Reset()
			const seconds = 3
			n.perSecond(seconds*time.Second, 20_000, func(i int) {
				f := append([]byte(nil), last...)
				seq := binary.BigEndian.Uint32(f[tcpAt+4:])
				mtu := least + uint32(i%100)
				switch i % 5 {
				case 0: // blind
					seq = rng.Uint32()
				case 1: // acknowledged long ago
					seq -= 1<<20 + rng.Uint32N(1<<24)
				case 2: // not sent yet
					seq += 1<<20 + rng.Uint32N(1<<24)
				case 3: // of another connection
					f[tcpAt+2] ^= 1
				case 4: // less than any path has
					mtu = []uint32{0, 68, 256, 551}[i%4]
					seq = rng.Uint32()
				}
				binary.BigEndian.PutUint32(f[tcpAt+4:], seq)
				n.Inject(n.tooBig(f[wire.EthLen:], mtu))
			})
			n.cost()
			h.Want(100, time.Second)
			after := n.Stats().TCP
			if after.TooBigs == 0 || targeted == 0 {
				t.Errorf("%d reports quoted something in flight, of %d that were meant to", after.TooBigs, targeted)
			}
			if got := b.mss(); got != full || after.PathShrinks != 0 {
				t.Errorf("the segment size went from %d to %d, in %d steps", full, got, after.PathShrinks)
			}
			if got := b.read - read; got < seconds*1_900_000 {
				t.Errorf("%d bytes came meanwhile", got)
			}
			if n.Out > 100 {
				t.Errorf("%d answers", n.Out)
			}
			if n.MallocsPerTurn() > 1 {
				t.Errorf("%.2f allocations per turn", n.MallocsPerTurn())
			}
		})
	}
}
