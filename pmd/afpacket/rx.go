package afpacket

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"golang.org/x/sys/unix"
)

// receive fills rx from the ring. It stops early if the pool is empty: frames then wait in the ring, and the kernel counts those that
// find it full.
func (q *Queue) receive(rx []*pmd.Buf) int {
	n, bytes := 0, 0
	for n < len(rx) {
		if !q.split.Pending() && !q.next() {
			break
		}
		b := q.pool.Get()
		if b == nil {
			break
		}
		if !q.split.Pending() {
			q.take(b)
		} else if q.split.Next(b); !q.split.Pending() {
			// Only now: WakeFD is readable as long as there is a slot to receive.
			q.release()
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

// next makes a frame ready: an ordinary one in the next slot, or the first of a super-frame in q.split. It reports false if there is
// none. Frames that cannot be received are counted and passed over.
func (q *Queue) next() bool {
	for {
		s := &q.rx[q.rxNext]
		status := s.load()
		if status&unix.TP_STATUS_USER == 0 {
			return false
		}
		hdr, frame, length := s.frame()
		h := vnet.Parse(hdr)
		if status&unix.TP_STATUS_COPY == 0 && length == len(frame) && h.GSOType == vnet.GSONone &&
			length+tagLen(status) <= q.room() {
			return true
		}
		q.large(s, status, h, frame, length)
		if q.split.Pending() {
			return true
		}
		q.release()
	}
}

// room is the longest frame that fits a buffer.
func (q *Queue) room() int { return len(q.pool.At(0).Mem()) - pmd.Headroom }

// release gives the next slot back to the kernel.
func (q *Queue) release() {
	q.rx[q.rxNext].store(unix.TP_STATUS_KERNEL)
	if q.rxNext++; q.rxNext == len(q.rx) {
		q.rxNext = 0
	}
}

func tagLen(status uint32) int {
	if status&unix.TP_STATUS_VLAN_VALID != 0 {
		return vlanLen
	}
	return 0
}

// take copies the frame of the next slot, which next found to be ordinary, into b.
func (q *Queue) take(b *pmd.Buf) {
	s := &q.rx[q.rxNext]
	hdr, frame, length := s.frame()
	tag := tagLen(s.load())
	b.SetLen(length + tag)
	copyTagged(b.Bytes(), frame, s, tag)
	if hdr[0] != 0 {
		b.Flags = vnet.RxFlags(vnet.Parse(hdr), b.Bytes())
	}
	q.release()
}

// copyTagged copies a frame and puts the VLAN tag back that the kernel took out (tag is its length, or 0).
func copyTagged(dst, frame []byte, s *slot, tag int) {
	if tag == 0 || len(frame) < 12 {
		copy(dst, frame)
		return
	}
	copy(dst, frame[:12])
	tpid := s.u16(offTPID)
	if s.load()&unix.TP_STATUS_VLAN_TPID_VALID == 0 {
		tpid = unix.ETH_P_8021Q
	}
	binary.BigEndian.PutUint16(dst[12:], uint16(tpid))
	binary.BigEndian.PutUint16(dst[14:], uint16(s.u16(offTCI)))
	copy(dst[12+tag:], frame[12:])
}

// large gets a frame that is longer than its slot, or merged from several, ready for splitting; or it counts it.
func (q *Queue) large(s *slot, status uint32, h vnet.Header, frame []byte, length int) {
	tag := tagLen(status)
	whole := q.super[:0]
	switch {
	case status&unix.TP_STATUS_COPY != 0:
		n, err := unix.Read(q.fd, q.super[tag:])
		if err == unix.ENETDOWN { // an error that was left in the socket; reading cleared it
			n, err = unix.Read(q.fd, q.super[tag:])
		}
		if err != nil || n != vnetLen+length {
			q.stats.rxErrors.Add(1)
			return
		}
		h = vnet.Parse(q.super[tag:])
		// Open a gap for the tag: the addresses move to the front.
		whole = q.super[vnetLen : vnetLen+tag+length]
		if tag > 0 {
			copyTagged(whole[:16], whole[tag:tag+12], s, tag)
		}
	case length > len(frame): // there was no room in the socket's queue
		q.stats.rxDropped.Add(1)
		return
	case len(frame)+tag <= len(q.super):
		whole = q.super[:len(frame)+tag]
		copyTagged(whole, frame, s, tag)
	}
	if q.split.Start(h, whole, q.room()) != nil {
		q.stats.rxErrors.Add(1)
	}
}

// discard throws away what is in the ring.
func (q *Queue) discard() {
	for range q.rx {
		s := &q.rx[q.rxNext]
		status := s.load()
		if status&unix.TP_STATUS_USER == 0 {
			return
		}
		if status&unix.TP_STATUS_COPY != 0 {
			_, _ = unix.Read(q.fd, q.super)
		}
		q.release()
	}
}
