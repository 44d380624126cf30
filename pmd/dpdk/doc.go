// Package dpdk drives ports through DPDK (libdpdk 22.11) and the packages of github.com/yerden/go-dpdk. All that needs libdpdk
// carries the build tag dpdk; without it Open returns ErrNotBuilt. `go build -tags dpdk` needs pkg-config and no environment
// variables.
//
// # Devices
//
// A port is a virtual device or a PCI device that is bound to vfio-pci or uio_pci_generic. Examples of Config.Vdev:
//
//	net_af_packet0,iface=veth1           a kernel interface, in the network namespace of the thread that calls Open
//	net_tap0,iface=fp0                   a new tap interface
//	net_virtio_user0,path=/run/vhost.sock  a vhost-user backend
//	net_null0, net_ring0                 nothing at all; a loopback
//
// The driver binds no device: what is missing before a device can be used is said, with the command, before EAL starts, and a card that the
// kernel uses stays the kernel's. A vhost-user socket that a killed process has left is removed, if nobody listens on it.
//
// Devices are attached when their port opens and detached when it closes, so a process can open and close them at will. EAL is
// started by the first Open and ended by Shutdown. It neither needs a hugetlbfs mount nor leaves files behind (--in-memory
// with hugepages, --no-shconf without).
//
// # net_af_packet
//
// The PMD copies frames to and from rings that it shares with the kernel. The kernel's side must hand it ordinary frames: on a
// veth pair, the peer's transmit offloads have to be off (ethtool -K PEER tx off tso off gso off), since the PMD passes neither
// unfinished checksums nor frames larger than its ring's. The interface should have no address in the kernel and IPv6 disabled,
// for what the kernel itself sends from it is received too. The PMD rejects an MTU above 1500.
//
// While the ring is full and the socket not writable, the PMD would wait inside the burst, without a limit. The driver finds the
// PMD's sockets, which it recognises by interface among those that appeared while the device was attached, and asks the kernel
// before each burst. They serve as wake descriptors as well, and give the link's state and the kernel's drop count, of which the
// PMD says nothing.
//
// # net_virtio_user and net_vhost
//
// They are the driver and the device of a virtio ring; either may make the socket (server=1 with net_virtio_user, the default with
// net_vhost). When the other end goes, all but net_virtio_user as the client connect again. The link is down meanwhile. As the server,
// net_virtio_user does not survive its own closing once that has happened, so its device is stopped, its socket removed, and the rest is
// left to the end of the process: the same name cannot be opened again in it. Open waits for the first connection in that role,
// or until its context ends, when it shuts down the PMD's sockets, which have no time-out.
// The checksum and segmentation bits of frames are negotiated; what is received unfinished is marked pmd.RxPartial.
//
// # net_memif
//
// Open refuses it: the PMD can crash the process. When a connection ends, it frees the control channel and unmaps the shared
// memory without waiting for EAL's interrupt thread, which may be handling that channel, nor for a burst in progress. The peer
// can end a connection at any time, so no order of closing avoids this. net_vhost and net_virtio_user join processes as well.
//
// # Buffers
//
// A queue's buffers are the mbufs of its own mempool, wrapped one to one. Buffers go back and forth between pool and mempool
// within Poll: above Pool.High it gives some back, below Pool.Low it fetches some, and when the mempool runs dry it shares what
// is left, so that reception does not starve. Frames from other pools are copied into the queue's buffers.
//
// Poll takes up to 64 frames, fewer with PMDs that spend microseconds on each, into a stage from which the PMD is served in the
// same call. What the PMD refuses waits there for the next Poll, so that TxRoom holds for every PMD. A transmitted buffer belongs
// to DPDK until the PMD frees its mbuf.
//
// # Segmentation and completions
//
// A port whose device has TSO for IPv4 and IPv6 takes large frames (pmd.TSO), in as many mbufs as its descriptors allow.
// Virtio cards with packed rings are left out.
//
// DPDK reports no completions. It calls back when an mbuf with an external buffer is freed, so the last frame of a burst is made one, with
// the mbuf's own memory, and in the next Poll the PMD is asked to free what it has sent (rte_eth_tx_done_cleanup), all in the one call
// into C. Queue.Uncompleted counts.
//
// net_virtio cannot be asked, and frees a frame only when later ones need its place. It is offered a frame for which no ring has room, of
// more segments than there are descriptors: it frees what the device has used, and refuses it. What the device has used is what the other
// end has taken: QEMU and the kernel's vhost-net have copied it to the tap, a vhost-user switch to where it goes. Not so on packed rings
// of a virtio card, where a marked frame would be one of several descriptors.
//
// With those, with PMDs that cannot be asked, and with those that copy, a frame is complete when Poll has taken it.
//
// # Static programs
//
// With Debian 12's libdpdk-dev a program links fully statically, PMDs included, without environment variables. PMDs register
// themselves, so the linker has to take all of their archives; net_pcap is left out for want of its libraries.
//
//	go build -tags dpdk,netgo,osusergo -ldflags "-linkmode external -extldflags '-static
//	  -Wl,--whole-archive -lrte_bus_pci -lrte_bus_vdev -lrte_mempool_ring -lrte_mempool_stack -lrte_net_af_packet -lrte_net_tap -lrte_net_virtio
//	  -lrte_net_vhost -lrte_net_null -lrte_net_ring -Wl,--no-whole-archive
//	  -Wl,--start-group -lrte_vhost -lrte_cryptodev -lrte_dmadev -lrte_security -lrte_gso -lrte_hash -lrte_rcu -lrte_timer
//	  -lrte_pci -lrte_ethdev -lrte_meter -lrte_net -lrte_mbuf -lrte_mempool -lrte_stack -lrte_ring -lrte_eal -lrte_telemetry -lrte_kvargs
//	  -lbsd -lmd -lnuma -lfdt -lm -Wl,--end-group'"
//
// # Wake descriptors
//
// Only net_af_packet has them. DPDK offers receive interrupts for net_virtio_user, but its driver has to be told in the port's
// configuration, which go-dpdk's options do not cover; null, ring and tap have none. WakeFD is then -1.
package dpdk
