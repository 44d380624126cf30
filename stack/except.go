package stack

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Exception is the way for frames that a stack does not own: they go to a device of the host's kernel, and what the kernel sends there
// leaves through the stack's port, so that both can use one card. The device has the Ethernet address of the port and IP addresses of its
// own. ARP, neighbour discovery and MLD go to both, and each answers for its own addresses. The two do not reach each other.
type Exception struct {
	Port pmd.Port // one queue, with the capabilities AnyPool and Copies, and no offloads on reception; the stack closes it
	Rate int      // frames per second in each direction; 0: 20 000
	// Unclaimed passes on what the stack would refuse at its own addresses, too: segments without connection or listener, datagrams
	// without socket, other protocols. The device then has the same addresses.
	Unclaimed bool
}

// ExceptionStats are the counters of an Exception.
type ExceptionStats struct {
	ToKernel, ToKernelBytes     uint64
	FromKernel, FromKernelBytes uint64
	Limited                     uint64 // frames for the kernel beyond the rate
	Full                        uint64 // frames for the kernel that found too many waiting
	Errors                      uint64 // frames that the device or the port cannot take
}

const (
	exceptionRate    = 20_000                 // frames per second
	exceptionBurst   = 100 * time.Millisecond // what may come at once, in time at that rate
	exceptionWaiting = 256                    // frames that may wait for the kernel: they are the port's buffers
)

// exception moves frames between workers and the device. Workers push and go on; a goroutine of its own makes the system calls.
type exception struct {
	cfg   Exception
	queue pmd.Queue
	owner *Worker // that sends what the kernel sends
	mtu   int

	toKernel frameStack
	waiting  atomic.Int32 // in toKernel
	out      []*pmd.Buf
	rx       [burst]*pmd.Buf
	up, down bucket // to the kernel, from it

	wakeFD   int // eventfd; -1 on a manual stack
	parked   atomic.Bool
	stopping atomic.Bool
	done     chan struct{}

	n struct{ up, upBytes, down, downBytes, limited, full, errors atomic.Uint64 }
}

// bucket limits a rate: each frame costs its share of a second.
type bucket struct {
	cost   plugins.Time // ns per frame
	credit plugins.Time // ns
	last   plugins.Time
}

// fill adds the time since the last call, and returns how many frames may pass.
func (b *bucket) fill(now plugins.Time) int {
	b.credit = min(b.credit+now-b.last, max(plugins.Time(exceptionBurst), b.cost))
	b.last = now
	return int(b.credit / b.cost)
}

func newException(c Exception, owner *Worker, now plugins.Time) (*exception, error) {
	info := c.Port.Info()
	if need := pmd.AnyPool | pmd.Copies; info.Caps&need != need || c.Port.NumQueues() != 1 {
		return nil, fmt.Errorf("stack: exception port %s: want one queue that takes and copies frames of any pool", info.Name)
	}
	if c.Rate == 0 {
		c.Rate = exceptionRate
	}
	if c.Rate < 1 || c.Rate > 1e9 {
		return nil, fmt.Errorf("stack: exception port %s: rate %d is not in 1 … 10^9 frames per second", info.Name, c.Rate)
	}
	x := &exception{cfg: c, queue: c.Port.Queue(0), owner: owner, mtu: owner.stack.mtu, wakeFD: -1, done: make(chan struct{})}
	x.up = bucket{cost: plugins.Time(1e9 / c.Rate), credit: plugins.Time(exceptionBurst), last: now}
	x.down = x.up
	return x, nil
}

// start runs the goroutine.
func (x *exception) start() (err error) {
	if x.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return err
	}
	go x.run()
	return nil
}

// stop ends the goroutine and frees what waits for the kernel. The workers have ended.
func (x *exception) stop() {
	x.stopping.Store(true)
	if x.wakeFD >= 0 {
		x.wake()
		<-x.done
		unix.Close(x.wakeFD)
	}
	for b := x.toKernel.take(); b != nil; {
		next := b.Next
		b.Free()
		b = next
	}
}

func (x *exception) run() {
	defer close(x.done)
	clock := x.owner.clock
	for !x.stopping.Load() {
		if x.pump(clock.Now()) {
			continue
		}
		x.parked.Store(true)
		if !x.toKernel.empty() || x.stopping.Load() {
			x.parked.Store(false)
			continue
		}
		fds := [2]unix.PollFd{{Fd: int32(x.wakeFD), Events: unix.POLLIN}, {Fd: int32(x.queue.WakeFD()), Events: unix.POLLIN}}
		n, wait := 2, maxSleep
		if fds[1].Fd < 0 || !x.owner.txbox.empty() || x.down.credit < x.down.cost { // what the kernel sends has to wait, or cannot wake
			n, wait = 1, pollEvery
		}
		ts := unix.NsecToTimespec(int64(wait))
		unix.Ppoll(fds[:n], &ts, nil) //nolint:errcheck // interrupted or timed out: look again
		x.parked.Store(false)
		var drain [8]byte
		unix.Read(x.wakeFD, drain[:]) //nolint:errcheck // empty if something else woke us
	}
}

// wake ends the goroutine's sleep. It is safe on a locked thread: no goroutine becomes runnable there.
func (x *exception) wake() {
	if x.parked.CompareAndSwap(true, false) || x.stopping.Load() {
		one := [8]byte{0: 1}
		unix.Write(x.wakeFD, one[:]) //nolint:errcheck // the counter is full: it is readable
	}
}

// push hands a frame over for the kernel, and reports whether there was room.
func (x *exception) push(b *pmd.Buf) bool {
	if x.waiting.Add(1) > exceptionWaiting {
		x.waiting.Add(-1)
		x.n.full.Add(1)
		return false
	}
	var c chain
	c.add(b)
	x.toKernel.push(c)
	if x.wakeFD >= 0 {
		x.wake()
	}
	return true
}

// pump moves what waits, both ways, and reports whether there was anything.
func (x *exception) pump(now plugins.Time) bool {
	moved := x.pumpUp(now)
	return x.pumpDown(now) || moved
}

func (x *exception) pumpUp(now plugins.Time) (moved bool) {
	may := x.up.fill(now)
	for b := x.toKernel.take(); b != nil; {
		next := b.Next
		b.Next = nil
		x.waiting.Add(-1)
		moved = true
		if may == 0 {
			x.n.limited.Add(1)
			b.Free()
		} else {
			may--
			x.up.credit -= x.up.cost
			if b.Flags&pmd.RxPartial != 0 {
				completeChecksum(b.Bytes())
			}
			b.Flags = 0
			x.n.up.Add(1)
			x.n.upBytes.Add(uint64(b.Len()))
			x.out = append(x.out, b)
		}
		b = next
	}
	for rest := x.out; len(rest) > 0; {
		n, _ := x.queue.Poll(rest, nil)
		if n == 0 { // the device is full
			for _, b := range rest {
				x.n.errors.Add(1)
				b.Free()
			}
			break
		}
		rest = rest[n:]
	}
	clear(x.out)
	x.out = x.out[:0]
	return moved
}

// pumpDown gives frames of the kernel to the worker that sends them. What that has not taken yet, and the rate, bound what may follow:
// the rest waits in the device's queue.
func (x *exception) pumpDown(now plugins.Time) (moved bool) {
	may := min(x.down.fill(now), burst)
	if may == 0 || !x.owner.txbox.empty() {
		return false
	}
	_, n := x.queue.Poll(nil, x.rx[:may])
	var c chain
	for i, b := range x.rx[:n] {
		x.rx[i] = nil
		x.down.credit -= x.down.cost
		if b.Len() > x.mtu+wire.EthLen {
			x.n.errors.Add(1)
			b.Free()
			continue
		}
		x.n.down.Add(1)
		x.n.downBytes.Add(uint64(b.Len()))
		b.Flags = 0
		c.add(b)
	}
	if c.head != nil {
		x.owner.txbox.push(c)
		x.owner.kicked()
	}
	return n > 0
}

// completeChecksum computes the checksum of TCP or UDP that a sender on this machine left to hardware. The frame was parsed.
func completeChecksum(frame []byte) {
	var p wire.Packet
	if wire.Parse(frame, &p, true) != wire.DropNone || p.Frag {
		return
	}
	at := wire.TCPChecksum
	switch {
	case p.Proto == wire.ProtoUDP && len(p.Payload) >= wire.UDPLen:
		at = 6
	case p.Proto != wire.ProtoTCP || len(p.Payload) < wire.TCPLen:
		return
	}
	l4 := p.Payload
	binary.BigEndian.PutUint16(l4[at:], 0)
	binary.BigEndian.PutUint16(l4[at:], wire.Fold(wire.Sum(l4, wire.PseudoSum(p.Src, p.Dst, p.Proto, len(l4)))))
}

// excepted hands a frame that was refused for d to the kernel, if it is one of those that go there. It reports whether it did; else the
// frame is still the caller's.
func (w *Worker) excepted(b *pmd.Buf, d wire.Drop) bool {
	x := w.stack.except
	if x == nil {
		return false
	}
	switch d {
	case wire.DropEtherType, wire.DropVLAN, wire.DropIPDest:
	case wire.DropIPProto, wire.DropUDPPort, wire.DropTCPUnclaimed:
		if !x.cfg.Unclaimed {
			return false
		}
	default:
		return false
	}
	return x.push(b)
}

// share gives the kernel a copy of a frame that both need: ARP, neighbour discovery, MLD.
func (w *Worker) share(b *pmd.Buf, p *wire.Packet) {
	x := w.stack.except
	if x == nil || p.EtherType != wire.EtherTypeARP && !(p.Proto == wire.ProtoICMPv6 && !p.Frag && len(p.Payload) > 0 && isControl6(p.Payload[0])) {
		return
	}
	c := w.pool.Get()
	if c == nil {
		w.Stats.NoBuffers++
		return
	}
	if !c.Append(b.Bytes()) || !x.push(c) {
		w.free(c)
	}
}

// leaves reports whether the kernel gets what the stack would refuse at its own addresses.
func (w *Worker) leaves() bool { return w.stack.except != nil && w.stack.except.cfg.Unclaimed }

// unclaimed reports whether a segment is the kernel's: the stack has neither connection nor listener for it.
func (w *Worker) unclaimed(p *wire.Packet, t *wire.TCP) bool {
	return w.leaves() && !w.engine.Claims(&tcp.Tuple{Local: p.Dst, Remote: p.Src, LocalPort: t.DstPort, RemotePort: t.SrcPort})
}

// ExceptionStats returns the counters of the exception path; ok is false if there is none.
func (s *Stack) ExceptionStats() (st ExceptionStats, ok bool) {
	x := s.except
	if x == nil {
		return st, false
	}
	n := &x.n
	return ExceptionStats{
		ToKernel: n.up.Load(), ToKernelBytes: n.upBytes.Load(), FromKernel: n.down.Load(), FromKernelBytes: n.downBytes.Load(),
		Limited: n.limited.Load(), Full: n.full.Load(), Errors: n.errors.Load(),
	}, true
}

// makeException prepares the exception path, if there is to be one.
func (s *Stack) makeException() (err error) {
	if c := s.cfg.Exception; c != nil {
		s.except, err = newException(*c, s.workers[0], s.clock.Now())
	}
	return err
}

// closeException closes the device. No buffer of its is left anywhere.
func (s *Stack) closeException() error {
	if s.except == nil {
		return nil
	}
	return s.except.cfg.Port.Close()
}
