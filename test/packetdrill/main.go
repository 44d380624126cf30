// Command packetdrill is the stack as a shared object for Google's packetdrill, which loads it with --so_filename: its init function fills a
// table of system calls, of the clock, and of sending and receiving packets (interface.h).
//
//	go build -tags packetdrill -buildmode=c-shared -o libfastpath.so ./test/packetdrill
//	packetdrill --so_filename=libfastpath.so --local_ip=192.168.0.2 FILE.pkt
//
// Time is virtual: usleep and netdev_receive let it pass, gettimeofday tells it. A call that blocks waits, on its own thread, until the
// thread that drives time has brought about what it waits for. --so_flags takes NAME=VALUE, separated by commas: local (address and length
// of the prefix), gateway, mtu, cong, rcvbuf.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "packetdrill: a shared object: build it with -tags packetdrill -buildmode=c-shared")
	os.Exit(1)
}
