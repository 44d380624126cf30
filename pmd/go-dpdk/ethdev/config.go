//go:build dpdk

package ethdev

/*
#include <stdlib.h>
#include <rte_ethdev.h>
*/
import "C"

import (
	"unsafe"

	"github.com/yerden/go-dpdk/mempool"
)

// RxMode says how a port receives.
type RxMode struct {
	MqMode   uint   // RTE_ETH_MQ_RX_*: how frames spread over queues
	MTU      uint32 // bytes of the largest IP packet; 0 for DPDK's default
	Offloads uint64 // RTE_ETH_RX_OFFLOAD_*, of those that the device offers
}

// TxMode says how a port transmits.
type TxMode struct {
	MqMode   uint   // RTE_ETH_MQ_TX_*
	Offloads uint64 // RTE_ETH_TX_OFFLOAD_*, of those that the device offers
}

// RssConf is receive-side scaling.
type RssConf struct {
	Key []byte // hash key; nil for the driver's own
	Hf  uint64 // RTE_ETH_RSS_*: packet types to hash; 0 turns it off
}

// Option is a choice for DevConfigure.
type Option struct {
	set func(*config)
}

type config struct {
	conf C.struct_rte_eth_conf
	key  unsafe.Pointer // C memory for the call's duration
}

// OptRxMode sets the receive mode.
func OptRxMode(m RxMode) Option {
	return Option{func(c *config) {
		c.conf.rxmode.mq_mode = uint32(m.MqMode)
		c.conf.rxmode.mtu = C.uint32_t(m.MTU)
		c.conf.rxmode.offloads = C.uint64_t(m.Offloads)
	}}
}

// OptTxMode sets the transmit mode.
func OptTxMode(m TxMode) Option {
	return Option{func(c *config) {
		c.conf.txmode.mq_mode = uint32(m.MqMode)
		c.conf.txmode.offloads = C.uint64_t(m.Offloads)
	}}
}

// OptRss sets receive-side scaling.
func OptRss(r RssConf) Option {
	return Option{func(c *config) {
		rss := &c.conf.rx_adv_conf.rss_conf
		rss.rss_hf = C.uint64_t(r.Hf)
		if len(r.Key) > 0 {
			C.free(c.key)
			c.key = C.CBytes(r.Key)
			rss.rss_key = (*C.uint8_t)(c.key)
			rss.rss_key_len = C.uint8_t(len(r.Key))
		}
	}}
}

// DevConfigure gives a stopped port nrxq receive and ntxq transmit queues. Everything else about the port comes after it.
func (p Port) DevConfigure(nrxq, ntxq uint16, opts ...Option) error {
	var c config
	for _, o := range opts {
		o.set(&c)
	}
	defer C.free(c.key)
	return result(C.rte_eth_dev_configure(C.uint16_t(p), C.uint16_t(nrxq), C.uint16_t(ntxq), &c.conf))
}

// QueueOption is a choice for RxqSetup and TxqSetup.
type QueueOption struct {
	set func(*queueConfig)
}

type queueConfig struct {
	socket int
}

func collect(opts []QueueOption) queueConfig {
	c := queueConfig{socket: C.SOCKET_ID_ANY}
	for _, o := range opts {
		o.set(&c)
	}
	return c
}

// OptSocket is the NUMA socket of the ring's memory.
func OptSocket(socket int) QueueOption {
	return QueueOption{func(c *queueConfig) { c.socket = socket }}
}

// RxqSetup makes receive queue qid, with nDesc descriptors, whose buffers come from mp. The rest is the driver's default.
func (p Port) RxqSetup(qid, nDesc uint16, mp *mempool.Mempool, opts ...QueueOption) error {
	c := collect(opts)
	return result(C.rte_eth_rx_queue_setup(C.uint16_t(p), C.uint16_t(qid), C.uint16_t(nDesc), C.uint(c.socket), nil,
		(*C.struct_rte_mempool)(unsafe.Pointer(mp))))
}

// TxqSetup makes transmit queue qid with nDesc descriptors. The rest is the driver's default.
func (p Port) TxqSetup(qid, nDesc uint16, opts ...QueueOption) error {
	c := collect(opts)
	return result(C.rte_eth_tx_queue_setup(C.uint16_t(p), C.uint16_t(qid), C.uint16_t(nDesc), C.uint(c.socket), nil))
}
