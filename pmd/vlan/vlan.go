// Package vlan makes several ports of one by IEEE 802.1Q tags: one for untagged frames, the native VLAN, and one for each VLAN ID. A tag
// is taken off on reception and put on, into the headroom, on transmission; priorities are ignored and sent as 0, and a frame with a
// priority but without an ID counts as untagged. Frames of other VLANs are dropped and counted; stacked tags (802.1ad) are left alone.
//
// The ports share the parent's queues and pools. Who polls: queue i of all ports of one parent must be polled by one thread, the poller
// of adaptive workers or the one of a core, because a Poll for one of them receives for all. What a Poll receives for others waits in
// rings of theirs. The parent is closed with the last of its ports.
package vlan

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// Untagged is the ID of the port for untagged frames.
const Untagged = 0

// MaxID is the largest VLAN ID; 4095 is reserved.
const MaxID = 4094

// Waiting is the number of frames that wait for a port while others of its parent are polled. Further ones are dropped.
const Waiting = 512

const (
	tagLen    = 4
	macsLen   = 12
	ethLen    = 14
	etherType = 0x8100
)

// Config names a port.
type Config struct {
	Name string // default: the parent's with the ID, "wan.100"
	ID   uint16 // Untagged, or 1 to MaxID
}

// parent is what the ports share.
type parent struct {
	port   pmd.Port
	info   pmd.Info
	ports  []*Port
	byID   [MaxID + 1]*Port
	queues []*shared

	mu   sync.Mutex
	open int
}

// Port is the share of one VLAN in a parent.
type Port struct {
	parent *parent
	cfg    Config
	index  int // in parent.ports
	queues []pmd.Queue
	closed atomic.Bool
}

var _ pmd.Port = (*Port)(nil)

// New makes ports of a parent, whose owner they become. The parent must carry frames that are longer than its MTU says by a tag, as
// drivers do.
func New(p pmd.Port, cs []Config) ([]*Port, error) {
	t := &parent{port: p, info: p.Info(), open: len(cs)}
	if len(cs) == 0 {
		return nil, fmt.Errorf("vlan: %s: no ports", t.info.Name)
	}
	for _, c := range cs {
		switch {
		case c.ID > MaxID:
			return nil, fmt.Errorf("vlan: %s: ID %d is not in 1 … %d", t.info.Name, c.ID, MaxID)
		case t.byID[c.ID] != nil:
			return nil, fmt.Errorf("vlan: %s: ID %d is there twice", t.info.Name, c.ID)
		}
		if c.Name == "" {
			c.Name = fmt.Sprintf("%s.%d", t.info.Name, c.ID)
		}
		v := &Port{parent: t, cfg: c, index: len(t.ports)}
		t.ports, t.byID[c.ID] = append(t.ports, v), v
	}
	for i := range p.NumQueues() {
		s := newShared(t, p.Queue(i))
		t.queues = append(t.queues, s)
		for _, v := range t.ports {
			v.queues = append(v.queues, s.queue(v))
		}
	}
	return t.ports, nil
}

// ID is the port's VLAN.
func (p *Port) ID() uint16 { return p.cfg.ID }

// Info describes the port: the parent, by another name.
func (p *Port) Info() pmd.Info {
	i := p.parent.info
	i.Name = p.cfg.Name
	return i
}

// NumQueues is the number of queue pairs, the parent's.
func (p *Port) NumQueues() int { return len(p.queues) }

// Queue returns queue pair i.
func (p *Port) Queue(i int) pmd.Queue { return p.queues[i] }

// LinkUp is the parent's.
func (p *Port) LinkUp() bool { return p.parent.port.LinkUp() }

// Stats returns the counters. Bytes are without tags. What the parent has lost, and frames of foreign VLANs, count as RxDropped of the
// first port.
func (p *Port) Stats() pmd.Stats {
	var s pmd.Stats
	for _, q := range p.parent.queues {
		c := &q.subs[p.index].stats
		s.RxFrames += c.rxFrames.Load()
		s.RxBytes += c.rxBytes.Load()
		s.RxDropped += c.rxDropped.Load()
		s.TxFrames += c.txFrames.Load()
		s.TxBytes += c.txBytes.Load()
		s.TxErrors += c.txErrors.Load()
		s.TxFull += c.txFull.Load()
		if p.index == 0 {
			s.RxDropped += q.foreign.Load()
		}
	}
	if p.index == 0 {
		below := p.parent.port.Stats()
		s.RxDropped += below.RxDropped
		s.RxErrors += below.RxErrors
		s.TxErrors += below.TxErrors
	}
	return s
}

// Foreign is the number of frames of VLANs that none of the parent's ports has.
func (p *Port) Foreign() (n uint64) {
	for _, q := range p.parent.queues {
		n += q.foreign.Load()
	}
	return n
}

// Close ends the port, whose queues are idle. What still arrives for it is dropped. The last one closes the parent. Further calls return
// pmd.ErrClosed.
func (p *Port) Close() error {
	if p.closed.Swap(true) {
		return pmd.ErrClosed
	}
	t := p.parent
	t.mu.Lock()
	t.open--
	last := t.open == 0
	t.mu.Unlock()
	if !last {
		return nil
	}
	for _, q := range t.queues {
		q.drain()
	}
	return t.port.Close()
}
