package pmd

// Flags of a Buf.
const (
	// RxCsumGood: the port verified all checksums of the frame and they hold.
	RxCsumGood uint16 = 1 << iota
	// RxCsumBad: the port verified the checksums and at least one is wrong.
	RxCsumBad
	// RxHash: Buf.Hash is the port's Toeplitz hash.
	RxHash
	// RxPartial: the frame comes from a sender on the same host that left the TCP checksum to be completed by hardware; its
	// content is trusted as the virtio header says (VIRTIO_NET_HDR_F_NEEDS_CSUM).
	RxPartial
	// TxIPCsum and TxTCPCsum ask the port to complete a checksum; the TCP field then holds the pseudo-header's sum.
	TxIPCsum
	TxTCPCsum
)

// Headroom is the space before the frame in a fresh buffer, for a VLAN tag or an encapsulation.
const Headroom = 128

// Buf is one frame buffer. The frame is Bytes(). A Buf has one owner; it is not safe for concurrent use.
type Buf struct {
	mem  []byte // the whole block, off heap
	pool *Pool
	Next *Buf // for the owner's lists
	More *Buf // a frame to be segmented goes on in this buffer of the same pool; see Large

	off, n uint32

	Flags   uint16
	SegSize uint16 // TSO: payload bytes per segment; 0: the frame leaves as it is
	L2Len   uint8  // for offloads: lengths of the headers
	L3Len   uint8
	L4Len   uint8
	taken   bool
	Hash    uint32    // with RxHash
	Index   uint32    // in its pool
	Handle  uintptr   // the driver's own
	site    []uintptr // call stack of who took it, if its pool is tracked; empty if not
}

// Bytes is the frame; of a large one, what is in this buffer.
func (b *Buf) Bytes() []byte { return b.mem[b.off : b.off+b.n : b.off+b.n] }

// Len is the length of Bytes.
func (b *Buf) Len() int { return int(b.n) }

// Cap is the room for a frame that starts where this one starts.
func (b *Buf) Cap() int { return len(b.mem) - int(b.off) }

// SetLen makes the frame n bytes long. Its new bytes are undefined.
func (b *Buf) SetLen(n int) {
	if n < 0 || int(b.off)+n > len(b.mem) {
		panic("pmd: Buf.SetLen beyond the buffer")
	}
	b.n = uint32(n)
}

// Push moves the frame's start n bytes to the front, into the headroom, and reports whether there was room. The new bytes are undefined.
func (b *Buf) Push(n int) bool {
	if n < 0 || n > int(b.off) {
		return false
	}
	b.off -= uint32(n)
	b.n += uint32(n)
	return true
}

// Pull takes n bytes from the frame's start, and reports whether it has so many.
func (b *Buf) Pull(n int) bool {
	if n < 0 || n > int(b.n) {
		return false
	}
	b.off += uint32(n)
	b.n -= uint32(n)
	return true
}

// Reset makes the frame empty, with the usual headroom, and clears its metadata.
func (b *Buf) Reset() { b.ResetAt(Headroom) }

// ResetAt is Reset with another headroom; drivers whose frames start elsewhere use it.
func (b *Buf) ResetAt(off int) {
	b.off, b.n = uint32(off), 0
	b.Flags, b.SegSize, b.L2Len, b.L3Len, b.L4Len, b.Hash = 0, 0, 0, 0, 0, 0
	b.Next, b.More = nil, nil
}

// Off is the offset of the frame in the block.
func (b *Buf) Off() int { return int(b.off) }

// Mem is the whole block, for drivers.
func (b *Buf) Mem() []byte { return b.mem }

// Append copies p to the end of the frame and reports whether it fitted.
func (b *Buf) Append(p []byte) bool {
	if int(b.off+b.n)+len(p) > len(b.mem) {
		return false
	}
	copy(b.mem[b.off+b.n:], p)
	b.n += uint32(len(p))
	return true
}

// Pool returns the pool that the buffer belongs to.
func (b *Buf) Pool() *Pool { return b.pool }

// Moved tells a tracked pool that the buffer has a new owner, the caller of the driver's Poll; drivers that hand over buffers
// of another port's pool use it.
func (b *Buf) Moved() {
	if b.pool.track.Load() {
		b.site = callers(b.site)
	}
}

// Free returns the buffer, and More, to its pool. It may be called by any goroutine that owns the buffer; the pool's owner calls
// Pool.Put, which costs less.
func (b *Buf) Free() { b.pool.PutRemote(b) }
