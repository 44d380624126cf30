package afpacket

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"golang.org/x/sys/unix"
)

// TxRoom is the number of free slots, as far as is known without a scan if there are many.
func (q *Queue) TxRoom() int {
	if free := len(q.tx) - q.txUsed; free > len(q.tx)/2 {
		return free
	}
	q.reclaim()
	return len(q.tx) - q.txUsed
}

// reclaim counts the slots that the kernel has given back. Each slot is looked at once per use.
func (q *Queue) reclaim() {
	for q.txUsed > 0 && q.tx[q.txDone].load() == unix.TP_STATUS_AVAILABLE {
		q.txDone = q.after(q.txDone)
		q.txUsed--
	}
}

func (q *Queue) after(i int) int {
	if i++; i == len(q.tx) {
		return 0
	}
	return i
}

// transmit copies frames into free slots and frees them. A frame that cannot be sent is taken and counted.
func (q *Queue) transmit(tx []*pmd.Buf) int {
	if len(q.tx)-q.txUsed < len(tx) {
		q.reclaim()
	}
	n := min(len(tx), len(q.tx)-q.txUsed)
	var frames, bytes, bad uint64
	for _, b := range tx[:n] {
		if q.post(b) {
			frames++
			bytes += uint64(b.Len())
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
		q.unsent = true
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

// post puts a frame into the next slot and reports whether it can be sent.
func (q *Queue) post(b *pmd.Buf) bool {
	f := b.Bytes()
	s := &q.tx[q.txNext]
	if len(f) < 14 || len(f) > q.longest(f) || txOffset+vnetLen+len(f) > len(s.mem) {
		return false
	}
	data := s.mem[txOffset+vnetLen:]
	copy(data, f)
	if !vnet.Transmit(s.mem[txOffset:], data[:len(f)], b) {
		return false
	}
	binary.NativeEndian.PutUint32(s.mem[offLen:], uint32(vnetLen+len(f)))
	s.store(unix.TP_STATUS_SEND_REQUEST)
	q.txNext = q.after(q.txNext)
	q.txUsed++
	return true
}

// longest is the length that a frame may have.
func (q *Queue) longest(f []byte) int {
	if t := binary.BigEndian.Uint16(f[12:]); t == unix.ETH_P_8021Q || t == unix.ETH_P_8021AD {
		return q.maxTx + vlanLen
	}
	return q.maxTx
}

// kick has the kernel send what is in the ring. What it refuses for want of memory or because the interface's queue is full stays in
// the ring for the next Poll.
func (q *Queue) kick() {
	err := unix.Send(q.fd, nil, unix.MSG_DONTWAIT)
	switch err {
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		q.withdraw()
		return
	}
	// The kernel takes frames in order, so all are taken if the last one is.
	last := q.txNext - 1
	if last < 0 {
		last = len(q.tx) - 1
	}
	q.unsent = q.tx[last].load() == unix.TP_STATUS_SEND_REQUEST
}

// withdraw takes back the frames that the kernel has not begun to send: the interface is down or gone, and they would be stale when
// it comes back.
func (q *Queue) withdraw() {
	for q.txUsed > 0 {
		last := q.txNext - 1
		if last < 0 {
			last = len(q.tx) - 1
		}
		if q.tx[last].load() != unix.TP_STATUS_SEND_REQUEST {
			break
		}
		q.tx[last].store(unix.TP_STATUS_AVAILABLE)
		q.txNext = last
		q.txUsed--
		q.stats.txErrors.Add(1)
	}
	q.unsent = false
}
