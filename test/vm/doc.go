// Package vm starts the program inside virtual machines whose network cards DPDK drives: a kernel of Debian's, an initial RAM disk with
// the fully static program and busybox, and QEMU, which needs neither KVM nor root in the guest's hardware. The peer is the TCP of this
// machine's kernel, at the other end of a TAP device in a namespace of the test's own.
//
// `make test-vm` runs it; plain `go test` skips it, for it takes minutes. See README.md.
package vm
