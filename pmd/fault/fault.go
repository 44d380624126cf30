// Package fault is a middleware that makes any port a bad one: it loses, corrupts, duplicates and marks frames, takes fewer than it is
// offered, and exhausts the pool, all from a seed.
package fault

import (
	"fmt"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/chance"
)

// PPB is a probability in parts per billion.
type PPB = chance.PPB

// Probabilities.
const (
	Percent = chance.Percent
	Always  = chance.Always
)

// Config says what goes wrong.
type Config struct {
	Seed   uint64
	Tx, Rx Frames

	// ShortTx is the probability, per Poll, that the next Poll takes at most a random part of its room.
	ShortTx PPB
	// Exhaust is the probability, per Poll, that all free buffers are taken from the queue's pool, for ExhaustPolls Polls.
	Exhaust      PPB
	ExhaustPolls int
}

// Frames are the probabilities of what happens to a frame.
type Frames struct {
	Loss      PPB
	Duplicate PPB // the copy follows at once, if there are a buffer and room for it
	Corrupt   PPB // one bit, or a burst of up to 15 bits, behind the Ethernet header
	Mark      PPB // of those with ECT: a mark of congestion (RFC 3168, 5)
}

func (f *Frames) any() bool { return f.Loss|f.Duplicate|f.Corrupt|f.Mark != 0 }

// Counters say what went wrong.
type Counters struct {
	TxLost, TxDuplicated, TxCorrupted, TxMarked uint64
	RxLost, RxDuplicated, RxCorrupted, RxMarked uint64
	Shortened                                   uint64 // Polls that took less for it
	Exhausted                                   uint64 // times that the pool was emptied
}

// Port is a faulty port.
type Port struct {
	pmd.Port
	cfg    Config
	queues []*queue
	outer  []pmd.Queue // the queues as seen from outside: parkers if those below are
	n      struct {
		txLost, txDup, txCorrupt, txMark, rxLost, rxDup, rxCorrupt, rxMark, short, exhausted atomic.Uint64
	}
}

// New wraps a port. Errors name the field at fault.
func New(p pmd.Port, c Config) (*Port, error) {
	for _, f := range []struct {
		name string
		v    PPB
	}{
		{"Tx.Loss", c.Tx.Loss}, {"Tx.Duplicate", c.Tx.Duplicate}, {"Tx.Corrupt", c.Tx.Corrupt}, {"Rx.Loss", c.Rx.Loss},
		{"Rx.Duplicate", c.Rx.Duplicate}, {"Rx.Corrupt", c.Rx.Corrupt}, {"Tx.Mark", c.Tx.Mark}, {"Rx.Mark", c.Rx.Mark}, {"ShortTx", c.ShortTx}, {"Exhaust", c.Exhaust},
	} {
		if f.v > Always {
			return nil, fmt.Errorf("fault: %s: %d is more than %d parts per billion", f.name, f.v, Always)
		}
	}
	if c.Exhaust > 0 && c.ExhaustPolls <= 0 {
		return nil, fmt.Errorf("fault: ExhaustPolls: %d, must be positive with Exhaust", c.ExhaustPolls)
	}
	f := &Port{Port: p, cfg: c}
	for i := range p.NumQueues() {
		q := newQueue(f, p.Queue(i), uint64(i))
		f.queues = append(f.queues, q)
		if k, ok := q.Queue.(pmd.Parker); ok {
			f.outer = append(f.outer, &parker{q, k})
		} else {
			f.outer = append(f.outer, q)
		}
	}
	return f, nil
}

// Info implements pmd.Port. A port that corrupts what it sends does not offer to compute checksums, which would hide it; faults happen to
// frames as they are on the wire, so that none is to be cut below.
func (p *Port) Info() pmd.Info {
	i := p.Port.Info()
	if p.cfg.Tx.Corrupt != 0 {
		i.Caps &^= pmd.TxCsum
	}
	if p.cfg.Tx.any() {
		i.Caps &^= pmd.TSO
		i.MaxTSO = 0
	}
	return i
}

// Queue implements pmd.Port.
func (p *Port) Queue(i int) pmd.Queue { return p.outer[i] }

// Stats implements pmd.Port: the counters of the port below, whose frames are those that were not lost here.
func (p *Port) Stats() pmd.Stats {
	s := p.Port.Stats()
	s.TxFull += p.n.short.Load()
	return s
}

// Counters may be called from any goroutine.
func (p *Port) Counters() Counters {
	n := &p.n
	return Counters{
		TxLost: n.txLost.Load(), TxDuplicated: n.txDup.Load(), TxCorrupted: n.txCorrupt.Load(), TxMarked: n.txMark.Load(),
		RxLost: n.rxLost.Load(), RxDuplicated: n.rxDup.Load(), RxCorrupted: n.rxCorrupt.Load(), RxMarked: n.rxMark.Load(),
		Shortened: n.short.Load(), Exhausted: n.exhausted.Load(),
	}
}

// Close gives back what it holds and closes the port below.
func (p *Port) Close() error {
	for _, q := range p.queues {
		q.restore()
	}
	return p.Port.Close()
}
