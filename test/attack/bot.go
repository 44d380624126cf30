package attack

import (
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Bots are the attacker's connections: each does by hand what its Behave says, with no stack behind it.
type Bots struct {
	n    *Net
	all  map[netip.AddrPort]*Bot
	List []*Bot
	// Behave, if set, gets each segment of the victim for a bot that is connected.
	Behave func(b *Bot, t *wire.TCP, o *wire.Options)
}

// Bot is one connection of the attacker.
type Bot struct {
	n        *Net
	Addr     netip.AddrPort
	Seq, Ack uint32 // of the next segment: what it has sent, and what it says it has got
	Last     uint32 // end of what the victim has sent
	Window   uint16
	TS       bool
	Up       bool
	Closed   bool // the victim has reset it
	opts     wire.Options
	tsSeen   uint32
	ISS, IRS uint32
}

// Bots makes the attacker ready to open connections.
func (n *Net) Bots() *Bots {
	b := &Bots{n: n, all: map[netip.AddrPort]*Bot{}}
	n.Seen = b.seen
	return b
}

// Open sends a bot's SYN.
func (s *Bots) Open(addr netip.AddrPort, window uint16, opts wire.Options) *Bot {
	b := &Bot{n: s.n, Addr: addr, Seq: 1000, ISS: 1000, Window: window, TS: opts.Set&wire.OptTS != 0, opts: opts}
	s.all[addr] = b
	s.List = append(s.List, b)
	syn := Segment{Src: addr, TCP: wire.TCP{Seq: b.Seq, Flags: wire.SYN, Window: window}, Options: opts}
	b.Seq++
	s.n.Inject(s.n.TCP(&syn))
	return b
}

func (s *Bots) seen(f []byte) {
	p, t, o, ok := Parse(f)
	if !ok {
		return
	}
	b := s.all[netip.AddrPortFrom(p.Dst.Netip(), t.DstPort)]
	if b == nil {
		return
	}
	if o.Set&wire.OptTS != 0 {
		b.tsSeen = o.TSVal
	}
	if t.Flags&wire.RST != 0 {
		b.Closed = true
		return
	}
	if t.Flags&wire.SYN != 0 {
		b.IRS, b.Ack, b.Last, b.Up = t.Seq, t.Seq+1, t.Seq+1, true
		b.Send(wire.ACK, nil)
		return
	}
	if end := t.Seq + uint32(len(t.Payload)); int32(end-b.Last) > 0 {
		b.Last = end
	}
	if s.Behave != nil {
		s.Behave(b, &t, &o)
	}
}

// Send sends a segment with the bot's numbers, which move on by its payload.
func (b *Bot) Send(flags uint16, payload []byte) {
	b.SendAt(b.Seq, flags, payload, wire.Options{})
	b.Seq += uint32(len(payload))
}

// SendAt sends any segment of the bot's connection.
func (b *Bot) SendAt(seq uint32, flags uint16, payload []byte, o wire.Options) {
	if b.TS {
		o.Set |= wire.OptTS
		o.TSVal, o.TSEcr = b.TSVal(), b.tsSeen
	}
	b.n.Inject(b.n.TCP(&Segment{Src: b.Addr, TCP: wire.TCP{Seq: seq, Ack: b.Ack, Flags: flags, Window: b.Window, Payload: payload}, Options: o}))
}

// TSVal is the bot's timestamp clock, of milliseconds.
func (b *Bot) TSVal() uint32 { return uint32(b.n.Clock.now/1e6) + b.ISS }

// Request asks the server for n bytes.
func (b *Bot) Request(n int) {
	b.Send(wire.ACK|wire.PSH, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// Up is how many bots are connected.
func (s *Bots) Up() (up int) {
	for _, b := range s.List {
		if b.Up && !b.Closed {
			up++
		}
	}
	return up
}

// Usual are the options of an ordinary SYN.
var Usual = wire.Options{Set: wire.OptMSS | wire.OptSACKPerm | wire.OptTS | wire.OptWScale, MSS: 1460, WScale: 7}

// BotAddr is the i-th address and port of the attacker, behind the gateway.
func BotAddr(i int) netip.AddrPort {
	return netip.AddrPortFrom(Outside(i/50_000), uint16(10_000+i%50_000))
}
