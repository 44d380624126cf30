package neigh

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func addr6(s string) wire.Addr { return wire.AddrFrom(netip.MustParseAddr(s)) }

var (
	our6  = addr6("2001:db8::1")
	ourLL = addr6("fe80::1")
	peer6 = addr6("2001:db8::2")
)

// newWorld6 is a world with IPv6 addresses beside the one of IPv4.
func newWorld6(t testing.TB, cfg Config) *world {
	w := newWorld(t, cfg)
	w.c.SetLocals([]wire.Addr{wire.AddrFrom4(ourIP), our6, ourLL}, false, w.now)
	return w
}

func (w *world) lookup6(a wire.Addr) Ref {
	w.t.Helper()
	r, ok := w.c.Lookup(a, w.now)
	if !ok {
		w.t.Fatalf("Lookup(%v) refused", a)
	}
	return r
}

func (w *world) entry(a wire.Addr) (e Entry) {
	for _, x := range w.c.Entries(w.now) {
		if x.Addr == a {
			e = x
		}
	}
	return e
}

// solicitation is what the cache sends for a: to the group, or to the neighbour itself at mac.
func solicitation(src, a wire.Addr, mac wire.MAC) Output {
	o := Output{Dst: a.SolicitedNode().GroupMAC(), Src: src, To: a.SolicitedNode(),
		ND: wire.ND{Type: wire.ICMP6NeighborSol, Target: a, LLA: ourMAC, HasLLA: true}}
	if mac != (wire.MAC{}) {
		o.Dst, o.To = mac, a
	}
	return o
}

func advertisement(a wire.Addr, flags uint8, mac wire.MAC) *wire.ND {
	return &wire.ND{Type: wire.ICMP6NeighborAdv, Flags: flags, Target: a, LLA: mac, HasLLA: mac != wire.MAC{}}
}

const sol, over, rtr = wire.NDSolicited, wire.NDOverride, wire.NDRouter

// RFC 4861, 7.2.2: three questions to the group, a second apart, from an address of the same kind; then the hop has failed.
func TestSolicit(t *testing.T) {
	w := newWorld6(t, Config{})
	for _, c := range []struct{ to, from wire.Addr }{{peer6, our6}, {addr6("fe80::2"), ourLL}} {
		r := w.lookup6(c.to)
		w.c.Enqueue(r, w.buf(1))
		var failed *pmd.Buf
		for range Retries {
			w.poll(solicitation(c.from, c.to, wire.MAC{}))
			w.now = w.now.Add(RetransTime)
		}
		failed = w.poll()
		if w.free(failed) != 1 || len(w.c.Failed()) != 1 || w.c.Failed()[0] != c.to {
			t.Fatalf("failed: %v", w.c.Failed())
		}
	}
	if w.poll(); len(w.c.Failed()) != 0 {
		t.Error("what has failed is told twice")
	}
	w.c.SetLocals([]wire.Addr{wire.AddrFrom4(ourIP)}, false, w.now)
	w.lookup6(peer6)
	w.poll() // nobody asks without an address
}

// RFC 4861, 7.2.5: every case of an advertisement: state and flags, and what becomes of state, address and router.
func TestAdvertisement(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   State
		router bool
		flags  uint8
		mac    wire.MAC
		want   State
		addr   wire.MAC
		isRtr  bool
		lost   bool
	}{
		{"no entry", Free, false, sol | over, peer, Free, wire.MAC{}, false, false},
		{"incomplete, solicited", Incomplete, false, sol | over, peer, Reachable, peer, false, false},
		{"incomplete, override does not matter", Incomplete, false, sol, peer, Reachable, peer, false, false},
		{"incomplete, unsolicited", Incomplete, false, over | rtr, peer, Stale, peer, true, false},
		{"incomplete, without address", Incomplete, false, sol | over, wire.MAC{}, Incomplete, wire.MAC{}, false, false},
		{"reachable, another without override", Reachable, false, sol, other, Stale, peer, false, false},
		{"stale, another without override", Stale, true, sol, other, Stale, peer, true, false},
		{"stale, another with override, solicited", Stale, false, sol | over, other, Reachable, other, false, false},
		{"reachable, another with override", Reachable, false, over, other, Stale, other, false, false},
		{"stale, the same, solicited", Stale, false, sol, peer, Reachable, peer, false, false},
		{"stale, without address, solicited", Stale, false, sol | over, wire.MAC{}, Reachable, peer, false, false},
		{"reachable, the same, unsolicited", Reachable, false, over, peer, Reachable, peer, false, false},
		{"a router no more", Reachable, true, sol | over, peer, Reachable, peer, false, true},
		{"still a router", Reachable, true, sol | over | rtr, peer, Reachable, peer, true, false},
		{"our own, come back", Incomplete, false, sol | over, ourMAC, Incomplete, wire.MAC{}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld6(t, Config{})
			first := uint8(0)
			if c.router {
				first = rtr
			}
			switch c.from {
			case Incomplete:
				w.lookup6(peer6)
			case Reachable:
				w.lookup6(peer6)
				w.c.Advertised(w.now, advertisement(peer6, sol|over|first, peer))
			case Stale:
				w.lookup6(peer6)
				w.c.Advertised(w.now, advertisement(peer6, over|first, peer))
			}
			_, lost := w.c.Advertised(w.now, advertisement(peer6, c.flags, c.mac))
			if e := w.entry(peer6); e.State != c.want || e.MAC != c.addr || e.Router != c.isRtr || lost != c.lost {
				t.Errorf("%+v, lost %v", e, lost)
			}
		})
	}
}

// RFC 4861, 7.2.3 and 6.3.4: the source link-layer address of who speaks to us is learned, not confirmed.
func TestHeard(t *testing.T) {
	w := newWorld6(t, Config{})
	w.c.Heard(w.now, peer6, peer, false)
	if e := w.entry(peer6); e.State != Stale || e.MAC != peer || e.Router {
		t.Fatalf("%+v", e)
	}
	w.c.Advertised(w.now, advertisement(peer6, sol|over, peer))
	w.c.Heard(w.now, peer6, peer, true)
	if e := w.entry(peer6); e.State != Reachable || !e.Router {
		t.Fatalf("the same again: %+v", e)
	}
	w.c.Heard(w.now, peer6, other, false)
	if e := w.entry(peer6); e.State != Stale || e.MAC != other || !e.Router {
		t.Fatalf("another: %+v", e)
	}
	r := w.lookup6(addr6("fe80::2"))
	w.c.Enqueue(r, w.buf(1))
	ready := w.c.Heard(w.now, addr6("fe80::2"), peer, false)
	if w.free(ready.Chain) != 1 || ready.MAC != peer {
		t.Fatal("what waited does not leave")
	}
	for _, mac := range []wire.MAC{{}, ourMAC, {1, 2, 3}} {
		w.c.Heard(w.now, addr6("fe80::3"), mac, false)
	}
	w.c.Heard(w.now, our6, peer, false)
	if w.c.Stats().Ignored != 4 || w.c.Stats().Entries != 2 {
		t.Errorf("%+v", w.c.Stats())
	}
}

// RFC 4861, 7.3: use makes a stale neighbour delay, then be asked at its own address; TCP's progress, or an answer, confirms it.
func TestUnreachability(t *testing.T) {
	w := newWorld6(t, Config{})
	w.c.Heard(w.now, peer6, peer, false)
	r := w.lookup6(peer6)
	use := func() {
		t.Helper()
		if _, res := w.c.Resolve(r, w.now); res != OK {
			t.Fatal(res)
		}
	}
	use()
	w.now = w.now.Add(DelayTime - time.Millisecond)
	w.poll()
	w.c.Confirm(r, w.now)
	if e := w.entry(peer6); e.State != Reachable {
		t.Fatalf("%+v", e)
	}
	w.now = w.now.Add(2 * ReachableTime)
	use()
	w.now = w.now.Add(DelayTime)
	w.poll(solicitation(our6, peer6, peer))
	use()
	w.c.Advertised(w.now, advertisement(peer6, sol, wire.MAC{}))
	if e := w.entry(peer6); e.State != Reachable {
		t.Fatalf("%+v", e)
	}
	w.now = w.now.Add(2 * ReachableTime)
	use()
	w.now = w.now.Add(DelayTime)
	for range Retries {
		w.poll(solicitation(our6, peer6, peer))
		w.now = w.now.Add(RetransTime)
	}
	w.poll()
	if e := w.entry(peer6); e.State != Free || w.c.Failed()[0] != peer6 {
		t.Fatalf("%+v, failed %v", e, w.c.Failed())
	}
}

// When routes change, who holds an entry looks up its next hop again, and finds the entry as it was.
func TestReroute(t *testing.T) {
	w := newWorld6(t, Config{})
	w.c.Heard(w.now, peer6, peer, false)
	r := w.lookup6(peer6)
	w.c.Reroute()
	if _, res := w.c.Resolve(r, w.now); res != Gone {
		t.Fatal(res)
	}
	if mac, res := w.c.Resolve(w.lookup6(peer6), w.now); res != OK || mac != peer {
		t.Fatal(mac, res)
	}
}

func FuzzNeighbours6(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 0xff, 1, 1, 2, 3, 1, 9, 4, 0, 1, 5, 200, 200, 6, 1, 2, 4, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWorld6(t, Config{Max: 4, Queue: 1})
		refs := map[byte]Ref{}
		for ; len(ops) >= 3; ops = ops[3:] {
			id, v := ops[1]&7, ops[2]
			a, mac := wire.Addr{0: 0x20, 1: 1, 15: id + 1}, wire.MAC{2, 0, 0, 0, 0, v >> 5}
			switch ops[0] % 7 {
			case 0:
				if r, ok := w.c.Lookup(a, w.now); ok {
					refs[id] = r
				}
			case 1:
				w.free(w.c.Enqueue(refs[id], w.buf(v)))
			case 2:
				ready := w.c.Heard(w.now, a, mac, v&1 != 0)
				w.free(ready.Chain)
			case 3:
				ready, _ := w.c.Advertised(w.now, advertisement(a, v&0xe0, mac))
				w.free(ready.Chain)
			case 4:
				var out [2]Output
				n, failed := w.c.Poll(w.now, out[:v&3%3])
				w.free(failed)
				for _, o := range out[:n] {
					if o.To == (wire.Addr{}) || o.ND.Target == (wire.Addr{}) || o.Src != our6 {
						t.Fatalf("%+v", o)
					}
				}
			case 5:
				w.now = w.now.Add(time.Duration(v) << (20 + ops[1]>>3&15))
			case 6:
				w.c.Resolve(refs[id], w.now)
				w.c.Confirm(refs[id], w.now)
			}
			if s := w.c.Stats(); s.Entries > 4 {
				t.Fatalf("%d entries", s.Entries)
			}
		}
	})
}
