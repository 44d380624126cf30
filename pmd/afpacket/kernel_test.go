package afpacket

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/peertest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// bench is two kernels, a client and a server, whose frames go through two ports and a forwarder between them.
//
//	client 10.9.0.1 ── veth ── port a ═ forward ═ port b ── veth ── server 10.9.0.2
type bench struct {
	client, server *netns.NS
	a, b           *Port
	*peertest.Forwarder
}

// offloads say what the kernels' ends of the veth pairs have on.
type offloads struct{ client, server bool }

func newBench(t testing.TB, o offloads, c Config, forwarding bool) *bench {
	x := &bench{client: peertest.NS(t), server: peertest.NS(t)}
	mid := peertest.NS(t)
	peertest.Veth(t, netns.End{NS: x.client, Name: "eth0", Addrs: mustPrefix("10.9.0.1/24"), Offloads: o.client},
		netns.End{NS: mid, Name: "a", Offloads: o.client}, 0)
	peertest.Veth(t, netns.End{NS: x.server, Name: "eth0", Addrs: mustPrefix("10.9.0.2/24"), Offloads: o.server},
		netns.End{NS: mid, Name: "b", Offloads: o.server}, 0)
	c.Promiscuous = true
	ca, cb := c, c
	ca.Interface, cb.Interface = "a", "b"
	x.a, x.b = openPort(t, mid, ca), openPort(t, mid, cb)
	t.Cleanup(func() {
		if forwarding {
			x.Stop()
		}
		peertest.Close(t, x.a, x.b)
	})
	if forwarding {
		x.Forwarder = peertest.Forward(x.a, x.b)
	}
	return x
}

// TestKernelTCP carries the TCP of one kernel to another. With offloads on at the sender, frames come in as super-frames with unfinished
// checksums. With offloads off at the receiver, checksums that the port completed are verified there, so that the pseudo-header's sum
// of each split frame must be right.
func TestKernelTCP(t *testing.T) {
	const size = 24 << 20
	for name, o := range map[string]offloads{
		"offloads off": {}, "offloads on": {true, true}, "client only": {client: true}, "server only": {server: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, o, Config{}, true)
			peertest.Transfer(t, x.client, x.server, "10.9.0.2", size)
			peertest.Transfer(t, x.server, x.client, "10.9.0.1", size)
			sa, sb := x.a.Stats(), x.b.Stats()
			t.Logf("a %+v, b %+v, %d unfinished checksums", sa, sb, x.Partial.Load())
			if x.Long.Load() > 0 {
				t.Errorf("%d frames longer than the MTU", x.Long.Load())
			}
			if any := o.client || o.server; any != (x.Partial.Load() > 0) {
				t.Errorf("%d frames with unfinished checksums", x.Partial.Load())
			}
			if sa.RxErrors+sb.RxErrors+sa.TxErrors+sb.TxErrors > 0 {
				t.Errorf("errors: %+v, %+v", sa, sb)
			}
			if sa.RxFrames < size/1448 || sb.RxFrames < size/1448 {
				t.Errorf("%d and %d frames for %d bytes each way", sa.RxFrames, sb.RxFrames, size)
			}
		})
	}
}

// TestKernelFlags looks at what a kernel sends to open a connection: ARP, then a SYN, whose checksum is complete with offloads off and
// left to the hardware with offloads on.
func TestKernelFlags(t *testing.T) {
	for name, on := range map[string]bool{"offloads off": false, "offloads on": true} {
		t.Run(name, func(t *testing.T) {
			x := newBench(t, offloads{on, on}, Config{}, false)
			q := x.a.Queue(0)
			sock := dialAsync(t, x.client, [4]byte{10, 9, 0, 9}, 80)
			defer unix.Close(sock)
			peer := net.HardwareAddr{2, 9, 9, 9, 9, 9}
			arp := awaitLayer(t, q, layers.LayerTypeARP, 0)
			req := arp.Layer(layers.LayerTypeARP).(*layers.ARP)
			answer := q.Pool().Get()
			buf := gopacket.NewSerializeBuffer()
			err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{},
				&layers.Ethernet{SrcMAC: peer, DstMAC: req.SourceHwAddress, EthernetType: layers.EthernetTypeARP},
				&layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPReply,
					SourceHwAddress: peer, SourceProtAddress: req.DstProtAddress,
					DstHwAddress: req.SourceHwAddress, DstProtAddress: req.SourceProtAddress})
			if err != nil {
				t.Fatal(err)
			}
			answer.Append(buf.Bytes())
			peertest.Send(t, q, answer)
			want := uint16(0)
			if on {
				want = pmd.RxPartial
			}
			syn := awaitLayer(t, q, layers.LayerTypeTCP, want)
			tcp := syn.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if !tcp.SYN || tcp.DstPort != 80 {
				t.Errorf("not the SYN: %v", syn)
			}
			if err := tcp.SetNetworkLayerForChecksum(syn.NetworkLayer()); err != nil {
				t.Fatal(err)
			}
			// The sum over the segment with its checksum: 0 if that is right.
			if rest, err := tcp.ComputeChecksum(); err != nil || (rest == 0) == on {
				t.Errorf("checksum %#x, off by %#x (%v)", tcp.Checksum, rest, err)
			}
		})
	}
}

// dialAsync begins a connection in a namespace and does not wait for it.
func dialAsync(t testing.TB, n *netns.NS, addr [4]byte, port int) (fd int) {
	t.Helper()
	err := n.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		if err = unix.Connect(fd, &unix.SockaddrInet4{Addr: addr, Port: port}); err == unix.EINPROGRESS {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// awaitLayer receives until a frame has the layer, and wants the flags on it.
func awaitLayer(t testing.TB, q pmd.Queue, layer gopacket.LayerType, flags uint16) gopacket.Packet {
	t.Helper()
	for {
		f, got := peertest.Recv(t, q)
		p := gopacket.NewPacket([]byte(f), layers.LayerTypeEthernet, gopacket.Default)
		if p.Layer(layer) == nil {
			continue
		}
		if got != flags {
			t.Errorf("flags of %v are %b, want %b", layer, got, flags)
		}
		return p
	}
}

// TestPing sends echo requests of all sizes, with frames below Ethernet's minimum among them, from one kernel to the other.
func TestPing(t *testing.T) {
	x := newBench(t, offloads{}, Config{}, true)
	const id = 77
	var fd int
	err := x.client.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}
	in := make([]byte, 2048)
	for seq, size := range []int{0, 1, 17, 18, 19, 56, 1000, 1471, 1472} {
		echo := layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: id, Seq: uint16(seq)}
		buf := gopacket.NewSerializeBuffer()
		payload := bytes.Repeat([]byte{byte(seq)}, size)
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, &echo, gopacket.Payload(payload)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendto(fd, buf.Bytes(), 0, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 2}}); err != nil {
			t.Fatal(err)
		}
		for {
			n, _, err := unix.Recvfrom(fd, in, 0)
			if err != nil {
				t.Fatalf("no answer to %d bytes: %v", size, err)
			}
			if icmp := in[20:n]; icmp[0] == 0 && binary.BigEndian.Uint16(icmp[6:]) == uint16(seq) {
				if !bytes.Equal(icmp[8:], payload) {
					t.Errorf("answer to %d bytes has %d", size, len(icmp)-8)
				}
				break
			}
		}
	}
}

// TestKernelKeepsWhatWasSent sends more datagrams than the ring has slots to a socket that does not read, and then reads them all. The
// kernel gives a slot back before the receiver has read the packet: the packet must not be in the slot still.
func TestKernelKeepsWhatWasSent(t *testing.T) {
	const frames, size, ring = 400, 1200, 64
	x := newBench(t, offloads{true, true}, Config{RingFrames: ring}, false)
	var fd int
	err := x.client.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 1}, Port: 9})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mac := clientMAC(t, x)
	q := x.a.Queue(0)
	for i := range frames {
		b := q.Pool().Get()
		b.Append(datagram(t, mac, 1000, i, size))
		peertest.Send(t, q, b)
	}
	in := make([]byte, 2048)
	for i := range frames {
		var n int
		peertest.Until(t, "read a datagram", func() bool { n, err = unix.Read(fd, in); return err == nil })
		if want := content(i, size); !bytes.Equal(in[:n], want) {
			t.Fatalf("datagram %d of %d bytes has changed: it begins %x, want %x", i, n, in[:4], want[:4])
		}
	}
}

func clientMAC(t testing.TB, x *bench) net.HardwareAddr {
	t.Helper()
	var mac net.HardwareAddr
	err := x.client.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			mac = i.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

func content(i, size int) []byte {
	p := make([]byte, size)
	for k := range p {
		p[k] = byte(i*7 + k)
	}
	binary.BigEndian.PutUint32(p, uint32(i))
	return p
}

// datagram is a UDP frame from 10.9.0.2.
func datagram(t testing.TB, dst net.HardwareAddr, port, i, size int) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 9, 0, 2}, DstIP: net.IP{10, 9, 0, 1}}
	udp := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 9}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, DstMAC: dst, EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload(content(i, size)))
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestFanout spreads flows over queues: each flow stays on one, every frame arrives once, and no port sees what it sent.
func TestFanout(t *testing.T) {
	const flows, each = 64, 10
	a, b := joined(t, Config{Queues: 3}, 0)
	defer peertest.Close(t, a, b)
	for i := range each {
		for flow := range flows {
			f := a.Queue(0).Pool().Get()
			f.Append(datagram(t, b.Info().MAC, 1000+flow, i, 60))
			q := a.Queue(0)
			peertest.Send(t, q, f)
		}
	}
	queueOf, next := map[uint16]int{}, map[uint16]uint32{}
	used := map[int]bool{}
	rx := make([]*pmd.Buf, 64)
	total := 0
	peertest.Until(t, "all frames", func() bool {
		for i := range b.NumQueues() {
			q := b.Queue(i)
			_, n := q.Poll(nil, rx)
			for _, f := range rx[:n] {
				p := f.Bytes()
				flow, seq := binary.BigEndian.Uint16(p[34:]), binary.BigEndian.Uint32(p[42:])
				if was, ok := queueOf[flow]; ok && was != i {
					t.Errorf("flow %d is on queues %d and %d", flow, was, i)
				}
				if seq != next[flow] {
					t.Errorf("flow %d: frame %d, want %d", flow, seq, next[flow])
				}
				queueOf[flow], next[flow], used[i] = i, seq+1, true
				q.Pool().Put(f)
				total++
			}
		}
		return total >= flows*each
	})
	if len(used) != b.NumQueues() {
		t.Errorf("%d flows used %d of %d queues", flows, len(used), b.NumQueues())
	}
	for i := range a.NumQueues() {
		if _, n := a.Queue(i).Poll(nil, rx); n > 0 {
			t.Errorf("the sender received %d of its own frames", n)
			pmd.FreeAll(rx[:n])
		}
	}
}
