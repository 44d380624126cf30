package tcptest

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// segment is a line of a script, parsed.
type segment struct {
	flags   uint16
	seq     uint32 // relative to its sender's initial sequence number
	n       int    // payload bytes
	ack     uint32
	hasAck  bool
	win     int // -1: not said
	opts    wire.Options
	hasOpts bool
	anyVal  bool // ts * in place of a value
	anyEcr  bool
	urgent  uint16
	ecn     int // IP-ECN field; -1: not said
}

// ecnNames are the values of the IP-ECN field as scripts write them.
var ecnNames = [4]string{wire.NotECT: "[noecn]", wire.ECT1: "[ect1]", wire.ECT0: "[ect0]", wire.CE: "[ce]"}

var flagLetters = []struct {
	c byte
	f uint16
}{{'F', wire.FIN}, {'S', wire.SYN}, {'R', wire.RST}, {'P', wire.PSH}, {'.', wire.ACK}, {'U', wire.URG}, {'E', wire.ECE}, {'W', wire.CWR}, {'A', wire.AE}}

func flagString(f uint16) string {
	var b strings.Builder
	for _, l := range flagLetters {
		if f&l.f != 0 {
			b.WriteByte(l.c)
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}

// parse reads "[IP-ECN] FLAGS first:end(len) [ack N] [win N] [<options>]". "-" stands for no flags.
func parse(text string) (s segment, err error) {
	s.win, s.ecn = -1, -1
	for i, name := range ecnNames {
		if rest, ok := strings.CutPrefix(text, name); ok {
			s.ecn, text = i, rest
		}
	}
	line, opts, found := strings.Cut(text, "<")
	if found {
		s.hasOpts = true
		if err := s.parseOptions(strings.TrimSuffix(strings.TrimSpace(opts), ">")); err != nil {
			return s, err
		}
	}
	f := strings.Fields(line)
	if len(f) < 2 {
		return s, fmt.Errorf("%q: want flags and range", text)
	}
	for i := range len(f[0]) {
		j := slices.IndexFunc(flagLetters, func(l struct {
			c byte
			f uint16
		}) bool {
			return l.c == f[0][i]
		})
		switch {
		case j >= 0:
			s.flags |= flagLetters[j].f
		case f[0] != "-":
			return s, fmt.Errorf("%q: unknown flag %c", text, f[0][i])
		}
	}
	var end uint32
	if _, err := fmt.Sscanf(f[1], "%d:%d(%d)", &s.seq, &end, &s.n); err != nil || end-s.seq != uint32(s.n) {
		return s, fmt.Errorf("%q: bad range %q", text, f[1])
	}
	for f = f[2:]; len(f) >= 2; f = f[2:] {
		v, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil {
			return s, fmt.Errorf("%q: %w", text, err)
		}
		switch f[0] {
		case "ack":
			s.ack, s.hasAck = uint32(v), true
		case "win":
			s.win = int(v)
		case "urg":
			s.urgent = uint16(v)
		default:
			return s, fmt.Errorf("%q: unknown word %q", text, f[0])
		}
	}
	if len(f) > 0 {
		return s, fmt.Errorf("%q: trailing %q", text, f)
	}
	if s.hasAck != (s.flags&wire.ACK != 0) {
		return s, fmt.Errorf("%q: flag . and word ack go together", text)
	}
	return s, nil
}

func (s *segment) parseOptions(text string) error {
	for _, o := range strings.Split(text, ",") {
		f := strings.Fields(o)
		if len(f) == 0 {
			continue
		}
		num := func(i int) uint32 {
			if i >= len(f) {
				return 0
			}
			v, _ := strconv.ParseUint(f[i], 10, 32)
			return uint32(v)
		}
		switch f[0] {
		case "mss":
			s.opts.Set |= wire.OptMSS
			s.opts.MSS = uint16(num(1))
		case "ws":
			s.opts.Set |= wire.OptWScale
			s.opts.WScale = uint8(num(1))
		case "sackOK":
			s.opts.Set |= wire.OptSACKPerm
		case "ts":
			s.opts.Set |= wire.OptTS
			s.opts.TSVal, s.opts.TSEcr = num(1), num(2)
			s.anyVal = len(f) < 2 || f[1] == "*"
			s.anyEcr = len(f) < 3 || f[2] == "*"
		case "FO":
			s.opts.Set |= wire.OptFastOpen
			if len(f) > 1 {
				b, err := hex.DecodeString(f[1])
				if err != nil {
					return fmt.Errorf("bad cookie %q", f[1])
				}
				s.opts.NCookie = uint8(copy(s.opts.Cookie[:], b))
			}
		case "uto": // seconds, or minutes with an m behind
			s.opts.Set |= wire.OptUserTimeout
			n, minutes := strings.CutSuffix(strings.Join(f[1:], ""), "m")
			v, err := strconv.ParseUint(n, 10, 15)
			if err != nil {
				return fmt.Errorf("bad timeout %q", o)
			}
			if s.opts.UserTimeout = uint16(v); minutes {
				s.opts.UserTimeout |= 1 << 15
			}
		case "accecn": // bytes of ECT(0), CE and ECT(1)
			s.opts.Set |= wire.OptAccECN
			for i, c := range []int{wire.ECT0, wire.CE, wire.ECT1}[:len(f)-1] {
				s.opts.ECNSet |= 1 << c
				s.opts.ECNBytes[c] = num(1 + i)
			}
		case "sack":
			s.opts.Set |= wire.OptSACK
			for _, b := range f[1:] {
				var lo, hi uint32
				if _, err := fmt.Sscanf(b, "%d:%d", &lo, &hi); err != nil {
					return fmt.Errorf("bad SACK block %q", b)
				}
				s.opts.Sack[s.opts.NSack] = seq.Range{Start: lo, End: hi}
				s.opts.NSack++
			}
		default:
			return fmt.Errorf("unknown option %q", f[0])
		}
	}
	return nil
}

// optionString writes options as scripts do, with SACK blocks relative to base.
func optionString(o *wire.Options, base uint32) string {
	var s []string
	if o.Set&wire.OptMSS != 0 {
		s = append(s, fmt.Sprintf("mss %d", o.MSS))
	}
	if o.Set&wire.OptSACKPerm != 0 {
		s = append(s, "sackOK")
	}
	if o.Set&wire.OptTS != 0 {
		s = append(s, fmt.Sprintf("ts %d %d", o.TSVal, o.TSEcr))
	}
	if o.Set&wire.OptWScale != 0 {
		s = append(s, fmt.Sprintf("ws %d", o.WScale))
	}
	if o.Set&wire.OptFastOpen != 0 {
		s = append(s, strings.TrimSpace(fmt.Sprintf("FO %x", o.Cookie[:o.NCookie])))
	}
	if o.Set&wire.OptUserTimeout != 0 {
		s = append(s, fmt.Sprintf("uto %v", wire.UserTimeoutOf(o.UserTimeout)))
	}
	if o.Set&wire.OptAccECN != 0 {
		a := "accecn"
		for _, c := range []int{wire.ECT0, wire.CE, wire.ECT1} {
			if o.ECNSet&(1<<c) != 0 {
				a += fmt.Sprintf(" %d", o.ECNBytes[c])
			}
		}
		s = append(s, a)
	}
	if o.Set&wire.OptSACK != 0 {
		b := "sack"
		for _, r := range o.Sack[:o.NSack] {
			b += fmt.Sprintf(" %d:%d", r.Start-base, r.End-base)
		}
		s = append(s, b)
	}
	return "<" + strings.Join(s, ",") + ">"
}

// Byte is the content of every stream at offset off: bytes that are out of place show.
func Byte(off uint64) byte { return byte(off*131 + off>>8*29 + off>>16) }

// Fill writes the stream's bytes from off on to p.
func Fill(p []byte, off uint64) {
	for i := range p {
		p[i] = Byte(off + uint64(i))
	}
}

// Bytes returns n bytes of the stream from off on.
func Bytes(off uint64, n int) []byte {
	p := make([]byte, n)
	Fill(p, off)
	return p
}
