package afpacket

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/link"
	"github.com/fastpath-tcp/fastpath/pmd/nsenter"
	"golang.org/x/sys/unix"
)

// Defaults of Config.
const (
	DefaultRingFrames = 1024
	DefaultPoolSize   = 4096
)

// Config says what to open. Only Interface is needed.
type Config struct {
	Interface  string
	NetNSPath  string // network namespace of the interface, such as /run/netns/NAME; empty is the calling thread's
	Queues     int    // default 1
	RingFrames int    // slots of each ring, of which every queue has two; default DefaultRingFrames
	FrameSize  int    // longest frame that a slot holds, in bytes with the Ethernet header; default: what the interface's MTU needs
	PoolSize   int    // buffers per queue; default DefaultPoolSize
	// MAC is the address that the user of the port answers to. If it is not the interface's, the default, the interface is made
	// promiscuous while the port is open.
	MAC         net.HardwareAddr
	Promiscuous bool
	Qdisc       bool // send through the interface's queueing discipline
	NoTxCsum    bool // complete checksums before frames are handed to the port
}

func (c *Config) complete(l *link.Link) error {
	setDefault := func(v *int, def, min, max int, name string) error {
		if *v == 0 {
			*v = def
		}
		if *v < min || *v > max {
			return fmt.Errorf("%s = %d: want %d … %d", name, *v, min, max)
		}
		return nil
	}
	if len(c.MAC) == 0 {
		c.MAC = l.MAC
	}
	var mac error
	if len(c.MAC) != 6 {
		mac = fmt.Errorf("MAC address %q: want 6 bytes", c.MAC)
	}
	return errors.Join(
		setDefault(&c.Queues, 1, 1, 256, "Queues"),
		setDefault(&c.RingFrames, DefaultRingFrames, 8, 1<<16, "RingFrames"),
		setDefault(&c.FrameSize, l.MTU+ethLen, 64, 1<<17, "FrameSize"),
		setDefault(&c.PoolSize, DefaultPoolSize, 1, 1<<24, "PoolSize"),
		mac)
}

// Port is an open interface.
type Port struct {
	info   pmd.Info
	link   *link.Link
	queues []*Queue

	mu     sync.Mutex // for Stats and Close
	closed bool
	drops  uint64 // kernel-side drops so far; the kernel's own counter is cleared when it is read
}

var _ pmd.Port = (*Port)(nil)

// Open opens an interface, which must be up. The errors name the interface and, where it is known, what to do.
func Open(c Config) (*Port, error) {
	var p *Port
	err := nsenter.Do(c.NetNSPath, func() (err error) {
		p, err = open(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("afpacket: %s: %w", c.Interface, link.Permission(err))
	}
	return p, nil
}

func open(c Config) (*Port, error) {
	p := &Port{}
	var err error
	if p.link, err = link.Open(c.Interface, p.linkChanged); err != nil {
		return nil, err
	}
	if err = p.setUp(&c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Port) setUp(c *Config) error {
	l := p.link
	if !l.Admin {
		return fmt.Errorf("the interface is down: ip link set dev %s up", l.Name)
	}
	if err := c.complete(l); err != nil {
		return err
	}
	caps := pmd.Copies | pmd.AnyPool | pmd.Prompt
	if !c.NoTxCsum {
		caps |= pmd.TxCsum
	}
	p.info = pmd.Info{Driver: "afpacket", Name: l.Name, MAC: c.MAC, MTU: l.MTU, Caps: caps}
	promiscuous := c.Promiscuous || !bytes.Equal(c.MAC, l.MAC)
	for i := range c.Queues {
		q, err := newQueue(c, l, i)
		if err != nil {
			return fmt.Errorf("queue %d: %w", i, err)
		}
		p.mu.Lock()
		p.queues = append(p.queues, q)
		p.mu.Unlock()
	}
	// IPv6 finds neighbours by groups, whose addresses are not known here.
	modes := []uint16{unix.PACKET_MR_ALLMULTI}
	if promiscuous {
		modes = append(modes, unix.PACKET_MR_PROMISC)
	}
	for _, mode := range modes {
		m := unix.PacketMreq{Ifindex: int32(l.Index), Type: mode}
		if err := unix.SetsockoptPacketMreq(p.queues[0].fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return fmt.Errorf("receiving what is sent to others: %w", err)
		}
	}
	return p.start()
}

// start binds the sockets to the interface and forms the fanout group. A socket that has not yet joined the group receives every
// frame; what arrived before all have joined is thrown away.
func (p *Port) start() error {
	var group int
	for i, q := range p.queues {
		if err := q.bind(p.link.Index); err != nil {
			return fmt.Errorf("bind queue %d: %w", i, err)
		}
		if len(p.queues) == 1 {
			return nil
		}
		mode := unix.PACKET_FANOUT_HASH | unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
		if i == 0 {
			mode |= unix.PACKET_FANOUT_FLAG_UNIQUEID
		}
		if err := unix.SetsockoptInt(q.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, mode<<16|group); err != nil {
			return fmt.Errorf("fanout group of %d queues: %w", len(p.queues), err)
		}
		if i == 0 {
			v, err := unix.GetsockoptInt(q.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
			if err != nil {
				return fmt.Errorf("fanout group: %w", err)
			}
			group = v & 0xffff
		}
	}
	for _, q := range p.queues {
		q.discard()
	}
	p.kernelDrops() // clears them
	p.drops = 0
	return nil
}

// Info describes the port.
func (p *Port) Info() pmd.Info { return p.info }

// NumQueues is the number of queue pairs.
func (p *Port) NumQueues() int { return len(p.queues) }

// Queue returns queue pair i.
func (p *Port) Queue(i int) pmd.Queue { return p.queues[i] }

// LinkUp reports whether the interface is up and has a carrier. It costs a load.
func (p *Port) LinkUp() bool { return p.link.Up() }

// linkChanged clears the error that the kernel leaves in the sockets when the interface goes down. Until it is read, the sockets count
// as readable, and a worker that waits for WakeFD would spin.
func (p *Port) linkChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for _, q := range p.queues {
		_, _ = unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
}

// Stats returns the counters. RxDropped includes what the kernel dropped for want of a free slot.
func (p *Port) Stats() pmd.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.kernelDrops()
	}
	s := pmd.Stats{RxDropped: p.drops}
	for _, q := range p.queues {
		q.stats.addTo(&s)
	}
	return s
}

// kernelDrops adds the kernel's counts, which reading clears, to p.drops. Super-frames that did not fit are counted as they are met.
func (p *Port) kernelDrops() {
	for _, q := range p.queues {
		if s, err := unix.GetsockoptTpacketStats(q.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			p.drops += uint64(s.Drops)
		}
	}
}

// Close sends what is queued as far as the kernel takes it at once, closes the sockets and unmaps rings and pools. Further calls
// return pmd.ErrClosed.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return pmd.ErrClosed
	}
	p.closed = true
	p.kernelDrops()
	p.mu.Unlock()
	p.link.Close()
	var errs []error
	for _, q := range p.queues {
		if err := q.close(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
