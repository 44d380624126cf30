package autoconf

import (
	"encoding/binary"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// maxDelay is how long the first question waits at most, so that hosts that start together do not ask together (RFC 4862, 5.4.2).
const maxDelay = time.Second

// maxIdentifiers bounds how many identifiers are tried for a prefix (RFC 7217, 6: IDGEN_RETRIES), with a pause between them.
const (
	maxIdentifiers = 3
	anotherDelay   = time.Second
)

// verify starts duplicate address detection (RFC 4862, 5.4).
func (h *Host) verify(x *addr, now plugins.Time) {
	x.State, x.left, x.asked = Tentative, h.cfg.Transmits, 0
	if x.left == 0 {
		h.verified(x, now)
		return
	}
	x.due = now.Add(h.delay(maxDelay))
}

// question asks for a tentative address, or ends the asking.
func (h *Host) question(x *addr, now plugins.Time) {
	if x.left == 0 {
		h.verified(x, now)
		return
	}
	x.left--
	nonce := &x.nonces[x.asked%len(x.nonces)]
	x.asked++
	binary.BigEndian.PutUint32(nonce[:], h.rng.Uint32())
	binary.BigEndian.PutUint16(nonce[4:], uint16(h.rng.Uint32()))
	h.sendND(wire.Addr{}, x.a.SolicitedNode(), &wire.ND{Type: wire.ICMP6NeighborSol, Target: x.a, Nonce: *nonce, HasNonce: true})
	x.due = now.Add(retransTime)
}

func (h *Host) sendND(src, dst wire.Addr, n *wire.ND) {
	b := make([]byte, wire.MaxNDLen)
	b = b[:wire.PutND(b, src, dst, n)]
	h.out = append(h.out, Message{Src: src, Dst: dst, HopLimit: 255, ICMP: b})
}

func (h *Host) verified(x *addr, now plugins.Time) {
	x.State, x.due, h.changed = Preferred, plugins.Never, true
	if now >= x.Preferred {
		x.State = Deprecated
	}
	if x.Origin == LinkLocal {
		h.solicit(now)
	}
}

// Heard takes a neighbour solicitation or advertisement, of which a tentative address may be the target (RFC 4862, 5.4.3 and 5.4.4).
// from is the source of the packet.
func (h *Host) Heard(now plugins.Time, from wire.Addr, n *wire.ND) {
	x := h.find(n.Target)
	if x == nil || x.State != Tentative {
		return
	}
	if n.Type == wire.ICMP6NeighborSol {
		if from != (wire.Addr{}) {
			return // somebody who wants to reach it
		}
		if n.HasNonce && x.knows(n.Nonce) { // RFC 7527, 4.2
			h.stats.LoopedBack++
			return
		}
	}
	h.stats.Duplicates++
	x.State, x.due, h.changed = Duplicate, plugins.Never, true
	if x.Origin != Static && x.counter < maxIdentifiers {
		x.due = now.Add(h.delay(anotherDelay))
	}
	h.schedule()
}

// knows reports whether a question of ours had that nonce.
func (x *addr) knows(nonce [6]byte) bool {
	for i := range min(x.asked, len(x.nonces)) {
		if x.nonces[i] == nonce {
			return true
		}
	}
	return false
}

// another tries the next identifier for the prefix of a duplicate address.
func (h *Host) another(x *addr, now plugins.Time) {
	h.leave(x.a.SolicitedNode(), now)
	x.counter++
	x.Prefix = h.identifier(x.Prefix, x.counter)
	x.a = wire.AddrFrom(x.Prefix.Addr())
	h.join(x.a.SolicitedNode(), now)
	h.verify(x, now)
	h.changed = true
}
