package afpacket

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"golang.org/x/sys/unix"
)

const (
	vnetLen = vnet.HeaderLen
	// rxOffset is the most that precedes a received frame in its slot: header and address (52 bytes) and link header, aligned, and
	// the virtio header.
	rxOffset = 96
	// ethLen is an Ethernet header with a VLAN tag.
	ethLen  = 14 + vlanLen
	vlanLen = 4
	// blockSize is the kernel's allocation unit for rings: small enough to be contiguous without waiting.
	blockSize = 64 << 10
)

// geometry is a ring's layout: blocks of contiguous memory, each with as many slots as fit.
type geometry struct {
	slot, block, blocks int
}

// layout finds a geometry of at least n slots for frames of the given length. Slots are an odd number of cache lines, so that their
// headers do not all fall into the same few sets of the cache.
func layout(n, frame int) geometry {
	lines := (frame + 63) / 64
	lines |= 1
	g := geometry{slot: lines * 64, block: blockSize}
	for g.block < g.slot {
		g.block *= 2
	}
	per := g.block / g.slot
	g.blocks = (n + per - 1) / per
	return g
}

func (g geometry) slots() int { return g.block / g.slot * g.blocks }
func (g geometry) bytes() int { return g.block * g.blocks }

// request asks the kernel for the ring (PACKET_RX_RING or PACKET_TX_RING).
func (g geometry) request(fd, option int) error {
	r := unix.TpacketReq{
		Block_size: uint32(g.block), Block_nr: uint32(g.blocks),
		Frame_size: uint32(g.slot), Frame_nr: uint32(g.slots()),
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, option, &r); err != nil {
		return fmt.Errorf("ring of %d frames of %d bytes: %w", g.slots(), g.slot, err)
	}
	return nil
}

// cut divides the mapped ring into slots.
func (g geometry) cut(mem []byte) []slot {
	s := make([]slot, 0, g.slots())
	for b := 0; b < g.blocks; b++ {
		block := mem[b*g.block : (b+1)*g.block]
		for i := 0; i < g.block/g.slot; i++ {
			s = append(s, newSlot(block[i*g.slot:(i+1)*g.slot:(i+1)*g.slot]))
		}
	}
	return s
}
