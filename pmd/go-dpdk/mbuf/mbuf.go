//go:build dpdk

package mbuf

/*
#cgo pkg-config: libdpdk
#include <rte_mbuf.h>
*/
import "C"

import "unsafe"

// Mbuf is a packet buffer, or the first segment of a chain of them.
type Mbuf C.struct_rte_mbuf

// Data is the part of the frame that lies in this segment. It is valid while the caller owns the mbuf.
func (m *Mbuf) Data() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(m.buf_addr, m.data_off)), int(m.data_len))
}
