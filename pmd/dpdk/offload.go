//go:build dpdk

package dpdk

/*
#include <stdlib.h>
#include "shim.h"

static int rss_key_get(uint16_t port, uint8_t *key, uint8_t len)
{
	struct rte_eth_rss_conf conf = {.rss_key = key, .rss_key_len = len};

	return rte_eth_dev_rss_hash_conf_get(port, &conf);
}

// reta_get stores the redirection table of n entries in table.
static int reta_get(uint16_t port, uint16_t *table, uint16_t n)
{
	struct rte_eth_rss_reta_entry64 r[(RTE_ETH_RSS_RETA_SIZE_512 + 63) / RTE_ETH_RETA_GROUP_SIZE];
	int i, rc;

	for (i = 0; i < (int)RTE_DIM(r); i++)
		r[i].mask = UINT64_MAX;
	rc = rte_eth_dev_rss_reta_query(port, r, n);
	for (i = 0; rc == 0 && i < n; i++)
		table[i] = r[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
	return rc;
}
*/
import "C"

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/yerden/go-dpdk/ethdev"
)

// offloads are what the port will do, of what the device offers.
type offloads struct {
	rx, tx uint64 // RTE_ETH_RX_OFFLOAD_* and RTE_ETH_TX_OFFLOAD_*
	hf     uint64 // RTE_ETH_RSS_*; 0 without RSS
	key    []byte
	caps   pmd.Caps
	hwIP   bool // the device completes IPv4 header checksums
	hwHash bool // received frames carry the hash
	maxTSO int
}

const (
	rssTCP4 = C.RTE_ETH_RSS_NONFRAG_IPV4_TCP
	rssHash = rssTCP4 | C.RTE_ETH_RSS_NONFRAG_IPV6_TCP
)

// planOffloads chooses from what the device says about itself. size is that of a buffer, parts the most that a frame may have of them.
func planOffloads(info *C.struct_rte_eth_dev_info, queues, mtu, size, parts int, tso bool) offloads {
	var o offloads
	rxCapa, txCapa := uint64(info.rx_offload_capa), uint64(info.tx_offload_capa)

	// TCP's sum is what counts; the shim verifies and completes IPv4's where the device does not.
	if rxCapa&C.RTE_ETH_RX_OFFLOAD_TCP_CKSUM != 0 {
		o.rx |= rxCapa & (C.RTE_ETH_RX_OFFLOAD_TCP_CKSUM | C.RTE_ETH_RX_OFFLOAD_UDP_CKSUM | C.RTE_ETH_RX_OFFLOAD_IPV4_CKSUM)
		o.caps |= pmd.RxCsum
	}
	if txCapa&C.RTE_ETH_TX_OFFLOAD_TCP_CKSUM != 0 {
		o.tx |= txCapa & (C.RTE_ETH_TX_OFFLOAD_TCP_CKSUM | C.RTE_ETH_TX_OFFLOAD_IPV4_CKSUM)
		o.caps |= pmd.TxCsum
		o.hwIP = txCapa&C.RTE_ETH_TX_OFFLOAD_IPV4_CKSUM != 0
		if tso && txCapa&C.RTE_ETH_TX_OFFLOAD_TCP_TSO != 0 {
			o.planTSO(info, mtu, size, parts)
		}
	}
	// RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE stays off: with it PMDs neither look for further segments nor call back for external buffers.

	if hf := uint64(info.flow_type_rss_offloads) & rssHash; queues > 1 && hf&rssTCP4 != 0 {
		o.hf = hf
		o.rx |= rxCapa & C.RTE_ETH_RX_OFFLOAD_RSS_HASH
		size := int(info.hash_key_size)
		if size == 0 {
			size = len(defaultKey)
		}
		o.key = bytes.Repeat(defaultKey, 1+size/len(defaultKey))[:size]
	}
	return o
}

// packedChains reports whether frames of several buffers would go out over a packed ring of a virtio card, which net_virtio of DPDK 22.11
// and QEMU 7.2 do not do together (tried in test/vm's machines). By indirect descriptors, its way for up to 7 buffers, DPDK is at fault: it
// prepares its tables with VIRTQ_DESC_F_WRITE (vring_desc_init_indirect_packed) and leaves the flag in that of the header, though what the
// device reads comes before what it writes (VirtIO 1.1, 2.7.17), so QEMU stops the device for "Incorrect order for descriptors". Chains
// in the ring itself are no way out: with the flags taken away, or without indirect descriptors (indirect_desc=off), transfers stall and nobody
// complains; the device takes no frame any more at about the first turn of the ring. Rings to DPDK's own vhost are sound, so net_virtio_user
// has no such limit (TestVirtioLarge), nor have split rings, nor have frames of one buffer. That a ring is packed shows only in the bound of its
// size, which need not be a power of two.
func packedChains(driver string, info *C.struct_rte_eth_dev_info) bool {
	return driver == "net_virtio" && info.tx_desc_lim.nb_max == math.MaxUint16
}

// planTSO says how large frames may be: as many buffers as a frame may have, all but the first full, or one large buffer.
func (o *offloads) planTSO(info *C.struct_rte_eth_dev_info, mtu, size, parts int) {
	multi := uint64(info.tx_offload_capa) & C.RTE_ETH_TX_OFFLOAD_MULTI_SEGS
	if most := int(info.tx_desc_lim.nb_seg_max); most > 0 {
		parts = min(parts, most)
	}
	if multi == 0 {
		parts = 1
	}
	most := min(parts*size-headroom-ethOverhead-pmd.MaxHeaders, pmd.MaxLarge-pmd.MaxHeaders)
	if most < 2*mtu {
		return
	}
	o.tx |= C.RTE_ETH_TX_OFFLOAD_TCP_TSO | multi
	o.caps |= pmd.TSO
	o.maxTSO = most
}

// options are the arguments of DevConfigure.
func (o *offloads) options(mtu int) []ethdev.Option {
	rx := ethdev.RxMode{MqMode: C.RTE_ETH_MQ_RX_NONE, MTU: uint32(mtu), Offloads: o.rx}
	opts := []ethdev.Option{ethdev.OptTxMode(ethdev.TxMode{MqMode: C.RTE_ETH_MQ_TX_NONE, Offloads: o.tx})}
	if o.hf != 0 {
		rx.MqMode = C.RTE_ETH_MQ_RX_RSS
		opts = append(opts, ethdev.OptRss(ethdev.RssConf{Key: o.key, Hf: o.hf}))
	}
	return append(opts, ethdev.OptRxMode(rx))
}

// rss asks a started port for its key and table. RSSHash is claimed only if the port hashes the ports of both families, and key and table
// are known. Virtio's devices steer by the hash, but do not tell it.
func (o *offloads) rss(port ethdev.Port, info *C.struct_rte_eth_dev_info) (key []byte, table []uint16) {
	n := int(info.reta_size)
	if o.hf != rssHash || n == 0 || n > C.RTE_ETH_RSS_RETA_SIZE_512 {
		return nil, nil
	}
	ckey := (*C.uint8_t)(C.calloc(1, C.size_t(len(o.key))))
	defer C.free(unsafe.Pointer(ckey))
	if C.rss_key_get(C.uint16_t(port), ckey, C.uint8_t(len(o.key))) != 0 {
		return nil, nil
	}
	key = C.GoBytes(unsafe.Pointer(ckey), C.int(len(o.key)))
	ctable := (*C.uint16_t)(C.calloc(C.size_t(n), 2))
	defer C.free(unsafe.Pointer(ctable))
	if bytes.Equal(key, make([]byte, len(key))) || C.reta_get(C.uint16_t(port), ctable, C.uint16_t(n)) != 0 {
		return nil, nil
	}
	for _, q := range unsafe.Slice(ctable, n) {
		table = append(table, uint16(q))
	}
	o.caps |= pmd.RSSHash
	o.hwHash = o.rx&C.RTE_ETH_RX_OFFLOAD_RSS_HASH != 0
	return key, table
}

// defaultKey is the key of the RSS verification suite, which most NICs come with.
var defaultKey = []byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
	0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
	0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}
