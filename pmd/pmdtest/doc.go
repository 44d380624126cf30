// Package pmdtest checks that a driver keeps the contract of package pmd. Every driver and middleware runs the same suite:
//
//	func TestConformance(t *testing.T) {
//		pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) { ... }, pmdtest.Options{})
//	}
//
// The function opens two ports that are joined by a wire. The suite closes them. Test frames carry EtherType 0x88B5 (IEEE 802, local
// experiments); whatever else arrives, such as the kernel's IPv6 chatter on a veth, is counted and freed.
//
// Main makes leaks fail a test run and name where the buffer was taken:
//
//	func TestMain(m *testing.M) { pmdtest.Main(m) }
package pmdtest
