//go:build dpdk

package mbuf

/*
#cgo pkg-config: libdpdk
#include <rte_mbuf.h>
*/
import "C"

// Mbuf is a packet buffer, or the first segment of a chain of them.
type Mbuf C.struct_rte_mbuf
