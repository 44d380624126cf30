package autoconf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

const start plugins.Time = 1e9

var (
	mac    = wire.MAC{2, 0, 0, 0, 0, 1}
	router = addr6("fe80::9")
	other  = addr6("2001:db8::77")
)

func addr6(s string) wire.Addr { return wire.AddrFrom(netip.MustParseAddr(s)) }

// world is a host with a clock. It checks every message that the host sends.
type world struct {
	*testing.T
	h   *Host
	now plugins.Time
}

func newWorld(t *testing.T, cfg Config) *world {
	cfg.MAC, cfg.MTU, cfg.Name, cfg.Secret, cfg.Seed = mac, 1500, "p", []byte("secret"), 1
	return &world{t, New(cfg, start), start}
}

// sent is a message in words.
type sent struct {
	at   time.Duration
	text string
	nd   wire.ND
	src  wire.Addr
}

// run lets d pass and returns what was sent, MLD apart if nd is set.
func (w *world) run(d time.Duration, nd bool) (all []sent) {
	w.Helper()
	end := w.now.Add(d)
	for turns := 0; w.h.Deadline() <= end; turns++ {
		if turns > 1000 {
			w.Fatal("the host does not come to rest")
		}
		w.now = max(w.now, w.h.Deadline())
		for _, m := range w.h.Poll(w.now) {
			if s := w.read(m); !nd || s.nd.Type != 0 {
				all = append(all, s)
			}
		}
	}
	w.now = end
	return all
}

func (w *world) read(m Message) sent {
	w.Helper()
	p := wire.Packet{Family: wire.IPv6, Proto: wire.ProtoICMPv6, Src: m.Src, Dst: m.Dst, TTL: m.HopLimit, Payload: m.ICMP}
	typ, _, _, d := wire.ParseICMP6(&p, false)
	if d != wire.DropNone {
		w.Fatalf("a bad message: %v: %+v", d, m)
	}
	s := sent{at: w.now.Sub(start), src: m.Src}
	switch typ {
	case wire.ICMP6NeighborSol, wire.ICMP6RouterSol:
		if d := wire.ParseND(&p, &s.nd); d != wire.DropNone || m.Alert {
			w.Fatalf("a bad message: %v: %+v", d, m)
		}
		s.text = "RS"
		if typ == wire.ICMP6NeighborSol {
			s.text = "NS " + s.nd.Target.String()
		}
	case wire.ICMP6MLDv2Report:
		if !m.Alert || m.HopLimit != 1 || m.Dst != wire.MLDv2Routers {
			w.Fatalf("a report without router alert, or to others: %+v", m)
		}
		s.text = "v2"
		for r := m.ICMP[8:]; len(r) > 0; r = r[20:] {
			s.text += fmt.Sprintf(" %d %v", r[0], wire.Addr(r[4:20]))
		}
	case wire.ICMP6MLDReport, wire.ICMP6MLDDone:
		if !m.Alert || m.HopLimit != 1 || len(m.ICMP) != 24 {
			w.Fatalf("a bad report: %+v", m)
		}
		s.text = fmt.Sprintf("v1 %d %v to %v", typ, wire.Addr(m.ICMP[8:24]), m.Dst)
	default:
		w.Fatalf("a message of type %d", typ)
	}
	return s
}

// addr returns the address that begins with prefix.
func (w *world) addr(prefix string) Addr {
	w.Helper()
	for _, a := range w.h.Snapshot().Addrs {
		if strings.HasPrefix(a.Prefix.String(), prefix) {
			return a
		}
	}
	return Addr{}
}

func (w *world) state(prefix string, want State) {
	w.Helper()
	if a := w.addr(prefix); !a.Prefix.IsValid() || a.State != want {
		w.Fatalf("%s is %+v, want %v", prefix, a, want)
	}
}

func texts(all []sent) (t []string) {
	for _, s := range all {
		t = append(t, s.text)
	}
	return t
}

// RFC 4862, 5.4: one question from :: to the group of the address within a second; a second later the address is used. RFC 4861, 6.3.7 and
// RFC 7559: then routers are asked for, again and again at growing intervals.
func TestStart(t *testing.T) {
	w := newWorld(t, Config{SLAAC: true, Transmits: 1})
	w.state("fe80::", Tentative)
	all := w.run(3*time.Second, true)
	ll := w.addr("fe80::")
	if len(all) != 2 || all[0].text != "NS "+ll.Prefix.Addr().String() || all[0].src != (wire.Addr{}) || !all[0].nd.HasNonce || all[0].at > maxDelay ||
		all[1].text != "RS" || all[1].at != all[0].at+retransTime || all[1].src != wire.AddrFrom(ll.Prefix.Addr()) || all[1].nd.LLA != mac {
		t.Fatalf("%+v", all)
	}
	w.state("fe80::", Preferred)
	if !w.h.Changed() || w.h.Changed() {
		t.Error("Changed does not say so once")
	}
	last, interval := all[1].at, 4*time.Second
	for _, s := range w.run(24*time.Hour, true) {
		d := s.at - last
		if s.text != "RS" || d < interval*9/10*9/10 || d > interval*11/10*11/10 {
			t.Fatalf("%s after %v, want RS after %v", s.text, d, interval)
		}
		if last, interval = s.at, 2*d; interval > solicitMax {
			interval = solicitMax
		}
	}
}

func TestNoVerification(t *testing.T) {
	w := newWorld(t, Config{})
	if err := w.h.AddStatic(netip.MustParsePrefix("2001:db8::1/64"), w.now); err != nil {
		t.Fatal(err)
	}
	w.state("2001:db8::1/64", Preferred)
	if all := w.run(time.Hour, true); len(all) != 0 {
		t.Errorf("sent %v", texts(all))
	}
	for _, bad := range []string{"2001:db8::1/64", "10.0.0.1/8", "ff02::1/64", "::/0", "::1/128", "::ffff:10.0.0.1/120"} {
		if err := w.h.AddStatic(netip.MustParsePrefix(bad), w.now); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if err := w.h.RemoveStatic(netip.MustParseAddr("2001:db8::1"), w.now); err != nil {
		t.Fatal(err)
	}
	if err := w.h.RemoveStatic(netip.MustParseAddr("2001:db8::1"), w.now); err == nil {
		t.Error("removed twice")
	}
}

// RFC 4862, 5.4.3 and 5.4.4: who else asks for the address, or has it, makes it a duplicate; who wants to reach it does not. RFC 7527, 4.2:
// neither does our own question that comes back.
func TestDuplicate(t *testing.T) {
	target := addr6("2001:db8::1")
	for _, c := range []struct {
		name string
		hear func(w *world, ours wire.ND)
		want State
	}{
		{"nobody", func(*world, wire.ND) {}, Preferred},
		{"another asks too", func(w *world, _ wire.ND) {
			w.h.Heard(w.now, wire.Addr{}, &wire.ND{Type: wire.ICMP6NeighborSol, Target: target})
		}, Duplicate},
		{"another asks too, with a nonce", func(w *world, _ wire.ND) {
			w.h.Heard(w.now, wire.Addr{}, &wire.ND{Type: wire.ICMP6NeighborSol, Target: target, HasNonce: true, Nonce: [6]byte{1}})
		}, Duplicate},
		{"another has it", func(w *world, _ wire.ND) {
			w.h.Heard(w.now, target, &wire.ND{Type: wire.ICMP6NeighborAdv, Target: target, Flags: wire.NDOverride})
		}, Duplicate},
		{"our own question", func(w *world, ours wire.ND) { w.h.Heard(w.now, wire.Addr{}, &ours) }, Preferred},
		{"somebody looks for it", func(w *world, _ wire.ND) {
			w.h.Heard(w.now, other, &wire.ND{Type: wire.ICMP6NeighborSol, Target: target})
		}, Preferred},
		{"another address", func(w *world, _ wire.ND) {
			w.h.Heard(w.now, other, &wire.ND{Type: wire.ICMP6NeighborAdv, Target: other})
		}, Preferred},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{Transmits: 1})
			if err := w.h.AddStatic(netip.MustParsePrefix("2001:db8::1/64"), w.now); err != nil {
				t.Fatal(err)
			}
			all := w.run(time.Second, true)
			i := slices.IndexFunc(all, func(s sent) bool { return s.nd.Target == target })
			if i < 0 {
				t.Fatalf("no question: %v", texts(all))
			}
			c.hear(w, all[i].nd)
			w.run(10*time.Second, true)
			w.state("2001:db8::1/64", c.want)
			// Once it is verified, what others say changes nothing here.
			w.h.Heard(w.now, target, &wire.ND{Type: wire.ICMP6NeighborAdv, Target: target})
			w.run(10*time.Second, true)
			w.state("2001:db8::1/64", c.want)
		})
	}
}

// RFC 7217, 5 and 6: the identifier is the same every time, another in another network, under another secret and after a conflict; three
// conflicts are the end.
func TestIdentifiers(t *testing.T) {
	a, b := newWorld(t, Config{Transmits: 1}), newWorld(t, Config{Transmits: 1})
	if a.addr("fe80::") != b.addr("fe80::") {
		t.Error("another identifier at the second start")
	}
	id := func(h *Host, network string, counter uint8) string {
		p := h.identifier(netip.MustParsePrefix(network), counter).Addr().As16()
		return string(p[8:])
	}
	seen := map[string]bool{}
	secret := New(Config{MAC: mac, Name: "p", Secret: []byte("another")}, start)
	for _, s := range []string{id(a.h, "fe80::/64", 0), id(a.h, "fe80::/64", 1), id(a.h, "2001:db8::/64", 0), id(a.h, "2001:db8:0:1::/64", 0), id(secret, "fe80::/64", 0)} {
		if seen[s] {
			t.Error("the same identifier twice")
		}
		seen[s] = true
	}
	for n := range maxIdentifiers + 1 {
		a.run(10*time.Millisecond, true)
		x := a.addr("fe80::")
		if x.State != Tentative || seen[x.Prefix.String()] {
			t.Fatalf("after %d conflicts: %+v", n, x)
		}
		seen[x.Prefix.String()] = true
		a.h.Heard(a.now, wire.Addr{}, &wire.ND{Type: wire.ICMP6NeighborSol, Target: wire.AddrFrom(x.Prefix.Addr())})
		a.state("fe80::", Duplicate)
		for a.addr("fe80::").State == Duplicate && n < maxIdentifiers {
			a.run(10*time.Millisecond, true)
		}
	}
	a.run(time.Hour, true)
	a.state("fe80::", Duplicate)
}
