package filter

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Fields of a packet.
const (
	fieldProto = iota
	fieldDstPort
	fieldSrc
	fieldState
	fieldDst
	fieldSrcPort
	numFields
)

// value is a field's value as a number of 128 bits.
type value struct{ hi, lo uint64 }

func (v value) compare(w value) int { return cmp.Or(cmp.Compare(v.hi, w.hi), cmp.Compare(v.lo, w.lo)) }

// after is v+1; ok is false beyond the largest.
func (v value) after() (value, bool) {
	v.lo++
	if v.lo == 0 {
		v.hi++
	}
	return v, v != value{}
}

// span is a range of values, both ends included.
type span struct{ min, max value }

// noPort is the value of a port field for packets that have none. No rule that names ports matches it.
const noPort = 1 << 16

// field maps the values of a field to sets of rules.
type field struct {
	kind   int
	small  []uint32 // lowest value of each elementary range but the first, which begins at 0; for all fields but addresses
	bounds []value  // the same, for addresses
	rows   []uint64 // the set of rules for each range, in words of 64
}

// newField compiles a field. ok is false if no rule looks at it.
func newField(kind int, rules []Rule, words int) (f field, ok bool) {
	spans := make([][]span, len(rules))
	f.kind = kind
	for i := range rules {
		spans[i] = spansOf(kind, &rules[i])
		ok = ok || spans[i] != nil
		for _, s := range spans[i] {
			if s.min != (value{}) {
				f.bounds = append(f.bounds, s.min)
			}
			if next, more := s.max.after(); more {
				f.bounds = append(f.bounds, next)
			}
		}
	}
	if !ok {
		return f, false
	}
	slices.SortFunc(f.bounds, value.compare)
	f.bounds = slices.Compact(f.bounds)
	f.rows = make([]uint64, (len(f.bounds)+1)*words)
	for at := range len(f.bounds) + 1 {
		var low value
		if at > 0 {
			low = f.bounds[at-1]
		}
		row := f.rows[at*words:]
		for i, ss := range spans {
			if ss == nil || slices.ContainsFunc(ss, func(s span) bool { return s.min.compare(low) <= 0 && low.compare(s.max) <= 0 }) {
				row[i/64] |= 1 << (i % 64)
			}
		}
	}
	if kind != fieldSrc && kind != fieldDst {
		for _, b := range f.bounds {
			f.small = append(f.small, uint32(b.lo))
		}
		f.bounds = nil
	}
	return f, true
}

// spansOf are the values of a field that a rule matches; nil for all.
func spansOf(kind int, r *Rule) (ss []span) {
	small := func(lo, hi uint64) { ss = append(ss, span{value{lo: lo}, value{lo: hi}}) }
	switch kind {
	case fieldProto:
		for _, p := range r.Protocols {
			small(uint64(p), uint64(p))
		}
	case fieldState:
		if r.State != AnyState {
			small(uint64(r.State), uint64(r.State))
		}
	case fieldSrcPort, fieldDstPort:
		ports := r.SourcePorts
		if kind == fieldDstPort {
			ports = r.DestPorts
		}
		for _, p := range ports {
			small(uint64(p.Min), uint64(p.Max))
		}
	case fieldSrc:
		ss = prefixSpans(r.Sources)
	case fieldDst:
		ss = prefixSpans(r.Destinations)
	}
	return ss
}

// prefixSpans are the addresses of prefixes in the form of wire.Addr. An IPv6 prefix around the v4-mapped addresses has a hole there:
// those are IPv4.
func prefixSpans(ps []netip.Prefix) (ss []span) {
	for _, p := range ps {
		n := p.Bits()
		if p.Addr().Is4() {
			n += 96
		}
		s := span{min: addrValue(wire.AddrFrom(p.Masked().Addr()))}
		s.max = value{s.min.hi | ^mask(n), s.min.lo | ^mask(n-64)}
		if p.Addr().Is4() || s.min.compare(mapped.min) > 0 || s.max.compare(mapped.max) < 0 {
			ss = append(ss, s)
			continue
		}
		ss = append(ss, span{s.min, value{0, mapped.min.lo - 1}}, span{value{0, mapped.max.lo + 1}, s.max})
	}
	return ss
}

// mapped are the v4-mapped addresses, ::ffff:0:0/96.
var mapped = span{value{0, 0xffff << 32}, value{0, 0xffff<<32 | 0xffffffff}}

// mask has the first n of 64 bits set.
func mask(n int) uint64 { return ^(^uint64(0) >> min(max(n, 0), 64)) }

func addrValue(a wire.Addr) value {
	return value{binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:])}
}

// row is the set of rules that p's value satisfies.
func (f *field) row(p *Packet, words int) []uint64 {
	var at int
	switch f.kind {
	case fieldSrc:
		at = f.findAddr(&p.Src)
	case fieldDst:
		at = f.findAddr(&p.Dst)
	case fieldProto:
		at = f.find(uint32(p.Proto))
	case fieldState:
		at = f.find(uint32(p.State))
	case fieldSrcPort:
		at = f.find(port(p.HasPorts, p.SrcPort))
	case fieldDstPort:
		at = f.find(port(p.HasPorts, p.DstPort))
	}
	return f.rows[at*words : (at+1)*words]
}

func port(has bool, n uint16) uint32 {
	if !has {
		return noPort
	}
	return uint32(n)
}

// find is the number of bounds that are not above v.
func (f *field) find(v uint32) int {
	lo, hi := 0, len(f.small)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if f.small[m] <= v {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// findAddr is find for addresses.
func (f *field) findAddr(a *wire.Addr) int {
	v := addrValue(*a)
	lo, hi := 0, len(f.bounds)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if b := &f.bounds[m]; b.hi < v.hi || b.hi == v.hi && b.lo <= v.lo {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}
