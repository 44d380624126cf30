// Package mbuf is DPDK's packet buffer. It needs the build tag dpdk.
package mbuf
