package tap

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"golang.org/x/sys/unix"
)

// Batch is the number of frames that one Poll moves at most in each direction.
const Batch = 64

const (
	vlanLen = 4
	ethLen  = 14 + vlanLen
)

var noHeader [vnet.HeaderLen]byte

// Queue is one descriptor of the device.
type Queue struct {
	fd    int
	pool  *pmd.Pool
	maxTx int // longest frame without a VLAN tag
	tso   bool

	frame []byte // what was read last: virtio header and frame, or super-frame
	n     int    // its length
	split vnet.Splitter
	wide  []byte // a frame to send that has no room for the header before it
	parts vector // of a large frame

	stats counters
}

var _ pmd.Parker = (*Queue)(nil)

// counters are written by the queue's owner and read by anyone.
type counters struct {
	rxFrames, rxBytes, rxErrors         atomic.Uint64
	txFrames, txBytes, txErrors, txFull atomic.Uint64
}

func (c *counters) addTo(s *pmd.Stats) {
	s.RxFrames += c.rxFrames.Load()
	s.RxBytes += c.rxBytes.Load()
	s.RxErrors += c.rxErrors.Load()
	s.TxFrames += c.txFrames.Load()
	s.TxBytes += c.txBytes.Load()
	s.TxErrors += c.txErrors.Load()
	s.TxFull += c.txFull.Load()
}

func (q *Queue) close() error {
	err := unix.Close(q.fd)
	if q.pool == nil {
		return err
	}
	leak := q.pool.CheckLeaks()
	err = errors.Join(err, q.pool.Unmap())
	if leak != nil {
		return leak
	}
	return err
}

// Pool is the pool of received frames.
func (q *Queue) Pool() *pmd.Pool { return q.pool }

// TxRoom is Batch: the device takes or drops whatever is written.
func (q *Queue) TxRoom() int { return Batch }

// WakeFD is the device: it is readable while frames wait.
func (q *Queue) WakeFD() int { return q.fd }

// Park reports false while a super-frame has been read but not yet handed out whole, of which WakeFD knows nothing.
func (q *Queue) Park() (empty bool) { return !q.split.Pending() }

// Unpark does nothing: WakeFD is always in force.
func (q *Queue) Unpark() {}

// Poll sends and receives. See pmd.Queue.
func (q *Queue) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	if len(tx) > 0 {
		ntx = q.transmit(tx)
	}
	if len(rx) > 0 {
		nrx = q.receive(rx[:min(len(rx), Batch)])
	}
	return ntx, nrx
}

func (q *Queue) transmit(tx []*pmd.Buf) int {
	n := min(len(tx), Batch)
	var frames, bytes, bad uint64
	for _, b := range tx[:n] {
		if q.write(b) {
			k, size := b.Wire()
			frames += uint64(k)
			bytes += uint64(size)
		} else {
			bad++
		}
		if b.Pool() == q.pool {
			q.pool.Put(b)
		} else {
			b.Free()
		}
	}
	if frames > 0 {
		q.stats.txFrames.Add(frames)
		q.stats.txBytes.Add(bytes)
	}
	if bad > 0 {
		q.stats.txErrors.Add(bad)
	}
	if n < len(tx) {
		q.stats.txFull.Add(1)
	}
	return n
}

// write sends a frame, whose virtio header goes into the headroom before it.
func (q *Queue) write(b *pmd.Buf) bool {
	f := b.Bytes()
	if b.Large() {
		if !q.tso || b.Size() > vnet.MaxFrame {
			return false
		}
	} else if len(f) < 14 || len(f) > q.longest(f) {
		return false
	}
	var p []byte
	if off := b.Off(); off >= vnet.HeaderLen {
		p = b.Mem()[off-vnet.HeaderLen : off+len(f)]
	} else {
		q.wide = append(append(q.wide[:0], noHeader[:]...), f...)
		p = q.wide
	}
	if !vnet.Transmit(p, p[vnet.HeaderLen:], b) {
		return false
	}
	if b.More != nil {
		return q.parts.write(q.fd, p, b.More)
	}
	n, err := unix.Write(q.fd, p)
	return err == nil && n == len(p)
}

// longest is the length that a frame may have.
func (q *Queue) longest(f []byte) int {
	if t := binary.BigEndian.Uint16(f[12:]); t == unix.ETH_P_8021Q || t == unix.ETH_P_8021AD {
		return q.maxTx + vlanLen
	}
	return q.maxTx
}

// receive fills rx. Nothing is read while the pool is empty: frames then wait in the device's queue.
func (q *Queue) receive(rx []*pmd.Buf) int {
	n, bytes := 0, 0
	for n < len(rx) {
		b := q.pool.Get()
		if b == nil {
			break
		}
		if !q.split.Pending() && !q.read() {
			q.pool.Put(b)
			break
		}
		if q.split.Pending() {
			q.split.Next(b)
		} else {
			f := q.frame[vnet.HeaderLen:q.n]
			b.Append(f)
			b.Flags = vnet.RxFlags(vnet.Parse(q.frame), f)
		}
		bytes += b.Len()
		rx[n] = b
		n++
	}
	if n > 0 {
		q.stats.rxFrames.Add(uint64(n))
		q.stats.rxBytes.Add(uint64(bytes))
	}
	return n
}

// read gets the next frame, or the first of a super-frame in q.split. It reports false if there is none. Frames that cannot be received
// are counted and passed over.
func (q *Queue) read() bool {
	room := len(q.pool.At(0).Mem()) - pmd.Headroom
	for {
		n, err := unix.Read(q.fd, q.frame)
		if err != nil || n < vnet.HeaderLen {
			return false
		}
		if n <= len(q.frame) {
			q.n = n
			h, f := vnet.Parse(q.frame), q.frame[vnet.HeaderLen:n]
			if h.GSOType == vnet.GSONone && len(f) <= room || h.GSOType != vnet.GSONone && q.split.Start(h, f, room) == nil {
				return true
			}
		}
		q.stats.rxErrors.Add(1)
	}
}
