package afpacket

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/link"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"golang.org/x/sys/unix"
)

// superQueue is the memory for super-frames that wait in a socket, in the kernel's accounting.
const superQueue = 8 << 20

// Queue is one socket with its rings.
type Queue struct {
	fd   int
	ring []byte // both rings, as mapped
	pool *pmd.Pool

	rx     []slot
	rxNext int

	tx     []slot
	txNext int // slot for the next frame
	txDone int // oldest slot that the kernel has not given back
	txUsed int // slots from txDone to txNext
	unsent bool
	maxTx  int // longest frame without a VLAN tag

	super []byte // a super-frame with its virtio header
	split vnet.Splitter

	stats counters
}

var _ pmd.Queue = (*Queue)(nil)

// counters are written by the queue's owner and read by anyone.
type counters struct {
	rxFrames, rxBytes, rxDropped, rxErrors atomic.Uint64
	txFrames, txBytes, txErrors, txFull    atomic.Uint64
}

func (c *counters) addTo(s *pmd.Stats) {
	s.RxFrames += c.rxFrames.Load()
	s.RxBytes += c.rxBytes.Load()
	s.RxDropped += c.rxDropped.Load()
	s.RxErrors += c.rxErrors.Load()
	s.TxFrames += c.txFrames.Load()
	s.TxBytes += c.txBytes.Load()
	s.TxErrors += c.txErrors.Load()
	s.TxFull += c.txFull.Load()
}

func newQueue(c *Config, l *link.Link, index int) (*Queue, error) {
	// Protocol 0 receives nothing until bind.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	q := &Queue{fd: fd, maxTx: l.MTU + 14, super: make([]byte, vnetLen+vnet.MaxFrame)}
	rx, tx := layout(c.RingFrames, rxOffset+c.FrameSize), layout(c.RingFrames, txOffset+vnetLen+c.FrameSize)
	if err := q.configure(c, rx, tx); err != nil {
		return nil, errors.Join(err, q.close())
	}
	if q.ring, err = unix.Mmap(fd, 0, rx.bytes()+tx.bytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, errors.Join(fmt.Errorf("map rings of %d bytes: %w", rx.bytes()+tx.bytes(), err), q.close())
	}
	q.rx, q.tx = rx.cut(q.ring[:rx.bytes()]), tx.cut(q.ring[rx.bytes():])
	size := max(pmd.DefaultBufSize, (pmd.Headroom+max(c.FrameSize, l.MTU+ethLen)+63)&^63)
	if q.pool, err = pmd.NewPool(fmt.Sprintf("%s/%d", l.Name, index), c.PoolSize, size); err != nil {
		return nil, errors.Join(err, q.close())
	}
	q.pool.Populate()

	return q, nil
}

// configure sets the socket's options, in the order that the kernel wants: version and virtio header before the rings.
func (q *Queue) configure(c *Config, rx, tx geometry) error {
	bypass := 1
	if c.Qdisc {
		bypass = 0
	}
	for _, o := range []struct {
		name   string
		option int
		value  int
	}{
		{"PACKET_VERSION", unix.PACKET_VERSION, unix.TPACKET_V2},
		{"PACKET_VNET_HDR", unix.PACKET_VNET_HDR, 1},
		{"PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING, 1},
		{"PACKET_QDISC_BYPASS", unix.PACKET_QDISC_BYPASS, bypass},
		{"PACKET_COPY_THRESH", unix.PACKET_COPY_THRESH, 1},
		// A frame that the kernel finds malformed must not stop the ring. Poll refuses such frames before.
		{"PACKET_LOSS", unix.PACKET_LOSS, 1},
	} {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_PACKET, o.option, o.value); err != nil {
			return fmt.Errorf("set %s (needs Linux 4.20): %w", o.name, err)
		}
	}
	q.setBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, superQueue)
	// The kernel charges packets on their way to the send buffer: with room for all slots only the ring limits.
	q.setBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, min(2*tx.slots()*(tx.slot+1024), 1<<30))
	if err := rx.request(q.fd, unix.PACKET_RX_RING); err != nil {
		return fmt.Errorf("receive %w", err)
	}
	if err := tx.request(q.fd, unix.PACKET_TX_RING); err != nil {
		return fmt.Errorf("transmit %w", err)
	}
	return nil
}

// setBuffer sets a socket buffer's size; without CAP_NET_ADMIN it becomes as large as the system allows.
func (q *Queue) setBuffer(force, option, size int) {
	if unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, option, size)
	}
}

func (q *Queue) bind(index int) error {
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network byte order
	if err := unix.Bind(q.fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: index}); err != nil {
		return err
	}
	e, err := unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && e != 0 {
		err = unix.Errno(e)
	}
	return err
}

func (q *Queue) close() error {
	var errs []error
	if q.unsent {
		q.kick()
		q.withdraw()
	}
	if q.ring != nil {
		errs = append(errs, unix.Munmap(q.ring))
		q.ring, q.rx, q.tx = nil, nil, nil
	}
	errs = append(errs, unix.Close(q.fd))
	if q.pool != nil {
		leak := q.pool.CheckLeaks()
		errs = append(errs, q.pool.Unmap())
		if leak != nil {
			return leak
		}
	}
	return errors.Join(errs...)
}

// Pool is the pool of received frames.
func (q *Queue) Pool() *pmd.Pool { return q.pool }

// WakeFD is the socket: it is readable while received frames wait in the ring.
func (q *Queue) WakeFD() int { return q.fd }

// Poll sends and receives. See pmd.Queue.
func (q *Queue) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	if len(tx) > 0 {
		ntx = q.transmit(tx)
	}
	if q.unsent {
		q.kick()
	}
	if len(rx) > 0 {
		nrx = q.receive(rx)
	}
	return ntx, nrx
}
