package main

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/wire"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

// flow is a connection as the script sees it. Sequence numbers of scripts are relative to the initial ones, but for those of SYNs, which
// are taken as they stand; timestamps of the stack are mapped to those that the script expects.
type flow struct {
	local, remote         netip.Addr
	localPort, remotePort uint16

	iss, scriptISS uint32 // of the stack, live and in the script
	knowISS        bool
	irs            uint32 // of the script's end
	knowIRS        bool
	newSYN         bool // the script has sent a SYN that the stack may take for a new connection
	lastSYN        uint32
	plain          bool // the application writes text of its own: the content is not known

	ts                    map[uint32]uint32 // timestamps of the stack: script to live
	haveTS                bool
	firstScript, firstTSV uint32
}

func (f *flow) is(s *segment) bool {
	return s.srcPort == f.localPort && s.dstPort == f.remotePort && s.src == f.local && s.dst == f.remote
}

// toStack translates a packet of the script.
func (f *flow) toStack(p *lang.Packet) (*segment, error) {
	s := &segment{src: f.remote, dst: f.local, srcPort: f.remotePort, dstPort: f.localPort, ttl: 255, flags: p.Flags, urg: p.Urg, flowLabel: p.FlowLabel}
	if p.TTL >= 0 {
		s.ttl = uint8(p.TTL)
	}
	if p.TOS >= 0 {
		s.tos = uint8(p.TOS)
	}
	if p.ECN > 0 {
		s.tos |= uint8(p.ECN)
	}
	if s.win = 65535; p.Win >= 0 {
		s.win = uint16(p.Win)
	}
	syn := p.Flags&wire.SYN != 0
	s.seq = p.Seq + f.irs
	if syn {
		s.seq = p.Seq
	}
	base := uint32(0)
	if f.knowISS {
		if base = f.iss; syn {
			base -= f.scriptISS
		}
	}
	if p.Flags&wire.ACK != 0 || p.Ack != 0 {
		s.ack = p.Ack + base
	}
	opts := make([]lang.Opt, len(p.Opts))
	copy(opts, p.Opts)
	for i := range opts {
		o := &opts[i]
		switch o.Kind {
		case lang.OptSACK:
			b := append([][2]uint32(nil), o.Blocks...)
			for j := range b {
				b[j][0] += base
				b[j][1] += base
			}
			o.Blocks = b
		case lang.OptTS:
			if p.Flags&wire.ACK != 0 {
				o.Ecr = f.liveTS(o.Ecr)
			}
		}
	}
	s.opts = lang.AppendOptions(nil, opts)
	s.data = make([]byte, p.Len)
	off := s.seq - f.irs - 1
	if syn {
		off = 0
	}
	fill(s.data, off)
	if max := 65535 - ipv6Len - tcpLen - len(s.opts); p.Len > max {
		return nil, fmt.Errorf("%d bytes of payload do not fit into a packet", p.Len)
	}
	return s, nil
}

// liveTS is the stack's timestamp that the script knows as v.
func (f *flow) liveTS(v uint32) uint32 {
	if live, ok := f.ts[v]; ok {
		return live
	}
	if f.haveTS {
		return v - f.firstScript + f.firstTSV
	}
	return v
}

// toScript translates a segment of the stack to the numbers of the script, learning from the first ones. want is what the script expects.
func (f *flow) toScript(live *segment, want *lang.Packet) (s segment, opts []lang.Opt, err error) {
	s = *live
	opts, ok := lang.ParseOptions(live.opts)
	if !ok {
		return s, nil, fmt.Errorf("options that are cut off: %x", live.opts)
	}
	syn := live.flags&wire.SYN != 0
	if syn && (!f.knowISS || f.newSYN && live.flags&wire.ACK != 0 && live.ack == f.lastSYN+1 && live.seq != f.iss) {
		f.iss, f.scriptISS, f.knowISS = live.seq, want.Seq, true
		if live.flags&wire.ACK != 0 {
			f.irs, f.knowIRS = live.ack-1, true
		}
		f.ts, f.haveTS = nil, false
	}
	if syn && live.flags&wire.ACK != 0 {
		f.newSYN = false
	}
	if f.knowISS {
		s.seq -= f.iss
		if syn {
			s.seq += f.scriptISS
		}
	}
	if !syn && live.flags&wire.ACK != 0 {
		s.ack -= f.irs
	}
	for i := range opts {
		switch o := &opts[i]; o.Kind {
		case lang.OptSACK:
			for j := range o.Blocks {
				o.Blocks[j][0] -= f.irs
				o.Blocks[j][1] -= f.irs
			}
		case lang.OptTS:
			f.learnTS(o, want)
		}
	}
	return s, opts, nil
}

// learnTS maps a timestamp of the stack to the script's.
func (f *flow) learnTS(o *lang.Opt, want *lang.Packet) {
	for i := range want.Opts {
		w := &want.Opts[i]
		if w.Kind != lang.OptTS {
			continue
		}
		if !f.haveTS {
			f.haveTS, f.firstScript, f.firstTSV = true, w.Val, o.Val
			f.ts = map[uint32]uint32{}
		}
		f.ts[w.Val] = o.Val
	}
	if f.haveTS {
		o.Val = o.Val - f.firstTSV + f.firstScript
	}
}

// compare returns how a segment differs from what the script expects, or "". more says that further segments belong to the expected one.
func (f *flow) compare(got *segment, opts []lang.Opt, want *lang.Packet, done int, more bool, r *runner) string {
	flags, wantFlags := got.flags, want.Flags
	if more { // the last one has these
		flags &^= wire.PSH | wire.FIN
		wantFlags &^= wire.PSH | wire.FIN
	}
	switch {
	case want.ECN == lang.ECT01 && got.tos&3 != lang.ECT0 && got.tos&3 != lang.ECT1, want.ECN >= 0 && want.ECN <= lang.CE && int(got.tos&3) != want.ECN:
		return fmt.Sprintf("ECN bits %d", got.tos&3)
	case want.TOS >= 0 && int(got.tos) != want.TOS:
		return fmt.Sprintf("TOS %#x", got.tos)
	case want.TTL >= 0 && int(got.ttl) != want.TTL:
		return fmt.Sprintf("TTL %d", got.ttl)
	case want.FlowLabel >= 0 && got.flowLabel != want.FlowLabel:
		return fmt.Sprintf("flow label %#x", got.flowLabel)
	case flags != wantFlags:
		return "flags " + lang.FormatFlags(got.flags)
	case got.seq != want.Seq+uint32(done):
		return fmt.Sprintf("sequence number %d", got.seq)
	case !more && done+len(got.data) != want.Len:
		return fmt.Sprintf("%d bytes of payload", done+len(got.data))
	case got.ack != want.Ack:
		return fmt.Sprintf("ack %d", got.ack)
	case want.Win >= 0 && int(got.win) != want.Win:
		return fmt.Sprintf("win %d", got.win)
	case got.urg != want.Urg:
		return fmt.Sprintf("urg %d", got.urg)
	}
	if !want.AnyOpts {
		if d := f.compareOptions(opts, want.Opts, r); d != "" {
			return d
		}
	}
	return f.content(got)
}

func (f *flow) compareOptions(got, want []lang.Opt, r *runner) string {
	g := append([]lang.Opt(nil), got...)
	if r.set.tsTick == 0 { // only the echo is compared
		for i := range g {
			if i < len(want) && g[i].Kind == lang.OptTS && want[i].Kind == lang.OptTS {
				g[i].Val = want[i].Val
			}
		}
	} else if !r.set.exact {
		tol := uint32(r.set.tolUsecs/r.set.tsTick + 1)
		for i := range g {
			if i < len(want) && g[i].Kind == lang.OptTS && want[i].Kind == lang.OptTS && g[i].Val-want[i].Val+tol <= 2*tol {
				g[i].Val = want[i].Val
			}
		}
	}
	if !bytes.Equal(lang.AppendOptions(nil, g), lang.AppendOptions(nil, want)) {
		return "options " + lang.FormatOptions(got)
	}
	return ""
}

// content compares the payload with what the application wrote.
func (f *flow) content(got *segment) string {
	if f.plain || len(got.data) == 0 || !f.knowISS {
		return ""
	}
	off := got.seq - 1
	if got.flags&wire.SYN != 0 {
		off = 0
	}
	if int32(off) < 0 {
		return "" // a probe of what was acknowledged
	}
	for i, b := range got.data {
		if b != pattern(off+uint32(i)) {
			return fmt.Sprintf("other content at offset %d of the stream", off+uint32(i))
		}
	}
	return ""
}
