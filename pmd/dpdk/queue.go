//go:build dpdk

package dpdk

/*
#include "shim.h"

// fp_poll neither calls back into Go nor sees Go memory.
#cgo noescape fp_poll
#cgo nocallback fp_poll
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/yerden/go-dpdk/mbuf"
	"github.com/yerden/go-dpdk/mempool"
)

// Queue is one queue pair of a Port, with its buffers.
type Queue struct {
	c     *C.struct_fp_queue
	pool  *pmd.Pool
	mp    *mempool.Mempool
	cache *mempool.Cache

	burst    int
	maxFrame int    // bytes of a frame that is not to be segmented
	maxTSO   int    // payload bytes of one that is; 0 without TSO
	allowed  uint16 // Tx flags of a Buf that the port heeds
	avail    int    // buffers in the mempool after the last Poll
	wake     int
	count    counters
}

// counters are written by the queue's owner and read by anyone.
type counters struct {
	rxFrames, rxBytes, txFrames, txBytes atomic.Uint64
	rxErrors, txErrors, txFull           atomic.Uint64
}

func bump(c *atomic.Uint64, n uint64) {
	if n > 0 {
		c.Store(c.Load() + n)
	}
}

func (c *counters) add(s *pmd.Stats) {
	s.RxFrames += c.rxFrames.Load()
	s.RxBytes += c.rxBytes.Load()
	s.TxFrames += c.txFrames.Load()
	s.TxBytes += c.txBytes.Load()
	s.RxErrors += c.rxErrors.Load()
	s.TxErrors += c.txErrors.Load()
	s.TxFull += c.txFull.Load()
}

// poolSeq numbers the mempools of the process: DPDK wants unique, short names.
var poolSeq atomic.Uint32

// newQueue makes queue i of a port that is not started, with buffers of size bytes.
func newQueue(p *Port, i, size, mtu int) (*Queue, error) {
	n := p.cfg.Buffers
	var at []mempool.Option
	if s := p.id.SocketID(); s >= 0 {
		at = append(at, mempool.OptSocket(s))
	}
	q := &Queue{burst: min(p.traits.burst, C.FP_BURST), maxFrame: mtu + ethOverhead, wake: -1}
	setting := fmt.Sprintf("buffers = %d, buf_size = %d; memory", n, size)
	if err := p.try("no memory for the buffers", setting, func() (err error) {
		// Threads that run Go are no EAL threads, which alone use a mempool's own caches.
		opts := append(at, mempool.OptCacheSize(0), mempool.OptPrivateDataSize(C.sizeof_struct_fp_priv))
		q.mp, err = mempool.CreateMbufPool(fmt.Sprintf("fp%d", poolSeq.Add(1)), uint32(n), uint16(size), opts...)
		return err
	}); err != nil {
		return nil, err
	}
	err := p.try("no memory for the queue", setting, func() (err error) {
		if q.cache, err = mempool.CreateCache(append(at, mempool.OptCacheSize(C.FP_CACHE))...); err == nil {
			if q.c = C.fp_queue_new(); q.c == nil {
				err = syscall.ENOMEM
			}
		}
		return err
	})
	if err != nil {
		q.free()
		return nil, err
	}
	q.wrap(p.cfg.Name, i, n)
	q.c.port, q.c.qid = C.uint16_t(p.id), C.uint16_t(i)
	q.c.mp = (*C.struct_rte_mempool)(unsafe.Pointer(q.mp))
	q.c.cache = (*C.struct_rte_mempool_cache)(unsafe.Pointer(q.cache))
	q.c.wait_fd = -1
	if p.sock != nil {
		q.wake = p.sock.fds[i]
		q.c.wait_fd = C.int(q.wake)
		q.burst = min(q.burst, p.sock.burst(q.maxFrame))
	}
	q.c.burst = C.uint16_t(q.burst)
	if p.caps.hwIP {
		q.c.hw_ip = 1
	}
	if p.caps.caps&pmd.TxCsum != 0 {
		q.allowed = pmd.TxIPCsum | pmd.TxTCPCsum
	}
	q.maxTSO = p.caps.maxTSO
	return q, nil
}

// wrap makes the pool of Bufs over the mempool's mbufs.
func (q *Queue) wrap(port string, i, n int) {
	table := (*C.struct_rte_mbuf)(nil)
	list := (**C.struct_rte_mbuf)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(table))))
	defer C.free(unsafe.Pointer(list))
	C.fp_index(q.c_mp(), list, C.uint32_t(n))
	mbufs := unsafe.Slice((**mbuf.Mbuf)(unsafe.Pointer(list)), n)
	q.pool = pmd.NewExternalPool(fmt.Sprintf("%s/%d", port, i), n, func(i int) ([]byte, uintptr) {
		m := (*C.struct_rte_mbuf)(unsafe.Pointer(mbufs[i]))
		return unsafe.Slice((*byte)(C.fp_buf_addr(m)), int(C.fp_buf_len(m))), uintptr(unsafe.Pointer(m))
	})
	q.pool.High = min(1024, n/4)
	q.pool.Low = q.pool.High / 4
	q.avail = n
}

func (q *Queue) c_mp() *C.struct_rte_mempool { return (*C.struct_rte_mempool)(unsafe.Pointer(q.mp)) }

// start hands the owner its first buffers.
func (q *Queue) start() {
	for q.pool.Free() < q.pool.Low {
		q.c.rx_max, q.c.ntx = 0, 0
		before := q.pool.Free()
		q.exchange()
		C.fp_poll(q.c)
		q.filled()
		if q.pool.Free() == before {
			return
		}
	}
}

// Pool is the pool of the queue's buffers.
func (q *Queue) Pool() *pmd.Pool { return q.pool }

// WakeFD is the socket of a net_af_packet queue, or -1.
func (q *Queue) WakeFD() int { return q.wake }

// TxRoom is the number of frames that the next Poll takes.
func (q *Queue) TxRoom() int { return q.burst - int(q.c.nstage) }

// Poll runs one turn with one call into C. It takes and gives up to 64 frames.
func (q *Queue) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	q.pool.Collect()
	ntx = q.stage(tx)
	q.c.rx_max = C.uint16_t(min(len(rx), C.FP_BURST))
	q.exchange()
	C.fp_poll(q.c)
	nrx = q.received(rx)
	q.filled()
	bump(&q.count.rxErrors, uint64(q.c.rx_errors))
	bump(&q.count.txErrors, uint64(q.c.tx_errors))
	return ntx, nrx
}

// stage describes as many frames as there is room for.
func (q *Queue) stage(tx []*pmd.Buf) (taken int) {
	room, n, parts, frames, bytes := q.TxRoom(), 0, 0, 0, 0
	for _, b := range tx {
		if n == room {
			bump(&q.count.txFull, 1)
			break
		}
		if !q.sendable(b) {
			q.reject(b)
			taken++
			continue
		}
		if b.Pool() != q.pool {
			own := q.pool.Copy(b)
			if own == nil {
				break
			}
			b.Free()
			b = own
		}
		k, size := b.Wire()
		more, ok := q.parts(b, parts)
		if !ok {
			bump(&q.count.txFull, 1)
			break
		}
		t := &q.c.tx[n]
		t.m = C.uintptr_t(b.Handle)
		t.off, t.len, t.more = C.uint16_t(b.Off()), C.uint16_t(b.Len()), C.uint16_t(more)
		t.seg_size, t.flags = C.uint16_t(b.SegSize), C.uint16_t(b.Flags&(pmd.TxIPCsum|pmd.TxTCPCsum))
		t.l2_len, t.l3_len, t.l4_len = C.uint8_t(b.L2Len), C.uint8_t(b.L3Len), C.uint8_t(b.L4Len)
		q.pool.Sent(b)
		parts += more
		frames += k
		bytes += size
		n++
		taken++
	}
	q.c.ntx = C.uint16_t(n)
	bump(&q.count.txFrames, uint64(frames))
	bump(&q.count.txBytes, uint64(bytes))
	return taken
}

// parts describes what a large frame goes on in, behind used parts of frames before it, and hands it to DPDK. It does nothing, and reports
// false, if there is no room.
func (q *Queue) parts(b *pmd.Buf, used int) (n int, ok bool) {
	for m := b.More; m != nil; m = m.More {
		n++
	}
	if used+n > C.FP_PARTS {
		return 0, false
	}
	m := b.More
	b.More = nil
	for i := range n {
		next := m.More
		m.More = nil
		t := &q.c.part[used+i]
		t.m, t.off, t.len = C.uintptr_t(m.Handle), C.uint16_t(m.Off()), C.uint16_t(m.Len())
		q.pool.Sent(m)
		m = next
	}
	return n, true
}

// Uncompleted implements pmd.Completer. With PMDs that cannot be asked for what they have sent, a frame is complete when they take it.
func (q *Queue) Uncompleted() int { return int(uint32(q.c.staged) - uint32(q.c.sent)) }

// sendable reports whether the frame is one that the port can send: anything else could stall a PMD's ring.
func (q *Queue) sendable(b *pmd.Buf) bool {
	const ethHeader = 14
	size := b.Len()
	if b.Flags&(pmd.TxIPCsum|pmd.TxTCPCsum)&^q.allowed != 0 {
		return false
	}
	if !b.Large() {
		return size >= ethHeader && size <= q.maxFrame && b.More == nil
	}
	head := b.HeaderLen()
	return q.maxTSO > 0 && b.L2Len >= ethHeader && b.L3Len >= 20 && b.L4Len >= 20 && size >= head && head+int(b.SegSize) <= q.maxFrame &&
		b.Size()-head <= q.maxTSO && b.Flags&pmd.TxTCPCsum != 0
}

// reject frees a frame that the port cannot send.
func (q *Queue) reject(b *pmd.Buf) {
	bump(&q.count.txErrors, 1)
	if b.Pool() == q.pool {
		q.pool.Put(b)
	} else {
		b.Free()
	}
}

// exchange says how many buffers go to the mempool or come from it.
func (q *Queue) exchange() {
	p, free := q.pool, q.pool.Free()
	q.c.nspill, q.c.fill_max = 0, 0
	if p.High == 0 {
		return
	}
	spill := free - p.High
	if q.avail < C.FP_BURST && free > q.avail {
		spill = max(spill, (free-q.avail)/2) // the PMD runs out of buffers to receive into: share
	}
	if spill > 0 {
		spill = min(spill, C.FP_XFER)
		for i := range spill {
			q.c.spill[i] = C.uintptr_t(p.Spill().Handle)
		}
		q.c.nspill = C.uint16_t(spill)
	} else if free < p.Low {
		q.c.fill_max = C.uint16_t(min((p.Low+p.High)/2-free, C.FP_XFER))
	}
}

// filled takes over what the mempool gave.
func (q *Queue) filled() {
	for i := range q.c.nfill {
		q.pool.Fill(q.pool.At(int(q.c.fill[i])))
	}
	q.avail = int(q.c.avail) - int(q.c.nfill)
}

// received hands out the frames that arrived.
func (q *Queue) received(rx []*pmd.Buf) int {
	n, bytes := int(q.c.nrx), 0
	for i := range rx[:n] {
		r := &q.c.rx[i]
		b := q.pool.Received(q.pool.At(int(r.index)), int(r.off), int(r.len))
		b.Flags, b.Hash = uint16(r.flags), uint32(r.hash)
		rx[i] = b
		bytes += int(r.len)
	}
	bump(&q.count.rxFrames, uint64(n))
	bump(&q.count.rxBytes, uint64(bytes))
	return n
}

// close frees what the queue holds, after its port has let go of all mbufs.
func (q *Queue) close() error {
	C.fp_drop_stage(q.c)
	err := q.pool.CheckLeaks()
	if e := q.pool.Unmap(); err == nil {
		err = e
	}
	q.free()
	return err
}

func (q *Queue) free() {
	if q.c != nil {
		C.fp_queue_free(q.c)
	}
	if q.cache != nil {
		q.cache.Free()
	}
	q.mp.Free()
}

// The flags that C sets and heeds are those of package pmd.
var (
	_ = [1]struct{}{}[pmd.RxCsumGood-C.FP_RX_CSUM_GOOD|pmd.RxCsumBad-C.FP_RX_CSUM_BAD|pmd.RxHash-C.FP_RX_HASH|pmd.RxPartial-C.FP_RX_PARTIAL]
	_ = [1]struct{}{}[pmd.TxIPCsum-C.FP_TX_IP_CSUM|pmd.TxTCPCsum-C.FP_TX_TCP_CSUM]
)
