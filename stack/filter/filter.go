// Package filter is a packet filter for received packets: an ordered list of rules, the first of which that matches decides.
//
// Rules are compiled into a Table, which never changes: a new list is a new Table. For each field that rules look at, the Table knows
// the elementary ranges between all bounds that rules name, and for each of those the set of rules that it satisfies. A packet costs one
// binary search per field and the intersection of the sets, however many rules there are (the bit vectors of Lakshman and Stiliadis,
// SIGCOMM 1998).
package filter

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Action says what becomes of a packet.
type Action uint8

// Actions.
const (
	Allow  Action = iota
	Deny          // dropped silently
	Reject        // dropped, and its sender told: TCP by a reset, others by ICMP
)

var actionNames = [...]string{"allow", "deny", "reject"}

func (a Action) String() string { return actionNames[a] }

// ParseAction is the inverse of String.
func ParseAction(s string) (Action, error) {
	for i, n := range actionNames {
		if n == s {
			return Action(i), nil
		}
	}
	return 0, fmt.Errorf("filter: %q is no action (allow, deny, reject)", s)
}

// State is what a TCP segment can tell of its connection without looking for it.
type State uint8

// States.
const (
	AnyState    State = iota
	New               // it opens one: SYN without ACK
	Established       // it has ACK or RST
)

// Ports is a range, both ends included.
type Ports struct{ Min, Max uint16 }

// Rule says which packets it matches, and what becomes of them. What is empty matches all; a list matches if one of its elements does.
type Rule struct {
	Action       Action
	Sources      []netip.Prefix
	Destinations []netip.Prefix
	Protocols    []uint8
	SourcePorts  []Ports // of TCP and UDP; other packets have none and do not match
	DestPorts    []Ports
	State        State // of TCP; other packets have none and do not match
}

// Packet is what the rules look at.
type Packet struct {
	Src, Dst         wire.Addr
	Proto            uint8
	HasPorts         bool
	SrcPort, DstPort uint16
	State            State
}

// From fills in p from a parsed packet. Fragments must have been put together.
func (p *Packet) From(w *wire.Packet) {
	p.Src, p.Dst, p.Proto, p.State = w.Src, w.Dst, w.Proto, AnyState
	l4 := w.Payload
	p.HasPorts = (w.Proto == wire.ProtoTCP || w.Proto == wire.ProtoUDP) && len(l4) >= 4
	if !p.HasPorts {
		return
	}
	p.SrcPort, p.DstPort = uint16(l4[0])<<8|uint16(l4[1]), uint16(l4[2])<<8|uint16(l4[3])
	if w.Proto == wire.ProtoTCP && len(l4) >= 14 {
		switch flags := uint16(l4[13]); {
		case flags&(wire.ACK|wire.RST) != 0:
			p.State = Established
		case flags&wire.SYN != 0:
			p.State = New
		}
	}
}

// Table is a compiled list of rules. It may be used by several goroutines.
type Table struct {
	actions []Action // by rule; the last one is the default
	words   int      // of a set of rules
	all     []uint64 // the set of all rules
	fields  []field  // only those that some rule looks at
}

// MaxRules bounds a Table.
const MaxRules = 4096

// Compile makes a Table of rules, and what becomes of packets that none of them matches. Errors name the rule by its number, from 0.
func Compile(rules []Rule, otherwise Action) (*Table, error) {
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("filter: %d rules are more than %d", len(rules), MaxRules)
	}
	t := &Table{words: (len(rules) + 63) / 64}
	for i := range rules {
		if err := rules[i].check(); err != nil {
			return nil, fmt.Errorf("filter: rule %d: %w", i, err)
		}
		t.actions = append(t.actions, rules[i].Action)
	}
	t.actions = append(t.actions, otherwise)
	t.all = make([]uint64, t.words)
	for i := range rules {
		t.all[i/64] |= 1 << (i % 64)
	}
	for kind := range numFields {
		if f, ok := newField(kind, rules, t.words); ok {
			t.fields = append(t.fields, f)
		}
	}
	return t, nil
}

func (r *Rule) check() error {
	for _, ps := range [][]netip.Prefix{r.Sources, r.Destinations} {
		for _, p := range ps {
			if !p.IsValid() || p.Addr().Is4In6() {
				return fmt.Errorf("%v is no prefix", p)
			}
		}
	}
	for _, ps := range [][]Ports{r.SourcePorts, r.DestPorts} {
		for _, p := range ps {
			if p.Min > p.Max {
				return fmt.Errorf("ports %d-%d are no range", p.Min, p.Max)
			}
		}
	}
	if int(r.Action) >= len(actionNames) || r.State > Established {
		return fmt.Errorf("action %d with state %d", r.Action, r.State)
	}
	return nil
}

// Rules is the number of rules.
func (t *Table) Rules() int { return len(t.actions) - 1 }

// Match returns the first rule that matches p, or Rules() if there is none, and what becomes of p.
func (t *Table) Match(p *Packet) (rule int, a Action) {
	var rows [numFields][]uint64
	n := 0
	for i := range t.fields {
		rows[n] = t.fields[i].row(p, t.words)
		n++
	}
	for w, m := range t.all {
		for _, r := range rows[:n] {
			m &= r[w]
		}
		if m != 0 {
			rule = w*64 + bits.TrailingZeros64(m)
			return rule, t.actions[rule]
		}
	}
	rule = len(t.actions) - 1
	return rule, t.actions[rule]
}

// Count is what a rule has matched.
type Count struct{ Packets, Bytes uint64 }

// Filter is one worker's use of a Table: it counts. The zero Filter allows everything.
type Filter struct {
	table  *Table
	counts []Count // by rule; the last one is of the default
}

// Use replaces the table, nil for none, and starts counting anew.
func (f *Filter) Use(t *Table) {
	f.table, f.counts = t, nil
	if t != nil {
		f.counts = make([]Count, t.Rules()+1)
	}
}

// Active reports whether there is a table.
func (f *Filter) Active() bool { return f.table != nil }

// Check says what becomes of a parsed IP packet, and counts it.
func (f *Filter) Check(w *wire.Packet) Action {
	var p Packet
	p.From(w)
	rule, a := f.table.Match(&p)
	c := &f.counts[rule]
	c.Packets++
	c.Bytes += uint64(len(w.L3))
	return a
}

// Counts returns what has been counted, by rule, with the default at the end.
func (f *Filter) Counts() []Count { return append([]Count(nil), f.counts...) }
