// Package versus sends by fastpath and by a kernel's TCP, with the same congestion control, through the same emulated path (pmd/memlink) to
// the same kernel receiver, and compares goodput and what is sent again. `make versus` runs its tests against this machine's kernel;
// test/vm has another as the sender, in a virtual machine.
//
// The path lies between two namespaces that the test makes. The receiver's end of it is a TAP device; so is the sender's, if that is a kernel;
// fastpath drives the end itself. The tests need root, and take the real time of their transfers: without -full only a short one runs.
package versus
