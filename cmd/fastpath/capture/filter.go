// Package capture holds what a live capture needs: a filter language over Ethernet frames.
//
// It is the part of pcap-filter(7) that fits a TCP/IP stack:
//
//	ip | arp | icmp | tcp | udp | ip6 | icmp6
//	[src | dst] host ADDR
//	[src | dst] net PREFIX
//	[src | dst] port N
//	tcp-syn | tcp-ack | tcp-fin | tcp-rst | tcp-push
//	less N | greater N
//	not E, E and E, E or E, ( E )     also !, &&, ||
//
// "host", "net", "port" without src or dst match either side. As in pcap-filter, "and" and "or" have the same precedence and
// associate to the left, and "not" binds tighter. An empty expression matches everything.
package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"unicode"
)

// Filter tells which frames to keep.
type Filter struct {
	match func(f frame) bool // nil: all
}

// Match reports whether the filter keeps an Ethernet frame. It does not allocate.
func (f *Filter) Match(data []byte) bool {
	if f == nil || f.match == nil {
		return true
	}
	var fr frame
	fr.parse(data)
	return f.match(fr)
}

// Bounds of an expression.
const (
	maxExpr  = 4096 // bytes
	maxDepth = 100  // parentheses and nots
)

// Parse compiles a filter expression.
func Parse(expr string) (*Filter, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("filter: %d bytes are too many (at most %d)", len(expr), maxExpr)
	}
	p := parser{words: split(expr)}
	if len(p.words) == 0 {
		return &Filter{}, nil
	}
	m, err := p.expr()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("unexpected %q", p.peek())
	}
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	return &Filter{m}, nil
}

// split cuts expr into words and operators.
func split(expr string) []string {
	var words []string
	word := ""
	flush := func() {
		if word != "" {
			words = append(words, word)
			word = ""
		}
	}
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case unicode.IsSpace(rune(c)):
			flush()
		case c == '(' || c == ')' || c == '!':
			flush()
			words = append(words, string(c))
		case (c == '&' || c == '|') && i+1 < len(expr) && expr[i+1] == c:
			flush()
			words = append(words, expr[i:i+2])
			i++
		default:
			word += string(c)
		}
	}
	flush()
	return words
}

type matcher = func(frame) bool

type parser struct {
	words []string
	depth int
}

func (p *parser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *parser) next() string {
	w := p.peek()
	if w != "" {
		p.words = p.words[1:]
	}
	return w
}

func (p *parser) expr() (matcher, error) {
	m, err := p.factor()
	for err == nil {
		a := m
		var b matcher
		switch p.peek() {
		case "and", "&&":
			p.next()
			b, err = p.factor()
			m = func(f frame) bool { return a(f) && b(f) }
		case "or", "||":
			p.next()
			b, err = p.factor()
			m = func(f frame) bool { return a(f) || b(f) }
		default:
			return m, nil
		}
	}
	return nil, err
}

func (p *parser) factor() (matcher, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errors.New("too deep")
	}
	defer func() { p.depth-- }()
	switch w := p.peek(); w {
	case "not", "!":
		p.next()
		m, err := p.factor()
		return func(f frame) bool { return !m(f) }, err
	case "(":
		p.next()
		m, err := p.expr()
		if err == nil && p.next() != ")" {
			err = errors.New(`")" is missing`)
		}
		return m, err
	}
	return p.primitive()
}

const (
	src = 1 << iota
	dst
)

func (p *parser) primitive() (matcher, error) {
	side := src | dst
	switch p.peek() {
	case "src":
		p.next()
		side = src
	case "dst":
		p.next()
		side = dst
	}
	w := p.next()
	if side != src|dst && w != "host" && w != "net" && w != "port" {
		return nil, fmt.Errorf("want host, net or port after src or dst, have %q", w)
	}
	if m, ok := protocols[w]; ok {
		return m, nil
	}
	if bit, ok := tcpFlags[w]; ok {
		return func(f frame) bool { return f.flags&bit != 0 }, nil
	}
	switch w {
	case "":
		return nil, errors.New("something is missing at the end")
	case "host":
		a, err := netip.ParseAddr(p.peek())
		p.next()
		return func(f frame) bool { return side&src != 0 && f.src == a || side&dst != 0 && f.dst == a }, err
	case "net":
		n, err := netip.ParsePrefix(p.peek())
		p.next()
		return func(f frame) bool {
			return side&src != 0 && n.Contains(f.src) || side&dst != 0 && n.Contains(f.dst)
		}, err
	case "port":
		n, err := p.number(65535)
		port := uint16(n)
		return func(f frame) bool {
			return f.ports && (side&src != 0 && f.srcPort == port || side&dst != 0 && f.dstPort == port)
		}, err
	case "less":
		n, err := p.number(1 << 20)
		return func(f frame) bool { return f.length <= n }, err
	case "greater":
		n, err := p.number(1 << 20)
		return func(f frame) bool { return f.length >= n }, err
	}
	return nil, fmt.Errorf("unknown word %q", w)
}

func (p *parser) number(most int) (int, error) {
	w := p.next()
	n, err := strconv.ParseUint(w, 10, 31)
	if err != nil || int(n) > most {
		return 0, fmt.Errorf("%q is not a number up to %d", w, most)
	}
	return int(n), nil
}

var protocols = map[string]matcher{
	"ip":    func(f frame) bool { return f.etherType == 0x0800 },
	"ip6":   func(f frame) bool { return f.etherType == 0x86dd },
	"arp":   func(f frame) bool { return f.etherType == 0x0806 },
	"icmp":  func(f frame) bool { return f.etherType == 0x0800 && f.proto == 1 },
	"icmp6": func(f frame) bool { return f.etherType == 0x86dd && f.proto == 58 },
	"tcp":   func(f frame) bool { return f.proto == 6 },
	"udp":   func(f frame) bool { return f.proto == 17 },
}

var tcpFlags = map[string]uint8{"tcp-fin": 1, "tcp-syn": 2, "tcp-rst": 4, "tcp-push": 8, "tcp-ack": 16}
