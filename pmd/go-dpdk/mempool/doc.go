// Package mempool makes DPDK memory pools of mbufs and user-owned caches for threads that EAL does not know. It needs the build
// tag dpdk.
package mempool
