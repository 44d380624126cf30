// Package e2e tests the daemon against real peers: the kernel's TCP, curl, iperf3 and nc, over veth pairs and TAP devices between
// network namespaces that the tests make. It holds tests only.
//
// Between the two ends there may be a Go program that carries frames from one interface to the other through an emulated link
// (pmd/memlink), which loses, delays, duplicates and corrupts them as netem would.
//
// The tests need root, and skip with a reason where it or a tool is missing. `go test ./test/e2e -full` runs every combination of
// driver, link and peer; without it a subset runs in which every pair of them occurs.
package e2e
