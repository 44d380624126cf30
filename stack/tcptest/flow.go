package tcptest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Flow is one connection of a Peer.
type Flow struct {
	p *Peer
	// Port is the peer's port, StackPort the stack's.
	Port, StackPort uint16
	// ISS is the peer's initial sequence number, IRS the stack's, once known.
	ISS, IRS uint32
	knowIRS  bool
	// TS adds timestamps to segments that are written without options: the clock in milliseconds plus TSBase, and the last value of
	// the stack.
	TS     bool
	TSBase uint32
	tsSeen uint32
	Conn   *tcp.Conn

	wrote, read uint64 // by the application at the stack
}

// Flow makes a flow between a port of the peer and one of the stack.
func (p *Peer) Flow(port, stackPort uint16) *Flow {
	f := &Flow{p: p, Port: port, StackPort: stackPort, ISS: 1000, TSBase: 5000}
	p.flows = append(p.flows, f)
	return f
}

// Listen makes the stack listen on port 80.
func (p *Peer) Listen(backlog int) *tcp.Listener {
	p.T.Helper()
	l, err := p.Stack.Listen(netip.AddrPortFrom(p.stackIP, 80), backlog)
	if err != nil {
		p.T.Fatal(err)
	}
	return l
}

// Accept returns the flow's connection at the stack.
func (f *Flow) Accept(l *tcp.Listener) *tcp.Conn {
	f.p.T.Helper()
	f.p.run()
	c, err := l.TryAccept()
	if err != nil {
		f.p.T.Fatalf("accept: %v", err)
	}
	f.Conn = c
	return c
}

// Passive opens a connection from the peer to port 80 with the given options, an answer to them expected, and window.
func (p *Peer) Passive(l *tcp.Listener, port uint16, opts string, win int) *Flow {
	p.T.Helper()
	f := p.Flow(port, 80)
	f.Send(fmt.Sprintf("S 0:0(0) win %d <%s>", win, opts))
	f.Expect("S. 0:0(0) ack 1")
	f.Send(fmt.Sprintf(". 1:1(0) ack 1 win %d", win))
	f.Accept(l)
	return f
}

// Connect starts an active open to the peer's port 80 and returns its flow; the SYN has not been expected yet.
func (p *Peer) Connect() *Flow {
	p.T.Helper()
	f := p.Flow(80, 0)
	c, err := p.Stack.Connect(netip.AddrPort{}, netip.AddrPortFrom(p.peerIP, 80))
	if err != nil {
		p.T.Fatal(err)
	}
	f.Conn = c
	f.StackPort = c.Tuple.LocalPort
	return f
}

// Build makes the frame of a segment.
func (f *Flow) Build(text string) []byte {
	f.p.T.Helper()
	s, err := parse(text)
	if err != nil {
		f.p.T.Fatal(err)
	}
	o := s.opts
	if f.TS && !s.hasOpts {
		o.Set |= wire.OptTS
		s.anyVal, s.anyEcr = true, true
	}
	if s.anyVal {
		o.TSVal = uint32(f.p.Clock.now/1e6) + f.TSBase
	}
	if s.anyEcr {
		o.TSEcr = f.tsSeen
	}
	for i := range o.Sack[:o.NSack] {
		o.Sack[i].Start += f.IRS
		o.Sack[i].End += f.IRS
	}
	t := wire.TCP{SrcPort: f.Port, DstPort: f.StackPort, Seq: f.ISS + s.seq, Flags: s.flags, Window: uint16(max(s.win, 0)), Urgent: s.urgent}
	if s.win < 0 {
		t.Window = 65535
	}
	if s.hasAck {
		t.Ack = f.IRS + s.ack
	}
	off := s.seq - 1
	if s.flags&wire.SYN != 0 {
		off++
	}
	b := f.Frame(&t, wire.PutOptions(nil, &o), off, s.n)
	if s.ecn > 0 {
		ip := b[wire.EthLen : wire.EthLen+wire.IPv4Len]
		ip[1] = byte(s.ecn)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip, 0)))
	}
	return b
}

// Frame makes the frame of a segment with any header and options; its n bytes of payload are those at offset off of the stream.
func (f *Flow) Frame(t *wire.TCP, opts []byte, off uint32, n int) []byte {
	hdr := wire.TCPLen + len(opts)
	src, dst := wire.AddrFrom(f.p.peerIP), wire.AddrFrom(f.p.stackIP)
	at := wire.EthLen + wire.IPv6Len
	if src.Is4() {
		at = wire.EthLen + wire.IPv4Len
	}
	b := make([]byte, at+hdr+n)
	if src.Is4() {
		f.p.ipID++
		wire.PutEthernet(b, f.p.his, f.p.mac, wire.EtherTypeIPv4)
		wire.PutIPv4(b[wire.EthLen:], src, dst, wire.ProtoTCP, 0, 64, f.p.ipID, wire.IPv4Len+hdr+n)
	} else {
		wire.PutEthernet(b, f.p.his, f.p.mac, wire.EtherTypeIPv6)
		wire.PutIPv6(b[wire.EthLen:], src, dst, wire.ProtoTCP, 0, 64, 0, hdr+n)
	}
	h := b[at:]
	wire.PutTCP(h, t, hdr)
	copy(h[wire.TCPLen:], opts)
	for i := range n {
		h[hdr+i] = Byte(uint64(off + uint32(i))) // sequence numbers wrap
	}
	binary.BigEndian.PutUint16(h[wire.TCPChecksum:], wire.Fold(wire.Sum(h, wire.PseudoSum(src, dst, wire.ProtoTCP, len(h)))))
	return b
}

// Send sends a segment and lets the stack react. Nothing unexpected may have come before.
func (f *Flow) Send(text string) {
	f.p.T.Helper()
	f.p.Done()
	f.p.SendFrame(f.Build(text))
}

// SendBatch sends segments that the stack receives in one turn.
func (f *Flow) SendBatch(texts ...string) {
	f.p.T.Helper()
	f.p.Done()
	for _, text := range texts {
		f.p.push(f.Build(text))
	}
	f.p.run()
}

// Expect wants the segment as the next that the stack has sent, without time passing. Options that are written must be there, and no
// others; without "<>" only SACK blocks are ruled out. Without "win" any window will do.
func (f *Flow) Expect(text string) wire.TCP {
	f.p.T.Helper()
	f.p.run()
	return f.next(text)
}

// ExpectAfter wants the segment as the next one, to be sent d from now; it may come up to tolerance earlier or later.
func (f *Flow) ExpectAfter(d, tolerance time.Duration, text string) wire.TCP {
	f.p.T.Helper()
	f.p.Done()
	start := f.p.Clock.now
	f.p.advance(start.Add(d+tolerance), true)
	if len(f.p.pending) == 0 {
		f.p.T.Fatalf("at %v: nothing within %v, want %s", f.p.since(start), d+tolerance, text)
	}
	if at := f.p.pending[0].At.Sub(start); at < d-tolerance {
		f.p.T.Fatalf("at %v: %s came after %v, want after %v ± %v", f.p.since(start), f.p.describe(f.p.pending[0].Data), at, d, tolerance)
	}
	return f.next(text)
}

func (f *Flow) next(text string) wire.TCP {
	f.p.T.Helper()
	want, err := parse(text)
	if err != nil {
		f.p.T.Fatal(err)
	}
	if len(f.p.pending) == 0 {
		f.p.T.Fatalf("at %v: nothing came, want %s", f.p.since(f.p.Clock.now), text)
	}
	fr := f.p.pending[0]
	f.p.pending = f.p.pending[1:]
	t, o := f.p.Parse(fr.Data)
	if t.DstPort != f.Port || t.SrcPort != f.StackPort {
		f.p.T.Fatalf("at %v: got %s of ports %d > %d, want %s", f.p.since(fr.At), f.p.describe(fr.Data), t.SrcPort, t.DstPort, text)
	}
	f.learn(&t, &o)
	bad := f.differs(&want, &t, &o)
	if got := int(fr.Data[wire.EthLen+1] & 3); bad == "" && want.ecn >= 0 && got != want.ecn { // Parse has seen an IPv4 packet
		bad = ecnNames[got]
	}
	if bad != "" {
		f.p.T.Fatalf("at %v: got %s, want %s: %s", f.p.since(fr.At), f.describe(&t, &o), text, bad)
	}
	return t
}

// learn takes the stack's initial sequence number and timestamps.
func (f *Flow) learn(t *wire.TCP, o *wire.Options) {
	if t.Flags&wire.SYN != 0 {
		f.IRS, f.knowIRS = t.Seq, true
	}
	if o.Set&wire.OptTS != 0 {
		f.tsSeen = o.TSVal
	}
}

func (f *Flow) differs(want *segment, t *wire.TCP, o *wire.Options) string {
	switch {
	case t.Flags != want.flags:
		return "flags " + flagString(t.Flags)
	case t.Seq-f.irs() != want.seq:
		return fmt.Sprintf("sequence number %d", int32(t.Seq-f.irs()))
	case len(t.Payload) != want.n:
		return fmt.Sprintf("%d bytes", len(t.Payload))
	case want.hasAck && t.Ack-f.ISS != want.ack:
		return fmt.Sprintf("ack %d", int32(t.Ack-f.ISS))
	case want.win >= 0 && int(t.Window) != want.win:
		return fmt.Sprintf("win %d", t.Window)
	}
	first := t.Seq - f.irs() - 1
	if t.Flags&wire.SYN != 0 {
		first++
	}
	for i, b := range t.Payload {
		if off := uint64(first) + uint64(i); b != Byte(off) {
			return fmt.Sprintf("payload at offset %d is wrong", off)
		}
	}
	if !want.hasOpts {
		if o.Set&wire.OptSACK != 0 {
			return "has SACK blocks"
		}
		return ""
	}
	w := want.opts
	if want.anyVal {
		w.TSVal = o.TSVal
	}
	if want.anyEcr {
		w.TSEcr = o.TSEcr
	}
	for i := range w.Sack[:w.NSack] {
		w.Sack[i] = seq.Range{Start: w.Sack[i].Start + f.ISS, End: w.Sack[i].End + f.ISS}
	}
	if got := optionString(o, f.ISS); got != optionString(&w, f.ISS) {
		return "options " + got
	}
	return ""
}

// irs is the stack's initial sequence number; 0 for a reset of something that never had one.
func (f *Flow) irs() uint32 {
	if f.knowIRS {
		return f.IRS
	}
	return 0
}

// Parse verifies a frame of the stack (lengths, checksums, addresses: RFC 9293, MUST-45; MTU) and returns its segment.
func (p *Peer) Parse(frame []byte) (t wire.TCP, o wire.Options) {
	p.T.Helper()
	var pk wire.Packet
	if d := wire.Parse(frame, &pk, false); d != wire.DropNone {
		p.T.Fatalf("the stack sent a bad frame: %v: %x", d, frame)
	}
	if pk.EthDst != p.mac || pk.EthSrc != p.his || pk.Src != wire.AddrFrom(p.stackIP) || pk.Dst != wire.AddrFrom(p.peerIP) {
		p.T.Fatalf("the stack sent a frame with wrong addresses: %x", frame)
	}
	if len(pk.L3) > p.mtu {
		p.T.Fatalf("the stack sent a packet of %d bytes, the MTU is %d", len(pk.L3), p.mtu)
	}
	if pk.Proto != wire.ProtoTCP {
		p.T.Fatalf("unexpected packet of protocol %d: %x", pk.Proto, pk.L3)
	}
	if d := wire.ParseTCP(&pk, &t, false); d != wire.DropNone {
		p.T.Fatalf("the stack sent a bad segment: %v: %x", d, frame)
	}
	if !wire.ParseOptions(t.Opts, &o) {
		p.T.Fatalf("the stack sent bad options: %x", t.Opts)
	}
	return t, o
}

func (f *Flow) describe(t *wire.TCP, o *wire.Options) string {
	s := fmt.Sprintf("%s %d:%d(%d)", flagString(t.Flags), t.Seq-f.irs(), t.Seq-f.irs()+uint32(len(t.Payload)), len(t.Payload))
	if t.Flags&wire.ACK != 0 {
		s += fmt.Sprintf(" ack %d", t.Ack-f.ISS)
	}
	return s + fmt.Sprintf(" win %d %s", t.Window, optionString(o, f.ISS))
}

func (p *Peer) describe(frame []byte) string {
	var pk wire.Packet
	var t wire.TCP
	if wire.Parse(frame, &pk, false) != wire.DropNone || pk.Proto != wire.ProtoTCP || wire.ParseTCP(&pk, &t, false) != wire.DropNone {
		return fmt.Sprintf("%x", frame)
	}
	var o wire.Options
	wire.ParseOptions(t.Opts, &o)
	for _, f := range p.flows {
		if f.Port == t.DstPort && f.StackPort == t.SrcPort {
			return f.describe(&t, &o)
		}
	}
	return fmt.Sprintf("%d > %d %s seq %d ack %d", t.SrcPort, t.DstPort, flagString(t.Flags), t.Seq, t.Ack)
}

// Write makes the application write the next n bytes of its stream, all of which must be taken.
func (f *Flow) Write(n int) {
	f.p.T.Helper()
	k, err := f.Conn.TryWrite(Bytes(f.wrote, n))
	if k != n || err != nil {
		f.p.T.Fatalf("write of %d bytes: %d, %v", n, k, err)
	}
	f.wrote += uint64(n)
	f.p.run()
}

// Read makes the application read up to n bytes and checks them; it returns how many came and the error.
func (f *Flow) Read(n int) (int, error) {
	f.p.T.Helper()
	b := make([]byte, n)
	k, err := f.Conn.TryRead(b)
	for i, v := range b[:k] {
		if v != Byte(f.read+uint64(i)) {
			f.p.T.Fatalf("byte %d of the stream is wrong", f.read+uint64(i))
		}
	}
	f.read += uint64(k)
	f.p.run()
	return k, err
}

// WantRead reads exactly n bytes.
func (f *Flow) WantRead(n int) {
	f.p.T.Helper()
	for left := n; left > 0; {
		k, err := f.Read(left)
		if err != nil {
			f.p.T.Fatalf("read of %d bytes, %d left: %v", n, left, err)
		}
		left -= k
	}
}

// WantReadErr wants a read to end with err.
func (f *Flow) WantReadErr(err error) {
	f.p.T.Helper()
	if n, got := f.Read(1); n != 0 || got != err {
		f.p.T.Fatalf("read: %d, %v, want %v", n, got, err)
	}
}

// WantWriteErr wants a write to end with err.
func (f *Flow) WantWriteErr(err error) {
	f.p.T.Helper()
	if n, got := f.Conn.TryWrite([]byte{1}); n != 0 || got != err {
		f.p.T.Fatalf("write: %d, %v, want %v", n, got, err)
	}
}

// CloseWrite, Close and Abort are the application's, followed by the stack's reaction.
func (f *Flow) CloseWrite() { f.Conn.CloseWrite(); f.p.run() }

// Close closes the connection.
func (f *Flow) Close() { f.Conn.Close(); f.p.run() }

// Abort resets the connection.
func (f *Flow) Abort() { f.Conn.Abort(); f.p.run() }

// State is the connection's state, or "" if it is gone.
func (f *Flow) State() string {
	for _, c := range f.p.Stack.Conns() {
		if c.Local.Port() == f.StackPort && c.Remote.Port() == f.Port {
			return c.State
		}
	}
	return ""
}

// WantState wants the connection in state s.
func (f *Flow) WantState(s string) {
	f.p.T.Helper()
	if got := f.State(); got != s {
		f.p.T.Fatalf("state %q, want %q", got, s)
	}
}

// Info returns the connection's figures.
func (f *Flow) Info() tcp.Info {
	f.p.T.Helper()
	for _, c := range f.p.Stack.Conns() {
		if c.Local.Port() == f.StackPort && c.Remote.Port() == f.Port {
			return c
		}
	}
	f.p.T.Fatal("the connection is gone")
	return tcp.Info{}
}

// Now is the peer's clock.
func (f *Flow) Now() plugins.Time { return f.p.Clock.now }

// ICMP sends an ICMP error, of the flow's family, about a packet of n bytes that the stack sent to this flow, with the given sequence
// number, relative to the stack's initial one. rest is the second word of the error's header.
func (f *Flow) ICMP(typ, code uint8, rest uint32, sq uint32, n int) {
	f.p.T.Helper()
	f.p.Done()
	src, dst := wire.AddrFrom(f.p.stackIP), wire.AddrFrom(f.p.peerIP)
	ports := binary.BigEndian.AppendUint16(nil, f.StackPort)
	ports = binary.BigEndian.AppendUint16(ports, f.Port)
	ports = binary.BigEndian.AppendUint32(ports, f.IRS+sq)
	if !src.Is4() {
		quote := make([]byte, wire.IPv6Len)
		wire.PutIPv6(quote, src, dst, wire.ProtoTCP, 0, 64, 0, n-wire.IPv6Len)
		quote = append(quote, ports...)
		l := wire.ICMPLen + len(quote)
		b := make([]byte, wire.EthLen+wire.IPv6Len+l)
		wire.PutEthernet(b, f.p.his, f.p.mac, wire.EtherTypeIPv6)
		wire.PutIPv6(b[wire.EthLen:], dst, src, wire.ProtoICMPv6, 0, 64, 0, l)
		wire.PutICMP6Error(b[wire.EthLen+wire.IPv6Len:], dst, src, typ, code, rest, quote)
		f.p.SendFrame(b)
		return
	}
	quote := make([]byte, wire.IPv4Len)
	wire.PutIPv4(quote, src, dst, wire.ProtoTCP, 0, 64, 0, n)
	quote = append(quote, ports...)
	l := wire.ICMPLen + len(quote)
	b := make([]byte, wire.EthLen+wire.IPv4Len+l)
	wire.PutEthernet(b, f.p.his, f.p.mac, wire.EtherTypeIPv4)
	wire.PutIPv4(b[wire.EthLen:], dst, src, wire.ProtoICMP, 0, 64, 0, wire.IPv4Len+l)
	wire.PutICMPError(b[wire.EthLen+wire.IPv4Len:], typ, code, rest, quote)
	f.p.SendFrame(b)
}
