package stack

import (
	"slices"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/route"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// adopt takes up a new table of addresses and routes.
func (w *Worker) adopt(t *route.Table) {
	w.routes = t
	w.neigh.SetLocals(t.Addrs(0), w.index == 0, w.now)
	w.neigh.Reroute()
	w.mtu6 = w.stack.mtu
	if n := t.MTU6(); n != 0 {
		w.mtu6 = min(n, w.mtu6)
	}
	w.engine.SetMTU6(w.mtu6)
}

// Resolve implements tcp.Link.
func (w *Worker) Resolve(ref *neigh.Ref, dst wire.Addr) (wire.MAC, bool) {
	mac, res := w.neigh.Resolve(*ref, w.now)
	if res == neigh.Gone {
		_, hop, ok := w.routes.Lookup(dst)
		if !ok {
			w.Stats.NoRoute++
			*ref = neigh.Ref{}
			return wire.MAC{}, false
		}
		lookup := w.neigh.Lookup
		if hop != dst {
			lookup = w.neigh.LookupGateway
		}
		r, ok := lookup(hop, w.now)
		if !ok {
			*ref = neigh.Ref{}
			return wire.MAC{}, false
		}
		*ref = r
		mac, res = w.neigh.Resolve(r, w.now)
		w.asked = true
	}
	return mac, res == neigh.OK
}

// Hold implements tcp.Link.
func (w *Worker) Hold(ref neigh.Ref, b *pmd.Buf) { w.freeChain(w.neigh.Enqueue(ref, b)) }

// Confirm implements tcp.Link.
func (w *Worker) Confirm(ref neigh.Ref) { w.neigh.Confirm(ref, w.now) }

// Doubt implements tcp.Link.
func (w *Worker) Doubt(ref neigh.Ref) { w.neigh.Doubt(ref, w.now) }

// neighbours sends the requests for link addresses that are due, tells who waited in vain, and runs address configuration.
func (w *Worker) neighbours() {
	if w.asked || w.neigh.Deadline() <= w.now {
		w.asked = false
		n, failed := w.neigh.Poll(w.now, w.asks[:])
		for i := range n {
			if o := &w.asks[i]; o.To == (wire.Addr{}) {
				w.sendARP(o)
			} else {
				w.sendND(o.Dst, o.Src, o.To, &o.ND)
			}
		}
		w.freeChain(failed)
		if hops := w.neigh.Failed(); len(hops) > 0 {
			w.hopsFailed(hops)
		}
	}
	w.autoconf()
}

// hopsFailed tells TCP of next hops that do not answer, and address configuration of routers among them.
func (w *Worker) hopsFailed(hops []wire.Addr) {
	w.engine.HostUnreachable(func(dst wire.Addr) bool {
		_, hop, ok := w.routes.Lookup(dst)
		return ok && slices.Contains(hops, hop)
	})
	if first := w.stack.workers[0]; w.stack.auto != nil {
		hops := slices.Clone(hops)
		first.post(func() {
			for _, h := range hops {
				first.auto.RouterFailed(h)
			}
			first.autoconf()
		})
	}
}

// neighboursDue is the next time at which neighbours has work.
func (w *Worker) neighboursDue() plugins.Time {
	if w.auto != nil {
		return min(w.neigh.Deadline(), w.auto.Deadline())
	}
	return w.neigh.Deadline()
}

// autoconf sends what address configuration has to send, and publishes what it has found out. One worker does it.
func (w *Worker) autoconf() {
	if w.auto == nil {
		return
	}
	if w.auto.Deadline() <= w.now {
		for _, m := range w.auto.Poll(w.now) {
			h := ipHeader{src: m.Src, dst: m.Dst, proto: wire.ProtoICMPv6, ttl: m.HopLimit}
			n := len(m.ICMP)
			if m.Alert {
				h.proto = wire.ProtoHopByHop
				n += wire.RouterAlertLen
			}
			w.sendIP(&h, n, func(b []byte) {
				if m.Alert {
					wire.PutRouterAlert(b, wire.ProtoICMPv6)
					b = b[wire.RouterAlertLen:]
				}
				copy(b, m.ICMP)
			})
		}
	}
	if w.auto.Changed() {
		w.stack.learned(w.auto.Snapshot())
	}
}
