//go:build dpdk

package ethdev

/*
#cgo pkg-config: libdpdk
#include <stdlib.h>
#include <rte_ethdev.h>

// struct rte_eth_link is a union of bit fields and an aligned word, which cgo cannot read.
struct link_state {
	int up;
};

static int link_get(uint16_t port, struct link_state *s)
{
	struct rte_eth_link l = {0};
	int rc = rte_eth_link_get_nowait(port, &l);

	s->up = l.link_status;
	return rc;
}
*/
import "C"

import (
	"net"
	"syscall"
	"unsafe"
)

// Port is the number of an Ethernet device.
type Port uint16

// result makes an error of the negative error number that DPDK's functions return.
func result(rc C.int) error {
	if rc < 0 {
		return syscall.Errno(-rc)
	}
	return nil
}

// GetPortByName finds the device with that name: a PCI address, or the name of a virtual device. It returns ENODEV if there is
// none.
func GetPortByName(name string) (Port, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var id C.uint16_t
	err := result(C.rte_eth_dev_get_port_by_name(cname, &id))
	return Port(id), err
}

// DevInfo is what DPDK says about a device.
type DevInfo C.struct_rte_eth_dev_info

// InfoGet fills info.
func (p Port) InfoGet(info *DevInfo) error {
	return result(C.rte_eth_dev_info_get(C.uint16_t(p), (*C.struct_rte_eth_dev_info)(info)))
}

// DriverName is the name of the device's poll-mode driver.
func (info *DevInfo) DriverName() string { return C.GoString(info.driver_name) }

// MACAddr is an Ethernet address.
type MACAddr C.struct_rte_ether_addr

// MACAddrGet stores the device's address in addr.
func (p Port) MACAddrGet(addr *MACAddr) error {
	return result(C.rte_eth_macaddr_get(C.uint16_t(p), (*C.struct_rte_ether_addr)(addr)))
}

// HardwareAddr is the address as package net has it. It shares addr's memory.
func (addr *MACAddr) HardwareAddr() net.HardwareAddr {
	return unsafe.Slice((*byte)(&addr.addr_bytes[0]), len(addr.addr_bytes))
}

// Start starts reception and transmission.
func (p Port) Start() error { return result(C.rte_eth_dev_start(C.uint16_t(p))) }

// Stop ends reception and transmission.
func (p Port) Stop() { C.rte_eth_dev_stop(C.uint16_t(p)) }

// Close gives back what a stopped port holds. It cannot be used again.
func (p Port) Close() { C.rte_eth_dev_close(C.uint16_t(p)) }

// PromiscEnable makes the port receive frames to any address.
func (p Port) PromiscEnable() error { return result(C.rte_eth_promiscuous_enable(C.uint16_t(p))) }

// AllMulticastEnable makes the port receive frames to any group.
func (p Port) AllMulticastEnable() error {
	return result(C.rte_eth_allmulticast_enable(C.uint16_t(p)))
}

// SocketID is the NUMA socket of the device, or -1.
func (p Port) SocketID() int { return int(C.rte_eth_dev_socket_id(C.uint16_t(p))) }

// EthLink is the state of a link.
type EthLink C.struct_link_state

// EthLinkGetNowait returns the state of the link as the driver knows it now.
func (p Port) EthLinkGetNowait() (EthLink, error) {
	var l EthLink
	err := result(C.link_get(C.uint16_t(p), (*C.struct_link_state)(&l)))
	return l, err
}

// Status reports whether the link is up.
func (l *EthLink) Status() bool { return l.up != 0 }

// Stats are a port's counters as DPDK has them.
type Stats C.struct_rte_eth_stats

// GoStats are the first counters of Stats.
type GoStats struct {
	Ipackets uint64 // frames received
	Opackets uint64 // frames sent
	Ibytes   uint64
	Obytes   uint64
	Imissed  uint64 // frames lost for want of room in the ring
	Ierrors  uint64
	Oerrors  uint64
	RxNoMbuf uint64 // failures to take a buffer from the pool
}

// Cast views s as Go numbers.
func (s *Stats) Cast() *GoStats { return (*GoStats)(unsafe.Pointer(s)) }

// StatsGet fills stats.
func (p Port) StatsGet(stats *Stats) error {
	return result(C.rte_eth_stats_get(C.uint16_t(p), (*C.struct_rte_eth_stats)(stats)))
}

// GoStats has the layout of the head of struct rte_eth_stats.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(GoStats{}.Oerrors)-unsafe.Offsetof(Stats{}.oerrors)]
	_ = [1]struct{}{}[unsafe.Offsetof(GoStats{}.RxNoMbuf)-unsafe.Offsetof(Stats{}.rx_nombuf)]
)
