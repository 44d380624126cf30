package pmd

// A large frame is a TCP segment that a port with TSO is to cut: SegSize is the payload of each frame that it makes of it, L2Len, L3Len and
// L4Len are the lengths of the headers, TxTCPCsum is set, and TxIPCsum for IPv4. The headers lie in the first buffer and speak of the
// whole: their lengths count all of the payload, which may go on in More. The port gives each frame its length, sequence number, IPv4
// identification (one more each time) and checksums, and leaves FIN and PSH to the last and CWR to the first.

// MaxLarge is the most that a large frame's IP packet may be, by the length field of IPv4.
const MaxLarge = 65535

// MaxHeaders is the most that the headers of IP and TCP take of it.
const MaxHeaders = 60 + 60

// Large reports whether the frame is to be cut.
func (b *Buf) Large() bool { return b.SegSize != 0 }

// HeaderLen is the length of a large frame's headers.
func (b *Buf) HeaderLen() int { return int(b.L2Len) + int(b.L3Len) + int(b.L4Len) }

// Size is the frame's length, in all its buffers.
func (b *Buf) Size() int {
	n := int(b.n)
	for m := b.More; m != nil; m = m.More {
		n += int(m.n)
	}
	return n
}

// Wire is what leaves: the number of frames, and their bytes.
func (b *Buf) Wire() (frames, bytes int) {
	size := b.Size()
	if b.SegSize == 0 {
		return 1, size
	}
	head := b.HeaderLen()
	frames = max((size-head+int(b.SegSize)-1)/int(b.SegSize), 1)
	return frames, size + (frames-1)*head
}

// Chain takes n buffers, which go on in each other; the ones behind the first begin without headroom. It returns as many as there are, or
// nil. got is their number.
func (p *Pool) Chain(n int) (first *Buf, got int) {
	var last *Buf
	for ; got < n; got++ {
		b := p.Get()
		if b == nil {
			break
		}
		if first == nil {
			first = b
		} else {
			b.off = 0
			last.More = b
		}
		last = b
	}
	return first, got
}

// Copy makes a copy of a frame, with its metadata, in buffers of p, which must be as large as the frame's own. It returns nil if there are
// too few.
func (p *Pool) Copy(b *Buf) *Buf {
	parts := 1
	for m := b.More; m != nil; m = m.More {
		parts++
	}
	first, got := p.Chain(parts)
	if got < parts {
		if first != nil {
			p.Put(first)
		}
		return nil
	}
	for to, from := first, b; to != nil; to, from = to.More, from.More {
		if !to.Append(from.Bytes()) {
			p.Put(first)
			return nil
		}
	}
	first.Flags, first.SegSize, first.Hash = b.Flags, b.SegSize, b.Hash
	first.L2Len, first.L3Len, first.L4Len = b.L2Len, b.L3Len, b.L4Len
	return first
}
