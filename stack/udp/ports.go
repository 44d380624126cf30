package udp

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// Ports are the bound ports of a stack. Applications use it, workers never do.
type Ports struct {
	mu        sync.Mutex
	bound     map[uint16][]*Endpoint
	rng       *rand.ChaCha8
	low, high uint16
}

// NewPorts makes the table. Ports from low to high are those of endpoints that do not care for theirs; key seeds the choice.
func NewPorts(key [32]byte, low, high uint16) *Ports {
	return &Ports{bound: map[uint16][]*Endpoint{}, rng: rand.NewChaCha8(key), low: low, high: high}
}

// Bind makes an endpoint with a port of its own. If its local port is 0 one is drawn, each as likely as any other, from a generator that
// cannot be foreseen (RFC 6056, 3.3.1): a forger of answers has to guess it. It returns syscall.EADDRINUSE if the port, or all of
// them, are taken.
func (t *Ports) Bind(cfg Config) (*Endpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cfg.Local.Port() != 0 {
		return t.bind(cfg)
	}
	n := uint32(t.high-t.low) + 1
	start := uint32(t.rng.Uint64() % uint64(n))
	for i := range n {
		cfg.Local = netip.AddrPortFrom(cfg.Local.Addr(), t.low+uint16((start+i)%n))
		if ep, err := t.bind(cfg); err == nil {
			return ep, nil
		}
	}
	return nil, syscall.EADDRINUSE
}

func (t *Ports) bind(cfg Config) (*Endpoint, error) {
	ep := NewEndpoint(cfg)
	if slices.ContainsFunc(t.bound[ep.localPort], ep.overlaps) {
		return nil, syscall.EADDRINUSE
	}
	t.bound[ep.localPort] = append(t.bound[ep.localPort], ep)
	return ep, nil
}

// Unbind frees the port.
func (t *Ports) Unbind(ep *Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := slices.DeleteFunc(t.bound[ep.localPort], func(x *Endpoint) bool { return x == ep })
	if len(l) == 0 {
		delete(t.bound, ep.localPort)
		return
	}
	t.bound[ep.localPort] = l
}

// All returns all endpoints that are bound.
func (t *Ports) All() (all []*Endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.bound {
		all = append(all, l...)
	}
	return all
}
