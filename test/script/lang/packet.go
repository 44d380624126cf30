package lang

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

var flagBits = map[byte]uint16{
	'F': wire.FIN, 'S': wire.SYN, 'R': wire.RST, 'P': wire.PSH, '.': wire.ACK, 'U': wire.URG, 'E': wire.ECE, 'W': wire.CWR,
	'A': wire.AE,
}

// packet: direction [ip info] [ports] and TCP, UDP or ICMP.
func (p *parser) packet() *Packet {
	k := &Packet{In: p.is("<"), ECN: ECNAny, TOS: -1, TTL: -1, FlowLabel: -1, ACE: -1, Win: -1, MTU: -1}
	p.advance()
	if p.is("ipv4") || p.is("ipv6") || p.is("gre") || p.is("GREv0") || p.is("mpls") {
		p.unsupported("encapsulation in " + p.tok.text)
	}
	if p.is("[") || p.is("(") {
		p.ipInfo(k)
	}
	if p.is("udp") || p.is("icmp") {
		udp := p.is("udp")
		p.advance()
		p.ports(k)
		if udp {
			k.Proto = UDP
			p.want("(")
			k.Len = int(p.number("the payload's length", 65535))
			p.want(")")
			return k
		}
		k.Proto = ICMP
		p.icmp(k)
		return k
	}
	p.ports(k)
	p.flags(k)
	k.Seq, k.Len = p.sequence()
	if p.accept("ack") {
		k.Ack = uint32(p.number("an acknowledgement", math.MaxUint32))
	}
	if p.accept("win") {
		k.Win = int(p.number("a window", 65535))
	}
	if p.accept("urg") {
		k.Urg = uint16(p.number("an urgent pointer", 65535))
	}
	// After what is sent to the stack "<" begins options; no event begins with it.
	if p.is("<") {
		p.options(k)
	}
	if p.is("{") {
		p.unsupported("mutation of packets")
	}
	return k
}

func (p *parser) ipInfo(k *Packet) {
	end := "]"
	if p.is("(") {
		end = ")"
	}
	p.advance()
	for {
		switch {
		case p.accept("noecn"):
			k.ECN = NotECT
		case p.accept("ect0"):
			k.ECN = ECT0
		case p.accept("ect1"):
			k.ECN = ECT1
		case p.accept("ce"):
			k.ECN = CE
		case p.is("ect01"):
			if k.In {
				p.fail("ect01 is for packets that are expected")
			}
			p.advance()
			k.ECN = ECT01
		case p.accept("tos"):
			k.TOS = int(p.number("a type of service", 255))
		case p.accept("ttl"):
			k.TTL = int(p.number("a time to live", 255))
		case p.accept("flowlabel"):
			k.FlowLabel = int(p.number("a flow label", 1<<20-1))
		default:
			p.fail("unknown property of IP %v", p.tok)
		}
		if !p.accept(",") {
			break
		}
	}
	p.want(end)
}

// ports: SRC > DST, before the flags.
func (p *parser) ports(k *Packet) {
	if p.tok.kind != tInt {
		return
	}
	k.SrcPort = uint16(p.number("a port", 65535))
	p.want(">")
	k.DstPort = uint16(p.number("a port", 65535))
}

// flags: letters and a dot for ACK; a digit after the dot is the ACE field; "-" for none.
func (p *parser) flags(k *Packet) {
	if p.accept("-") {
		return
	}
	text := ""
	for end := -1; p.tok.kind == tWord || p.tok.kind == tFloat || p.is("."); {
		if end >= 0 && p.tok.pos != end {
			break // a word of its own
		}
		text += p.tok.text
		end = p.tok.pos + len(p.tok.text)
		p.advance()
	}
	if text == "" {
		p.fail("want the flags of a segment, not %v", p.tok)
	}
	for i := range len(text) {
		c := text[i]
		if c >= '0' && c <= '7' {
			k.ACE = int(c - '0')
			k.Flags |= uint16(k.ACE&1)*wire.ECE | uint16(k.ACE>>1&1)*wire.CWR | uint16(k.ACE>>2)*wire.AE
			continue
		}
		b, ok := flagBits[c]
		if !ok {
			p.fail("unknown flag %q", c)
		}
		k.Flags |= b
	}
}

// sequence: first:end(length).
func (p *parser) sequence() (first uint32, n int) {
	first = uint32(p.number("a sequence number", math.MaxUint32))
	p.want(":")
	end := uint32(p.number("a sequence number", math.MaxUint32))
	p.want("(")
	n = int(p.number("a length", 1<<30))
	p.want(")")
	if end != first+uint32(n) {
		p.fail("sequence numbers %d:%d and the length %d disagree", first, end, n)
	}
	return first, n
}

func (p *parser) icmp(k *Packet) {
	k.ICMPType = p.take(tWord, "a type of ICMP").text
	if p.tok.kind == tWord && !p.is("mtu") && !p.is("id") {
		k.ICMPCode = p.tok.text
		p.advance()
	}
	if p.accept("mtu") {
		k.MTU = int(p.number("an MTU", 65535))
	}
	if p.accept("id") {
		p.number("an identifier", 65535)
	}
	if !p.accept("[") {
		return
	}
	if p.accept("udp") {
		k.Echoed = UDP
		p.want("(")
		k.EchoLen = int(p.number("a length", 65535))
		p.want(")")
	} else {
		k.EchoSeq, k.EchoLen = p.sequence()
	}
	p.want("]")
}

func (p *parser) options(k *Packet) {
	p.want("<")
	if p.tok.kind == tEllipsis {
		if k.In {
			p.fail("<...> is for packets that are expected")
		}
		p.advance()
		p.want(">")
		k.AnyOpts = true
		return
	}
	for {
		k.Opts = append(k.Opts, p.option())
		if !p.accept(",") {
			break
		}
	}
	p.want(">")
	if n := len(AppendOptions(nil, k.Opts)); n > 40 {
		p.fail("%d bytes of options do not fit", n)
	} else if n%4 != 0 {
		p.fail("%d bytes of options: pad them with nop to a multiple of 4", n)
	}
}

func (p *parser) option() Opt {
	name := p.take(tWord, "a TCP option").text
	u32 := func(what string) uint32 { return uint32(p.number(what, math.MaxUint32)) }
	switch name {
	case "nop":
		return Opt{Kind: OptNOP}
	case "eol":
		return Opt{Kind: OptEOL}
	case "mss":
		return Opt{Kind: OptMSS, Num: uint32(p.number("an MSS", 65535))}
	case "wscale":
		return Opt{Kind: OptWScale, Num: uint32(p.number("a shift count", 255))}
	case "sackOK":
		return Opt{Kind: OptSACKOK}
	case "sack":
		o := Opt{Kind: OptSACK}
		for p.tok.kind == tInt {
			lo := u32("an edge")
			p.want(":")
			o.Blocks = append(o.Blocks, [2]uint32{lo, u32("an edge")})
		}
		if len(o.Blocks) == 0 {
			p.fail("sack without blocks")
		}
		return o
	case "TS":
		o := Opt{Kind: OptTS}
		p.want("val")
		o.Val = u32("a timestamp")
		p.want("ecr")
		o.Ecr = u32("a timestamp")
		return o
	case "FO":
		return Opt{Kind: OptFO, Data: p.cookie()}
	case "FOEXP":
		return Opt{Kind: OptExp, Data: append([]byte{0xf9, 0x89}, p.cookie()...)} // the experiment's number, RFC 7413, A.3
	case "ECN":
		return p.accECN()
	}
	p.unsupported("TCP option " + name)
	return Opt{}
}

func (p *parser) cookie() []byte {
	if p.tok.kind != tWord && p.tok.kind != tInt {
		return nil
	}
	text := strings.TrimPrefix(p.tok.text, "0x")
	b, err := hex.DecodeString(text)
	if err != nil {
		p.fail("cookie %v is no even number of hexadecimal digits", p.tok)
	}
	p.advance()
	return b
}

// accECN: counters of the AccECN option (RFC 9768, 3.2.3), in the order of the wire; the first one tells the kind.
func (p *parser) accECN() Opt {
	o := Opt{Kind: OptAccECN0}
	orders := map[uint8][]string{OptAccECN0: {"e0b", "ceb", "e1b"}, OptAccECN1: {"e1b", "ceb", "e0b"}}
	if p.is("e1b") {
		o.Kind = OptAccECN1
	}
	for _, name := range orders[o.Kind] {
		if !p.accept(name) {
			break
		}
		v := p.number("a counter", 1<<24-1)
		o.Data = append(o.Data, byte(v>>16), byte(v>>8), byte(v))
	}
	if p.tok.kind == tWord {
		p.fail("%v is no counter that may come here", p.tok)
	}
	return o
}

// AppendOptions appends the options as on the wire, unpadded.
func AppendOptions(b []byte, opts []Opt) []byte {
	u32 := func(v uint32) { b = append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v)) }
	for i := range opts {
		o := &opts[i]
		switch o.Kind {
		case OptEOL, OptNOP:
			b = append(b, o.Kind)
		case OptMSS:
			b = append(b, o.Kind, 4, byte(o.Num>>8), byte(o.Num))
		case OptWScale:
			b = append(b, o.Kind, 3, byte(o.Num))
		case OptSACKOK:
			b = append(b, o.Kind, 2)
		case OptSACK:
			b = append(b, o.Kind, byte(2+8*len(o.Blocks)))
			for _, r := range o.Blocks {
				u32(r[0])
				u32(r[1])
			}
		case OptTS:
			b = append(b, o.Kind, 10)
			u32(o.Val)
			u32(o.Ecr)
		default:
			b = append(b, o.Kind, byte(2+len(o.Data)))
			b = append(b, o.Data...)
		}
	}
	return b
}

// ParseOptions is the inverse of AppendOptions; it returns false for what is cut off.
func ParseOptions(b []byte) (opts []Opt, ok bool) {
	u32 := func(b []byte) uint32 { return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) }
	for len(b) > 0 {
		o := Opt{Kind: b[0]}
		if o.Kind == OptEOL || o.Kind == OptNOP {
			opts, b = append(opts, o), b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return opts, false
		}
		d := b[2:b[1]]
		switch {
		case o.Kind == OptMSS && len(d) == 2:
			o.Num = uint32(d[0])<<8 | uint32(d[1])
		case o.Kind == OptWScale && len(d) == 1:
			o.Num = uint32(d[0])
		case o.Kind == OptSACKOK && len(d) == 0:
		case o.Kind == OptSACK && len(d) > 0 && len(d)%8 == 0:
			for i := 0; i < len(d); i += 8 {
				o.Blocks = append(o.Blocks, [2]uint32{u32(d[i:]), u32(d[i+4:])})
			}
		case o.Kind == OptTS && len(d) == 8:
			o.Val, o.Ecr = u32(d), u32(d[4:])
		default:
			o.Data = append([]byte(nil), d...)
		}
		opts, b = append(opts, o), b[2+len(d):]
	}
	return opts, true
}

// FormatOptions writes options as scripts do.
func FormatOptions(opts []Opt) string {
	var s []string
	for i := range opts {
		o := &opts[i]
		switch o.Kind {
		case OptEOL:
			s = append(s, "eol")
		case OptNOP:
			s = append(s, "nop")
		case OptMSS:
			s = append(s, "mss "+strconv.Itoa(int(o.Num)))
		case OptWScale:
			s = append(s, "wscale "+strconv.Itoa(int(o.Num)))
		case OptSACKOK:
			s = append(s, "sackOK")
		case OptSACK:
			t := "sack"
			for _, r := range o.Blocks {
				t += " " + strconv.FormatUint(uint64(r[0]), 10) + ":" + strconv.FormatUint(uint64(r[1]), 10)
			}
			s = append(s, t)
		case OptTS:
			s = append(s, "TS val "+strconv.FormatUint(uint64(o.Val), 10)+" ecr "+strconv.FormatUint(uint64(o.Ecr), 10))
		case OptFO:
			s = append(s, strings.TrimSpace("FO "+hex.EncodeToString(o.Data)))
		case OptAccECN0, OptAccECN1:
			s = append(s, formatAccECN(o))
		default:
			s = append(s, "option "+strconv.Itoa(int(o.Kind))+" "+hex.EncodeToString(o.Data))
		}
	}
	return "<" + strings.Join(s, ",") + ">"
}

func formatAccECN(o *Opt) string {
	names := []string{"e0b", "ceb", "e1b"}
	if o.Kind == OptAccECN1 {
		names = []string{"e1b", "ceb", "e0b"}
	}
	s := "ECN"
	for i := 0; i+3 <= len(o.Data) && i < 9; i += 3 {
		s += " " + names[i/3] + " " + strconv.Itoa(int(o.Data[i])<<16|int(o.Data[i+1])<<8|int(o.Data[i+2]))
	}
	return s
}

// FormatFlags writes flags as scripts do.
func FormatFlags(f uint16) string {
	s := ""
	for _, c := range []byte("SFRPUEWA.") {
		if f&flagBits[c] != 0 {
			s += string(c)
		}
	}
	if s == "" {
		return "-"
	}
	return s
}
