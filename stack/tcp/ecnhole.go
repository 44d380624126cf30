package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ecnHoles remembers peers that twice in a row answered only a SYN without ECN: asking costs a second each time, so they are not asked
// for an hour. A peer that has the same place as another takes it over.
type ecnHoles struct{ at []ecnHole }

type ecnHole struct {
	addr  wire.Addr
	until plugins.Time
	fails uint8
}

const (
	numHoles  = 256
	holeTime  = time.Hour
	holeFails = 2
)

func (h *ecnHoles) place(k *Tuple) *ecnHole {
	a := &k.Remote
	return &h.at[(uint(a[15])^uint(a[14])*7^uint(a[13])*31^uint(a[7])*127)%numHoles]
}

// has reports whether the peer must not be asked now.
func (h *ecnHoles) has(k *Tuple, now plugins.Time) bool {
	if h.at == nil {
		return false
	}
	p := h.place(k)
	return p.addr == k.Remote && p.fails >= holeFails && p.until > now
}

// tried notes whether the peer answered a SYN that asked.
func (h *ecnHoles) tried(k *Tuple, ok bool, now plugins.Time) {
	if h.at == nil {
		if ok {
			return
		}
		h.at = make([]ecnHole, numHoles)
	}
	p := h.place(k)
	switch {
	case ok && p.addr == k.Remote:
		*p = ecnHole{}
	case ok:
	case p.addr != k.Remote || p.until <= now:
		*p = ecnHole{k.Remote, now.Add(holeTime), 1}
	default:
		p.fails, p.until = min(p.fails, 254)+1, now.Add(holeTime)
	}
}
