package afpacket

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A slot is one frame of a ring: a struct tpacket2_hdr, an address, and the frame. Its first word is the status, by which slot and
// contents change hands between kernel and program.
type slot struct {
	status *uint32
	mem    []byte
}

// newSlot makes a slot of memory that the kernel maps, aligned to 16 bytes.
func newSlot(mem []byte) slot {
	return slot{status: (*uint32)(unsafe.Pointer(&mem[0])), mem: mem}
}

func (s *slot) load() uint32   { return atomic.LoadUint32(s.status) }
func (s *slot) store(v uint32) { atomic.StoreUint32(s.status, v) }

// Offsets in a struct tpacket2_hdr (linux/if_packet.h).
const (
	offLen     = 4
	offSnapLen = 8
	offMAC     = 12
	offTCI     = 24
	offTPID    = 26
	// txOffset is where a transmit slot's data begin: the header, aligned to TPACKET_ALIGNMENT.
	txOffset = 32
)

// The layout above is the kernel's.
var _ = [1]struct{}{}[unsafe.Sizeof(unix.Tpacket2Hdr{})-txOffset]

func (s *slot) u32(off int) int { return int(binary.NativeEndian.Uint32(s.mem[off:])) }
func (s *slot) u16(off int) int { return int(binary.NativeEndian.Uint16(s.mem[off:])) }

// frame returns the received frame, as far as it fits the slot, the virtio header before it, and the frame's whole length.
func (s *slot) frame() (hdr, frame []byte, length int) {
	mac, n := s.u16(offMAC), s.u32(offSnapLen)
	return s.mem[mac-vnetLen : mac], s.mem[mac : mac+n], s.u32(offLen)
}
