package frag

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/wire"
	"pgregory.net/rapid"
)

var (
	hostA = wire.AddrFrom4([4]byte{10, 0, 0, 1})
	hostB = wire.AddrFrom4([4]byte{10, 0, 0, 2})
	host6 = wire.Addr{0: 0xfd, 15: 1}
	peer6 = wire.Addr{0: 0xfd, 15: 2}
)

// packet4 is an IPv4 packet without DF; packet6 an IPv6 packet. Their payload is n bytes that follow from seed.
func packet4(src, dst wire.Addr, proto uint8, n int, seed uint64) []byte {
	p := make([]byte, wire.IPv4Len+n)
	wire.PutIPv4(p, src, dst, proto, 0, 64, 0, len(p))
	p[6] = 0
	resum(p)
	fill(p[wire.IPv4Len:], seed)
	return p
}

func packet6(next uint8, n int, seed uint64) []byte {
	p := make([]byte, ipv6Len+n)
	p[0], p[6], p[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(p[4:], uint16(n))
	copy(p[8:], host6[:])
	copy(p[24:], peer6[:])
	fill(p[ipv6Len:], seed)
	return p
}

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// withID is packet with the identification that its fragments had.
func withID(packet []byte, id uint16) []byte {
	p := bytes.Clone(packet)
	if p[0]>>4 == 4 {
		binary.BigEndian.PutUint16(p[4:], id)
		resum(p)
	}
	return p
}

func resum(p []byte) {
	h := p[:int(p[0]&15)*4]
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], wire.Fold(wire.Sum(h, 0)))
}

// cut returns copies of the fragments of a packet.
func cut(t failer, packet []byte, mtu int, id uint32) (fs [][]byte) {
	t.Helper()
	if err := Split(packet, mtu, id, func(f []byte) error {
		if len(f) > mtu {
			t.Fatalf("a fragment of %d bytes with an MTU of %d", len(f), mtu)
		}
		fs = append(fs, bytes.Clone(f))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return fs
}

// parse reads a fragment that cut made. An IPv6 packet has a fragment header behind its fixed header, or behind hop-by-hop options.
func parse(t failer, p []byte) (f Fragment) {
	t.Helper()
	if p[0]>>4 == 4 {
		f.ParseIPv4(p)
		return f
	}
	at, nextAt := ipv6Len, 6
	if p[6] == nextHopByHop {
		at, nextAt = ipv6Len+8, ipv6Len
	}
	if d := f.ParseIPv6(p, at, nextAt); d != None {
		t.Fatal(d)
	}
	return f
}

func add(t failer, r *Reassembler, now plugins.Time, p []byte) ([]byte, Drop) {
	t.Helper()
	f := parse(t, p)
	return r.Add(now, &f)
}

// wantEmpty wants all memory given back.
func wantEmpty(t testing.TB, r *Reassembler, b *mem.Budget) {
	t.Helper()
	r.Close()
	if s := r.Stats(); s.Datagrams != 0 || s.Bytes != 0 || len(r.sources) != 0 || r.blocks.kept != 0 {
		t.Errorf("left over: %+v, %d sources, %d bytes kept", s, len(r.sources), r.blocks.kept)
	}
	if b != nil && b.Used() != 0 {
		t.Errorf("the budget still counts %d bytes", b.Used())
	}
}

// TestWhole: random datagrams of both families, cut to random MTUs, interleaved, in random order and with copies, come out once each.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, _ := mem.NewBudget(mem.Limits{})
		r := New(Config{Budget: b, PerSource: 100, MaxFragments: 9000})
		want := map[string]int{}
		var all [][]byte
		for i := range rapid.IntRange(1, 6).Draw(t, "datagrams") {
			n := rapid.IntRange(100, 9000).Draw(t, "size")
			var p []byte
			if rapid.Bool().Draw(t, "v6") {
				p = packet6(wire.ProtoUDP, n, uint64(i))
			} else {
				p = packet4(hostA, hostB, wire.ProtoUDP, n, uint64(i))
				p = withID(p, uint16(i))
			}
			fs := cut(t, p, rapid.IntRange(68, len(p)-1).Draw(t, "mtu"), uint32(i))
			if len(fs) < 2 {
				t.Fatalf("%d fragments", len(fs))
			}
			want[string(p)]++
			all = append(all, fs...)
			for range rapid.IntRange(0, 2).Draw(t, "copies") { // of all fragments but one, which would be a datagram
				all = append(all, fs[rapid.IntRange(1, len(fs)-1).Draw(t, "copy")])
			}
		}
		all = rapid.Permutation(all).Draw(t, "order")
		for _, f := range all {
			whole, d := add(t, r, 1, f)
			if d != None && d != Duplicate {
				t.Fatalf("dropped: %v", d)
			}
			if whole != nil {
				if want[string(whole)] == 0 {
					t.Fatalf("a datagram that nobody sent, or twice: %x", whole[:40])
				}
				want[string(whole)]--
			}
		}
		for _, n := range want {
			if n != 0 {
				t.Fatal("a datagram did not come out")
			}
		}
		r.Close()
		if b.Used() != 0 {
			t.Fatalf("the budget still counts %d bytes", b.Used())
		}
	})
}

// failer is what helpers need of a testing.TB or a rapid.T.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func TestOverlap(t *testing.T) { // RFC 5722, 4; RFC 8200, 4.5
	for name, p := range map[string][]byte{"IPv4": packet4(hostA, hostB, 17, 3000, 1), "IPv6": packet6(17, 3000, 1)} {
		t.Run(name, func(t *testing.T) {
			fs := cut(t, p, 1288, 7)
			other := cut(t, p, 648, 7) // the same datagram, cut at other places
			r := New(Config{})
			if _, d := add(t, r, 1, fs[0]); d != None {
				t.Fatal(d)
			}
			if _, d := add(t, r, 1, fs[0]); d != Duplicate {
				t.Errorf("a copy: %v", d)
			}
			if _, d := add(t, r, 1, other[1]); d != Overlap {
				t.Errorf("an overlap: %v", d)
			}
			// The whole datagram is discarded, with what has yet to come.
			for _, f := range fs {
				if whole, d := add(t, r, 2, f); whole != nil || d != Dead {
					t.Errorf("after an overlap: %v", d)
				}
			}
			if s := r.Stats(); s.Bytes != overhead {
				t.Errorf("%d bytes are held for a datagram that was given up", s.Bytes)
			}
			// When its time is over the name is free again; nothing is reported.
			r.Poll(r.Deadline(), func(e *Expired) { t.Error("reported") })
			if r.Deadline() != plugins.Never {
				t.Error("a deadline remains")
			}
			var whole []byte
			for _, f := range fs {
				whole, _ = add(t, r, plugins.Time(2*time.Minute), f)
			}
			if !bytes.Equal(whole, withID(p, 7)) {
				t.Error("the next datagram of that name did not come out")
			}
			wantEmpty(t, r, nil)
		})
	}
}

// TestChangedCopy: the same range with other bytes is no copy.
func TestChangedCopy(t *testing.T) {
	fs := cut(t, packet4(hostA, hostB, 17, 3000, 1), 1500, 7)
	r := New(Config{})
	add(t, r, 1, fs[1])
	fs[1][100] ^= 1
	if _, d := add(t, r, 1, fs[1]); d != Overlap {
		t.Errorf("got %v", d)
	}
}

func TestEnd(t *testing.T) {
	fs := cut(t, packet4(hostA, hostB, 17, 4000, 1), 1044, 7)
	short := cut(t, packet4(hostA, hostB, 17, 2500, 1), 1044, 7)
	for name, in := range map[string][][]byte{
		"beyond the end":   {short[2], fs[3]},
		"end before":       {fs[2], short[2]},
		"end in the midst": {fs[3], cut(t, packet4(hostA, hostB, 17, 2000, 1), 1044, 7)[1]},
		"two ends":         {fs[3], cut(t, packet4(hostA, hostB, 17, 4600, 1), 1044, 7)[4]},
	} {
		r := New(Config{})
		if _, d := add(t, r, 1, in[0]); d != None {
			t.Fatal(name, d)
		}
		if _, d := add(t, r, 1, in[1]); d != End && d != Overlap {
			t.Errorf("%s: %v", name, d)
		}
		if _, d := add(t, r, 1, fs[0]); d != Dead {
			t.Errorf("%s: afterwards %v", name, d)
		}
	}
}

// TestBadFragment: what one fragment can get wrong.
func TestBadFragment(t *testing.T) {
	udp := func(change func(p []byte)) []byte {
		f := cut(t, packet4(hostA, hostB, 17, 3000, 1), 1500, 7)[0]
		change(f)
		return f
	}
	six := func(change func(p []byte)) []byte {
		f := cut(t, packet6(17, 3000, 1), 1500, 7)[0]
		change(f)
		return f
	}
	tcp := cut(t, packet4(hostA, hostB, 6, 3000, 1), 28, 7)
	for _, c := range []struct {
		name string
		p    []byte
		want Drop
	}{
		{"no payload", udp(func([]byte) {})[:20], Short},
		{"no multiple of 8", udp(func([]byte) {})[:1499], Length},
		{"no multiple of 8, IPv6", six(func([]byte) {})[:1401], Length},
		{"ping of death", udp(func(p []byte) { p[6], p[7] = 0x1f, 0xff }), TooLong},
		{"too long, IPv6", six(func(p []byte) { p[42], p[43] = 0xff, 0xf0 }), TooLong},
		{"TCP header in two", tcp[0], Tiny},      // RFC 1858, 3.1
		{"offset of 8 bytes, TCP", tcp[1], Tiny}, // RFC 3128, 3
		{"no UDP header", cut(t, packet6(60, 3000, 1), 1500, 7)[0], Headers},
	} {
		r := New(Config{})
		if c.name == "no UDP header" { // destination options that are longer than the fragment
			c.p[ipv6Len+fragLen+1] = 255
		}
		if _, d := add(t, r, 1, c.p); d != c.want {
			t.Errorf("%s: %v, want %v", c.name, d, c.want)
		}
		if s := r.Stats(); s.Drops[c.want] != 1 {
			t.Errorf("%s: not counted", c.name)
		}
	}
}

// TestAtomic: RFC 6946. A packet with a fragment header that is whole is not mixed with fragments of the same name.
func TestAtomic(t *testing.T) {
	p := packet6(17, 600, 1)
	atomic := append(bytes.Clone(p[:ipv6Len]), 17, 0, 0, 0, 0, 0, 0, 7)
	atomic = append(atomic, p[ipv6Len:]...)
	atomic[6] = nextFragment
	binary.BigEndian.PutUint16(atomic[4:], uint16(len(atomic)-ipv6Len))
	r := New(Config{})
	long := packet6(17, 3000, 2)
	fs := cut(t, long, 1500, 7)
	add(t, r, 1, fs[0])
	if whole, d := add(t, r, 1, atomic); !bytes.Equal(whole, p) || d != None {
		t.Errorf("%v, %x", d, whole)
	}
	add(t, r, 1, fs[1])
	if whole, d := add(t, r, 1, fs[2]); !bytes.Equal(whole, long) {
		t.Errorf("the datagram of that name was disturbed: %v", d)
	}
	if s := r.Stats(); s.Atomic != 1 || s.Whole != 2 {
		t.Errorf("%+v", s)
	}
	atomic = atomic[:ipv6Len+fragLen+4] // half a UDP header
	if _, d := add(t, r, 1, atomic); d != Headers {
		t.Errorf("without headers: %v", d)
	}
}

// TestTimeout: RFC 1122, 3.3.2; RFC 8200, 4.5. The time counts from the first fragment that arrived, and is not extended.
func TestTimeout(t *testing.T) {
	for _, c := range []struct {
		p       []byte
		timeout time.Duration
	}{{packet4(hostA, hostB, 17, 3000, 1), 30 * time.Second}, {packet6(17, 3000, 1), time.Minute}} {
		fs := cut(t, c.p, 1500, 7)
		for _, first := range []bool{true, false} {
			r := New(Config{})
			in := fs[1:]
			if first {
				in = fs[:2]
			}
			for i, f := range in[:2] {
				add(t, r, plugins.Time(i)*plugins.Time(10*time.Second), f)
			}
			if r.Deadline() != plugins.Time(c.timeout) {
				t.Errorf("deadline %v, want %v", r.Deadline(), c.timeout)
			}
			reports := 0
			report := func(e *Expired) {
				reports++
				if !bytes.Equal(e.First, fs[0]) || e.Src != parse(t, fs[0]).src || e.Dst != parse(t, fs[0]).dst {
					t.Errorf("reported %v → %v, %x", e.Src, e.Dst, e.First)
				}
			}
			r.Poll(r.Deadline()-1, report)
			if r.Stats().Datagrams != 1 {
				t.Error("gone too early")
			}
			r.Poll(r.Deadline(), report)
			if want := map[bool]int{true: 1, false: 0}[first]; reports != want {
				t.Errorf("%d reports, want %d", reports, want)
			}
			if s := r.Stats(); s.Datagrams != 0 || s.TimedOut != 1 {
				t.Errorf("%+v", s)
			}
			wantEmpty(t, r, nil)
		}
	}
}

// TestFlood: a flood from many sources stays within the limits, and an honest datagram whose fragments come close together survives it.
func TestFlood(t *testing.T) {
	const limit = 64 << 10
	b, _ := mem.NewBudget(mem.Limits{})
	r := New(Config{Budget: b, High: limit})
	now := plugins.Time(1)
	flood := func(n int) {
		for range n {
			src := wire.AddrFrom4([4]byte{11, byte(now >> 16), byte(now >> 8), byte(now)})
			now++
			f := cut(t, packet4(src, hostB, 17, 2000, 1), 1500, uint32(now))[0]
			if _, d := add(t, r, now, f); d != None {
				t.Fatalf("flood: %v", d)
			}
			if got := r.Stats().Bytes; got > limit || b.Used() > limit+maxKept {
				t.Fatalf("%d bytes held, %d charged", got, b.Used())
			}
		}
	}
	flood(1000)
	honest := packet4(hostA, hostB, 17, 3000, 5)
	fs := cut(t, honest, 1500, 9)
	add(t, r, now, fs[2])
	flood(5)
	add(t, r, now, fs[0])
	flood(5)
	if whole, d := add(t, r, now, fs[1]); !bytes.Equal(whole, withID(honest, 9)) {
		t.Errorf("the honest datagram was lost: %v", d)
	}
	if r.Stats().Evicted == 0 {
		t.Error("nothing was evicted")
	}
	wantEmpty(t, r, b)
}

// TestPerSource: a source that floods takes no more than its share, and its own oldest datagrams give way.
func TestPerSource(t *testing.T) {
	r := New(Config{PerSource: 4})
	honest := packet4(hostA, hostB, 17, 3000, 5)
	fs := cut(t, honest, 1500, 9)
	add(t, r, 1, fs[0])
	add(t, r, 1, fs[1])
	src := wire.AddrFrom4([4]byte{11, 0, 0, 1})
	for i := range 1000 {
		add(t, r, 1, cut(t, packet4(src, hostB, 17, 2000, 1), 1500, uint32(i))[0])
	}
	if s := r.Stats(); s.Datagrams != 5 || s.Evicted != 996 {
		t.Errorf("%+v", s)
	}
	if whole, _ := add(t, r, 1, fs[2]); !bytes.Equal(whole, withID(honest, 9)) {
		t.Error("the other source's datagram is gone")
	}
	wantEmpty(t, r, nil)
}

func TestMany(t *testing.T) {
	r := New(Config{MaxFragments: 10, MinPayload: 16})
	fs := cut(t, packet4(hostA, hostB, 17, 3000, 5), 100, 9)
	for i, f := range fs[:10] {
		if _, d := add(t, r, 1, f); d != None {
			t.Fatalf("fragment %d: %v", i, d)
		}
	}
	if _, d := add(t, r, 1, fs[10]); d != Many {
		t.Errorf("one too many: %v", d)
	}
	if _, d := add(t, r, 1, cut(t, packet4(hostA, hostB, 17, 3000, 5), 28, 10)[0]); d != Tiny {
		t.Errorf("a tiny one: %v", d)
	}
	wantEmpty(t, r, nil)
}

// TestBudget: where the process has no memory left, the Reassembler lives on what it has.
func TestBudget(t *testing.T) {
	b, _ := mem.NewBudget(mem.Limits{Low: 1000, Pressure: 2000, High: 8000})
	r := New(Config{Budget: b})
	for i := range 20 {
		if _, d := add(t, r, 1, cut(t, packet4(hostA, hostB, 17, 2000, 1), 1500, uint32(i))[0]); d != None {
			t.Fatalf("datagram %d: %v", i, d)
		}
	}
	if b.Used() > 8000 {
		t.Errorf("%d bytes in use", b.Used())
	}
	b.Add(8000)
	r.Close()
	if _, d := add(t, r, 1, cut(t, packet4(hostA, hostB, 17, 2000, 1), 1500, 50)[0]); d != Memory {
		t.Errorf("without any memory: %v", d)
	}
	b.Sub(8000)
	wantEmpty(t, r, b)
}

// TestECN: RFC 3168, 5.3.
func TestECN(t *testing.T) {
	for name, c := range map[string]struct {
		ecn  [2]uint8
		want int // -1: dropped
	}{
		"none": {[2]uint8{0, 0}, 0}, "one CE": {[2]uint8{2, 3}, 3}, "CE first": {[2]uint8{3, 1}, 3}, "all CE": {[2]uint8{3, 3}, 3},
		"ECT": {[2]uint8{2, 2}, 2}, "CE without ECT": {[2]uint8{0, 3}, -1},
	} {
		for _, p := range [][]byte{packet4(hostA, hostB, 17, 2000, 1), packet6(17, 2000, 1)} {
			r := New(Config{})
			var whole []byte
			var d Drop
			for i, f := range cut(t, p, 1500, 7) {
				if f[0]>>4 == 4 {
					f[1] |= c.ecn[i]
					resum(f)
				} else {
					f[1] |= c.ecn[i] << 4
				}
				whole, d = add(t, r, 1, f)
			}
			if c.want < 0 {
				if d != ECN {
					t.Errorf("%s: %v", name, d)
				}
				continue
			}
			got := int(whole[1] & 3)
			if p[0]>>4 == 6 {
				got = int(whole[1] >> 4 & 3)
			} else if wire.Fold(wire.Sum(whole[:20], 0)) != 0 {
				t.Errorf("%s: the header's checksum is wrong", name)
			}
			if got != c.want {
				t.Errorf("%s: code point %d, want %d", name, got, c.want)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	fits := packet4(hostA, hostB, 17, 100, 1)
	if fs := cut(t, fits, 1500, 1); len(fs) != 1 || !bytes.Equal(fs[0], fits) {
		t.Error("a packet that fits was changed")
	}
	df := packet4(hostA, hostB, 17, 3000, 1)
	df[6] = 0x40
	none := func([]byte) error { return nil }
	for name, c := range map[string]struct {
		p    []byte
		mtu  int
		want error
	}{
		"DF": {df, 1500, ErrDF}, "MTU": {packet4(hostA, hostB, 17, 3000, 1), 27, ErrMTU}, "MTU, IPv6": {packet6(17, 3000, 1), 55, ErrMTU},
		"empty": {nil, 1500, ErrPacket}, "version": {bytes.Repeat([]byte{0x55}, 3000), 1500, ErrPacket},
		"twice": {cut(t, packet6(17, 6000, 1), 3000, 1)[0], 1500, ErrPacket},
	} {
		if err := Split(c.p, c.mtu, 1, none); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	stop := errors.New("stop")
	if err := Split(packet6(17, 3000, 1), 1280, 1, func([]byte) error { return stop }); err != stop {
		t.Errorf("the error of emit: %v", err)
	}
}

// TestSplitOptions: RFC 791, 3.1. Later fragments have the options with the copied flag only.
func TestSplitOptions(t *testing.T) {
	p := packet4(hostA, hostB, 17, 3000, 1)
	p = append(append(bytes.Clone(p[:20]), 0x07, 3, 4, 1, 0x83, 3, 4, 0), p[20:]...) // record route, no operation, loose source route
	p[0] = 0x47
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	resum(p)
	fs := cut(t, p, 1500, 7)
	if !bytes.Equal(fs[0][20:28], p[20:28]) || fs[1][0] != 0x46 || !bytes.Equal(fs[1][20:24], []byte{0x83, 3, 4, 0}) {
		t.Errorf("headers %x and %x", fs[0][:28], fs[1][:24])
	}
	r := New(Config{})
	var whole []byte
	for _, f := range fs {
		whole, _ = add(t, r, 1, f)
	}
	if !bytes.Equal(whole, withID(p, 7)) {
		t.Error("the datagram did not come out")
	}
}

// TestSplitHopByHop: RFC 8200, 4.5. Hop-by-hop options stay before the fragment header, in each fragment.
func TestSplitHopByHop(t *testing.T) {
	p := packet6(nextHopByHop, 3000, 1)
	copy(p[ipv6Len:], []byte{17, 0, 1, 4, 0, 0, 0, 0})
	fs := cut(t, p, 1280, 7)
	r := New(Config{})
	var whole []byte
	for _, f := range fs {
		if f[6] != nextHopByHop || f[ipv6Len] != nextFragment {
			t.Fatalf("headers %x", f[:ipv6Len+16])
		}
		whole, _ = add(t, r, 1, f)
	}
	if !bytes.Equal(whole, p) {
		t.Error("the datagram did not come out")
	}
}

func TestIDs(t *testing.T) {
	a, b := NewIDs([32]byte{1}), NewIDs([32]byte{2})
	seen := map[uint32]bool{}
	for range 1000 { // RFC 6864, 4.3: no repetition
		id := a.Next(hostA, hostB, 17)
		if seen[id&0xffff] {
			t.Fatal("an ID came twice")
		}
		seen[id&0xffff] = true
	}
	if x, y := a.Next(hostA, hostB, 17), b.Next(hostA, hostB, 17); x == y {
		t.Error("IDs do not depend on the secret")
	}
	if x, y := a.Next(hostA, hostB, 17), a.Next(hostB, hostA, 17); x+1 == y || x == y {
		t.Error("IDs of one peer tell those of another")
	}
	if n := testing.AllocsPerRun(100, func() { a.Next(hostA, hostB, 17) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAllocs: in steady state nothing is allocated, whole datagrams or a flood.
func TestAllocs(t *testing.T) {
	r := New(Config{High: 64 << 10})
	fs := cut(t, packet4(hostA, hostB, 17, 3000, 1), 1500, 7)
	src := hostA
	run := func() {
		for _, p := range fs {
			var f Fragment
			f.ParseIPv4(p)
			r.Add(1, &f)
		}
		src[15]++
		var f Fragment
		f.ParseIPv4(fs[0])
		f.id = uint32(src[15])
		r.Add(1, &f)
	}
	for range 1000 {
		run()
	}
	if n := testing.AllocsPerRun(1000, run); n > 1.01 { // one: the record of a source
		t.Errorf("%v allocations", n)
	}
	wantEmpty(t, r, nil)
}

func BenchmarkAdd(b *testing.B) {
	r := New(Config{})
	fs := cut(b, packet4(hostA, hostB, 17, 2900, 1), 1500, 7)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range fs {
			var f Fragment
			f.ParseIPv4(p)
			r.Add(1, &f)
		}
	}
}
