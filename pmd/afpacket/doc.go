// Package afpacket is the driver for any kernel network interface: AF_PACKET sockets with memory-mapped rings, in pure Go. It needs
// Linux 4.20 and CAP_NET_RAW (CAP_NET_ADMIN too, for larger socket buffers).
//
// # Rings
//
// Each queue is one socket with a TPACKET_V2 ring per direction: a status word per frame, so a frame is visible as soon as it is
// there (version 3 hands over blocks, after at least a millisecond). Poll reads and writes the rings in memory. It enters the kernel
// once if it has frames to send, and once per received super-frame; with nothing to do it does not enter the kernel.
//
// Frames are copied from and to the rings, so a transmission is complete when Poll has taken the frame (pmd.Copies). The kernel would
// attach pages of the transmit ring to the packet, and copy them when the packet reaches a socket of this host. The driver has it copy
// the frame at once, through the header length of the virtio header: over veth that costs 10 % less.
//
// # Offloads
//
// Every frame carries a virtio header (PACKET_VNET_HDR).
//
//   - A frame whose sender on this host left the checksum unfinished arrives with pmd.RxPartial; one that the network card verified,
//     with pmd.RxCsumGood. In both cases the IPv4 header's checksum was verified here. All other frames are verified in software.
//   - The kernel merges received segments (GRO), and a sender on this host hands over up to 64 KB at once (TSO, GSO). Such a
//     super-frame does not fit a ring slot: the kernel puts it in the socket's queue (PACKET_COPY_THRESH), whence Poll reads it and
//     cuts it into the frames that a wire would have carried. Offloads of the interface and of a veth peer can stay on. If the queue
//     is full, the super-frame is counted in RxDropped. What is not TCP, or longer than 64 KB (BIG TCP), is counted in RxErrors: then
//     `ethtool -K IFACE gro off` here, or `ethtool -K IFACE tso off gso off` at the veth peer, helps.
//   - TCP checksums of transmitted frames are left to the kernel (pmd.TxCsum), which leaves them to the card, or does them itself. Over
//     veth they are never computed. Config.NoTxCsum turns this off, for a peer that is not a kernel.
//   - VLAN tags, which the kernel takes out, are put back.
//
// # Several queues
//
// With Queues > 1 the sockets form a fanout group: the kernel spreads frames by a hash that is the same in both directions of a flow.
// It is not the Toeplitz hash, has a secret key, and is not told to us, so the port has no pmd.RSSHash.
//
// # Sharing the interface with the kernel
//
// The kernel sees every received frame too. Take an interface without IP addresses, in a namespace without forwarding, or the kernel
// answers as well (resets, ICMP errors). Frames are sent past the queueing disciplines unless Config.Qdisc is set.
package afpacket
