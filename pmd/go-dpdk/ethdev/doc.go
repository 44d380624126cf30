// Package ethdev configures DPDK's Ethernet devices and reads their state. It needs the build tag dpdk.
package ethdev
