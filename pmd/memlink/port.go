package memlink

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// link is what both ports share.
type link struct {
	cfg      Config
	maxFrame int
	down     atomic.Uint32 // bits of the ports that are closed

	mu    sync.Mutex // serialises Close
	ports [2]*Port
}

func (l *link) clock() plugins.Time { return l.cfg.Now() }

// Port is one end of a link.
type Port struct {
	link   *link
	end    End
	peer   *Port
	bit    uint32
	queues []*queue
	out    *path // nil if clean
	in     *path
	holds  bool // keeps frames until the path has served them
}

// New makes a link and returns its ends. Errors name the fields at fault.
//
// Since buffers of one port's pools may be with the other's owner, pools are checked and unmapped when the second port is closed.
func New(cfg Config) (a, b *Port, err error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, nil, err
	}
	l := &link{cfg: cfg, maxFrame: cfg.maxFrame()}
	a, b = &Port{link: l, end: cfg.A, bit: 1}, &Port{link: l, end: cfg.B, bit: 2}
	a.peer, b.peer = b, a
	l.ports = [2]*Port{a, b}
	for _, p := range l.ports {
		in := &cfg.BtoA
		if p == b {
			in = &cfg.AtoB
		}
		if err := p.addQueues(in.impaired()); err != nil {
			return nil, nil, errors.Join(err, l.release())
		}
	}
	l.connect(a, b, &cfg.AtoB, 1)
	l.connect(b, a, &cfg.BtoA, 2)
	return a, b, nil
}

// addQueues makes the port's queues with their pools and wakers.
func (p *Port) addQueues(impaired bool) error {
	c := &p.link.cfg
	for i := range c.Queues {
		q := &queue{port: p, i: i}
		p.queues = append(p.queues, q)
		var err error
		if q.wake, err = newWaker(c.Virtual, impaired); err != nil {
			return err
		}
		if q.pool, err = pmd.NewPool(fmt.Sprintf("memlink:%s.%d", p.end.Name, i), c.Bufs, c.BufSize); err != nil {
			return err
		}
		if !c.Virtual {
			q.pool.Populate()
		}
		if c.TSO == 0 {
			continue
		}
		if q.cuts, err = pmd.NewPool(fmt.Sprintf("memlink:%s.%d segments", p.end.Name, i), c.Bufs, c.BufSize); err != nil {
			return err
		}
		q.wire = make([]*pmd.Buf, 0, c.Ring)
	}
	return nil
}

// connect makes the direction between two ports.
func (l *link) connect(from, to *Port, cfg *Path, direction uint64) {
	var wakers []*waker
	for _, q := range to.queues {
		wakers = append(wakers, q.wake)
	}
	if cfg.impaired() {
		p := newPath(*cfg, l.cfg.Seed, direction, wakers)
		if tap := l.cfg.Dropped; tap != nil {
			fromA := from.bit == 1
			p.tap = func(frame []byte) { tap(fromA, frame) }
		}
		p.extra, p.extraMost = l.cfg.Extra, l.cfg.ExtraMost
		from.out, to.in, from.holds = p, p, cfg.holds()
		for i := range from.queues {
			from.queues[i].outPath, to.queues[i].inPath = p, p
		}
		return
	}
	for i, src := range from.queues {
		src.peers = wakers
		src.out = make([]*ring, len(to.queues))
		for j, dst := range to.queues {
			if dst.in == nil {
				dst.in = make([]*ring, len(from.queues))
			}
			if i == j || l.cfg.Steer != nil {
				r := newRing(l.cfg.Ring)
				src.out[j], dst.in[i] = r, r
			}
		}
	}
}

// Info implements pmd.Port.
func (p *Port) Info() pmd.Info {
	c := &p.link.cfg
	i := pmd.Info{
		Driver: "memlink", Name: p.end.Name, MAC: slices.Clone(p.end.MAC), MTU: c.MTU,
		Caps: pmd.Copies | pmd.Prompt, Virtual: c.Virtual,
	}
	if p.holds {
		i.Caps &^= pmd.Copies
	}
	if c.TSO > 0 {
		i.Caps |= pmd.TxCsum | pmd.TSO
		i.MaxTSO = c.TSO
	}
	if c.RSSKey != nil {
		i.Caps |= pmd.RSSHash
		i.RSSKey, i.RSSTable = slices.Clone(c.RSSKey), slices.Clone(c.RSSTable)
	}
	return i
}

// NumQueues implements pmd.Port.
func (p *Port) NumQueues() int { return len(p.queues) }

// Queue implements pmd.Port. The queues are also pmd.Parkers.
func (p *Port) Queue(i int) pmd.Queue { return p.queues[i] }

// LinkUp implements pmd.Port: the link is up until either end is closed.
func (p *Port) LinkUp() bool { return p.link.down.Load() == 0 }

// Stats implements pmd.Port. Frames lost on an impaired path are in Counters, not here.
func (p *Port) Stats() (s pmd.Stats) {
	for _, q := range p.queues {
		s.RxFrames += q.stats.rxFrames.Load()
		s.RxBytes += q.stats.rxBytes.Load()
		s.TxFrames += q.stats.txFrames.Load()
		s.TxBytes += q.stats.txBytes.Load()
		s.TxErrors += q.stats.txErrors.Load()
		s.TxFull += q.stats.txFull.Load()
	}
	return s
}

// Counters says what the path did to the frames that this port sent. It may be called from any goroutine. Without impairments
// only InFlight is counted, the frames in the rings.
func (p *Port) Counters() (c Counters) {
	if p.out != nil {
		return p.out.counters()
	}
	for _, q := range p.queues {
		for _, r := range q.out {
			if r != nil {
				c.InFlight += int(r.tail.Load() - r.head.Load())
			}
		}
	}
	return c
}

// NextRelease is the earliest time at which this port can receive a frame, or tell that one it keeps is sent: in the past if one waits,
// plugins.Never if none is on its way. It may be called from any goroutine; it allocates nothing.
func (p *Port) NextRelease() plugins.Time {
	next := plugins.Never
	for _, q := range p.queues {
		next = min(next, q.next(), q.nextSent())
	}
	return next
}

// SetPath changes the path of the frames that this port sends from now on. It may be called from any goroutine. The path must have
// been impaired from the start (it may become clean), and it needs the link's clock if it is to have a rate or a delay.
func (p *Port) SetPath(cfg Path) error {
	cfg.setDefaults()
	var e errs
	e.check(p.out != nil, "SetPath: port %s was made with a clean path", p.end.Name)
	cfg.validate("Path", p.link.cfg.Now != nil, &e)
	if e != nil {
		return errors.Join(e...)
	}
	p.out.set(cfg)
	return nil
}

// Close implements pmd.Port. The second of the two ports to be closed checks the pools of both and unmaps them; its error names the
// leaks of either.
func (p *Port) Close() error {
	l := p.link
	l.mu.Lock()
	defer l.mu.Unlock()
	down := l.down.Load()
	if down&p.bit != 0 {
		return pmd.ErrClosed
	}
	l.down.Store(down | p.bit)
	if down == 0 {
		return nil
	}
	return l.release()
}

// release frees what is on the link, then checks and unmaps the pools, and closes the descriptors.
func (l *link) release() error {
	for _, p := range l.ports {
		for _, q := range p.queues {
			for _, r := range q.in {
				for r != nil && !r.empty() {
					var one [1]*pmd.Buf
					r.pop(one[:])
					one[0].Free()
				}
			}
		}
		if p.in != nil {
			for i := range p.in.lanes {
				for line := &p.in.lanes[i].line; line.len() > 0; {
					line.pop().Free()
				}
			}
		}
	}
	var err error
	for _, p := range l.ports {
		for _, q := range p.queues {
			if q.wake != nil {
				err = errors.Join(err, q.wake.close())
			}
			for _, p := range []*pmd.Pool{q.pool, q.cuts} {
				if p != nil {
					err = errors.Join(err, p.CheckLeaks(), p.Unmap())
				}
			}
		}
	}
	return err
}
