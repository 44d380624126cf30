package frag

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// oracle reassembles in the plainest way: all payloads that were taken, and the rules.
type oracle struct {
	frags    []piece
	end      int
	dead     bool
	deadline plugins.Time
}

// add returns the payload if it is complete.
func (o *oracle) add(off int, more bool, data []byte) ([]byte, Drop) {
	if o.dead {
		return nil, Dead
	}
	end := off + len(data)
	for _, p := range o.frags {
		if p.off == off && p.end == end && bytes.Equal(p.data, data) {
			return nil, Duplicate
		}
	}
	last := 0
	for _, p := range o.frags {
		if off < p.end && p.off < end {
			o.dead = true
			return nil, Overlap
		}
		last = max(last, p.end)
	}
	if o.end >= 0 && (end > o.end || !more && end != o.end) || !more && last > end {
		o.dead = true
		return nil, End
	}
	o.frags = append(o.frags, piece{off, end, bytes.Clone(data)})
	if !more {
		o.end = end
	}
	got := 0
	for _, p := range o.frags {
		got += len(p.data)
	}
	if o.end < 0 || got < o.end {
		return nil, None
	}
	slices.SortFunc(o.frags, func(a, b piece) int { return a.off - b.off })
	var whole []byte
	for _, p := range o.frags {
		whole = append(whole, p.data...)
	}
	return whole, None
}

// FuzzReassembly compares with the oracle. Each six bytes of the input are a fragment of one of four datagrams, or time that passes.
func FuzzReassembly(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 16, 1, 0, 0, 2, 0, 16, 1})
	f.Add([]byte{0, 0, 0, 1, 16, 1, 0, 0, 1, 0, 16, 1, 0, 0, 2, 0, 16, 1})
	f.Add([]byte{1, 0, 2, 0, 8, 1, 2, 0, 0, 1, 2, 1, 255, 200, 0, 0, 0, 0, 1, 0, 0, 1, 16, 1})
	f.Add([]byte{3, 0, 4, 0, 9, 1, 3, 0, 0, 1, 4, 1, 3, 0, 4, 0, 9, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _ := mem.NewBudget(mem.Limits{})
		r := New(Config{Budget: b, High: 1 << 30, MaxFragments: 1 << 30})
		model := map[byte]*oracle{}
		now := plugins.Time(1)
		for ; len(in) >= 6; in = in[6:] {
			if in[0] == 255 {
				now += plugins.Time(in[1]) << 28
				r.Poll(now, nil)
				for k, o := range model {
					if now >= o.deadline {
						delete(model, k)
					}
				}
				continue
			}
			name, off, more, n := in[0]&3, int(binary.BigEndian.Uint16(in[1:])), in[3]&1 != 0, int(in[4])
			if more {
				n = max(n&^7, 8)
			}
			data := bytes.Repeat([]byte{in[5]}, max(n, 1))
			p := packet4(hostA, hostB, wire.ProtoUDP, len(data), 0)
			copy(p[20:], data)
			binary.BigEndian.PutUint16(p[4:], uint16(name))
			flags := uint16(off) & 0x1fff
			if more {
				flags |= 0x2000
			}
			binary.BigEndian.PutUint16(p[6:], flags)
			off = int(flags&0x1fff) * 8
			whole, d := add(t, r, now, p)
			if off+len(data)+20 > 65535 {
				if d != TooLong {
					t.Fatalf("%d bytes at %d: %v", len(data), off, d)
				}
				continue
			}
			o := model[name]
			if o == nil {
				o = &oracle{end: -1, deadline: now + plugins.Time(r.cfg.TimeoutV4)}
				model[name] = o
			}
			want, wantD := o.add(off, more, data)
			if want != nil {
				delete(model, name)
			}
			if d != wantD || (whole == nil) != (want == nil) || whole != nil && !bytes.Equal(whole[20:], want) {
				t.Fatalf("fragment %d+%d of %d: %v and %d bytes, want %v and %d", off, len(data), name, d, len(whole), wantD, len(want))
			}
		}
		if got := r.Stats().Datagrams; got != len(model) {
			t.Fatalf("%d datagrams, want %d", got, len(model))
		}
		wantEmpty(t, r, b)
	})
}

// FuzzPackets gives any bytes as IPv6 fragments, and as IPv4 ones whose header length and total length are sound, to a Reassembler with
// small limits: it stays within them, and what it returns is an IP packet with right lengths.
func FuzzPackets(f *testing.F) {
	for _, p := range append(cut(f, packet4(hostA, hostB, 6, 200, 1), 100, 1), cut(f, packet6(17, 200, 1), 120, 1)...) {
		f.Add(append([]byte{0, byte(len(p))}, p...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _ := mem.NewBudget(mem.Limits{})
		r := New(Config{Budget: b, High: 8 << 10, PerSource: 3, MaxFragments: 5})
		for now := plugins.Time(1); len(in) >= 2; now += 1e9 {
			n := min(int(in[0])<<8|int(in[1]), len(in)-2)
			p := in[2 : 2+n]
			in = in[2+n:]
			var fr Fragment
			switch {
			case len(p) >= 20 && p[0]>>4 == 4 && p[0]&15 >= 5 && int(p[0]&15)*4 <= len(p):
				fr.ParseIPv4(p)
			case fr.ParseIPv6(p, ipv6Len, 6) != None:
				continue
			}
			whole, d := r.Add(now, &fr)
			if r.Stats().Bytes > 8<<10 || b.Used() > 8<<10+maxKept {
				t.Fatalf("%d bytes held", r.Stats().Bytes)
			}
			if whole == nil {
				continue
			}
			if d != None {
				t.Fatalf("a datagram and %v", d)
			}
			l := int(binary.BigEndian.Uint16(whole[2:]))
			if whole[0]>>4 != 4 {
				l = int(binary.BigEndian.Uint16(whole[4:])) + ipv6Len
			} else if binary.BigEndian.Uint16(whole[6:])&0x3fff != 0 {
				t.Fatal("the result is a fragment")
			}
			if l != len(whole) {
				t.Fatalf("a packet of %d bytes says %d", len(whole), l)
			}
		}
		r.Poll(plugins.Never-1, func(e *Expired) {
			if len(e.First) == 0 {
				t.Fatal("an empty report")
			}
		})
		wantEmpty(t, r, b)
	})
}
