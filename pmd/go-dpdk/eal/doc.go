// Package eal starts and ends DPDK's environment abstraction layer. It needs the build tag dpdk.
package eal
