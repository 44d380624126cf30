//go:build dpdk

package dpdk

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// segment builds an Ethernet, IPv4 or IPv6, and TCP frame with right checksums.
func segment(t *testing.T, v6 bool, payload int) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	ip4 := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IPv4(10, 9, 0, 1), DstIP: net.IPv4(10, 9, 0, 2)}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
		SrcIP: netip.MustParseAddr("fd00::1").AsSlice(), DstIP: netip.MustParseAddr("fd00::2").AsSlice()}
	tcp := &layers.TCP{SrcPort: 4321, DstPort: 80, Seq: 7, Ack: 9, ACK: true, PSH: true, Window: 1000}
	var ip gopacket.SerializableLayer = ip4
	if v6 {
		eth.EthernetType, ip = layers.EthernetTypeIPv6, ip6
		tcp.SetNetworkLayerForChecksum(ip6)
	} else {
		tcp.SetNetworkLayerForChecksum(ip4)
	}
	data := bytes.Repeat([]byte("fastpath"), (payload+7)/8)[:payload]
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, eth, ip, tcp, gopacket.Payload(data)); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

const (
	ip4At  = 14
	tcp4At = 14 + 20
	csumAt = 16 // of the checksum in the TCP header
)

// unfinish leaves the checksums of an IPv4 segment to the port and says so in the Buf.
func unfinish(b *pmd.Buf) {
	f := b.Bytes()
	binary.BigEndian.PutUint16(f[ip4At+10:], 0)
	sum := uint32(6) + uint32(len(f)-tcp4At) // RFC 9293, 3.1: protocol and length of the pseudo-header
	for i := ip4At + 12; i < tcp4At; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(f[tcp4At+csumAt:], uint16(sum))
	b.Flags = pmd.TxIPCsum | pmd.TxTCPCsum
	b.L2Len, b.L3Len, b.L4Len = 14, 20, 20
}

// send makes Poll take a frame.
func send(t *testing.T, p pmd.Port, frame []byte, prepare func(*pmd.Buf)) {
	t.Helper()
	q := p.Queue(0)
	b := q.Pool().Get()
	if !b.Append(frame) {
		t.Fatalf("a frame of %d bytes does not fit", len(frame))
	}
	if prepare != nil {
		prepare(b)
	}
	if n, _ := q.Poll([]*pmd.Buf{b}, nil); n != 1 {
		t.Fatal("Poll did not take the frame")
	}
}

// receive polls until a frame arrives that want accepts, and hands it to check.
func receive(t *testing.T, p pmd.Port, check func(*pmd.Buf) bool) {
	t.Helper()
	q := p.Queue(0)
	rx := make([]*pmd.Buf, 32)
	until(t, func() bool {
		_, n := q.Poll(nil, rx)
		done := false
		for _, b := range rx[:n] {
			done = check(b) || done
			q.Pool().Put(b)
		}
		return done
	})
}

// TestVirtioChecksums sends segments whose checksums the receiver completes or trusts, both ways.
func TestVirtioChecksums(t *testing.T) {
	back, front := virtio(t, Config{})
	frame := segment(t, false, 1000)
	for _, d := range []struct {
		name     string
		from, to pmd.Port
	}{{"front to back", front, back}, {"back to front", back, front}} {
		t.Run(d.name, func(t *testing.T) {
			if d.from.Info().Caps&pmd.TxCsum == 0 || d.to.Info().Caps&pmd.RxCsum == 0 {
				t.Fatalf("capabilities %b and %b", d.from.Info().Caps, d.to.Info().Caps)
			}
			until(t, d.from.LinkUp)
			send(t, d.from, frame, unfinish)
			receive(t, d.to, func(b *pmd.Buf) bool {
				if b.Flags != pmd.RxPartial {
					t.Errorf("flags %b, want RxPartial", b.Flags)
				}
				if f := b.Bytes(); !bytes.Equal(f[:tcp4At+csumAt], frame[:tcp4At+csumAt]) || !bytes.Equal(f[tcp4At+20:], frame[tcp4At+20:]) {
					t.Errorf("the frame changed, or its IPv4 checksum was not completed:\n% x", f[:tcp4At+20])
				}
				return true
			})
			send(t, d.from, frame, nil)
			receive(t, d.to, func(b *pmd.Buf) bool {
				if b.Flags != 0 || !bytes.Equal(b.Bytes(), frame) {
					t.Errorf("a finished segment arrived with flags %b", b.Flags)
				}
				return true
			})
		})
	}
}

// kernelSide is a packet socket on an interface of the kernel.
func kernelSide(t *testing.T, name string) int {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: i.Index}); err != nil {
		t.Fatal(err)
	}
	tv := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return fd
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// tap opens net_tap in a namespace of its own, and a socket on the kernel's side.
func tap(t *testing.T, c Config) (p pmd.Port, fd int) {
	ns := namespace(t)
	if err := ns.Do(func() error {
		if err := ns.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
			return err
		}
		c.Vdev = "net_tap0,iface=t0"
		p = open(t, c)
		fd = kernelSide(t, "t0")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p, fd
}

// TestTapReceiveChecksums wants the verdict of the PMD, which verifies checksums itself.
func TestTapReceiveChecksums(t *testing.T) {
	p, fd := tap(t, Config{})
	if p.Info().Caps&pmd.RxCsum == 0 {
		t.Fatal("net_tap offers no receive checksums")
	}
	damage := func(f []byte, at int) []byte {
		f = bytes.Clone(f)
		f[at] ^= 0x40
		return f
	}
	good4, good6 := segment(t, false, 333), segment(t, true, 333)
	arp := make([]byte, 60)
	copy(arp[12:], []byte{8, 6})
	for _, c := range []struct {
		name  string
		frame []byte
		flags uint16
	}{
		{"IPv4", good4, pmd.RxCsumGood},
		{"IPv6", good6, pmd.RxCsumGood},
		{"payload", damage(good4, 200), pmd.RxCsumBad},
		{"IPv6 payload", damage(good6, 200), pmd.RxCsumBad},
		{"IPv4 header", damage(good4, ip4At+8), pmd.RxCsumBad},
		{"ARP", arp, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := unix.Write(fd, c.frame); err != nil {
				t.Fatal(err)
			}
			receive(t, p, func(b *pmd.Buf) bool {
				if !bytes.Equal(b.Bytes(), c.frame) {
					return false
				}
				if b.Flags != c.flags {
					t.Errorf("flags %b, want %b", b.Flags, c.flags)
				}
				return true
			})
		})
	}
}

// next reads the next TCP frame from the kernel's side.
func next(t *testing.T, fd int) []byte {
	t.Helper()
	buf := make([]byte, 65536)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n > tcp4At && buf[12] == 8 && buf[13] == 0 && buf[ip4At+9] == 6 {
			return buf[:n]
		}
	}
}

func TestTapTransmitChecksums(t *testing.T) {
	p, fd := tap(t, Config{})
	if p.Info().Caps&(pmd.TxCsum|pmd.TSO) != pmd.TxCsum {
		t.Fatalf("capabilities %b: want TxCsum, and no TSO, which is IPv4's only", p.Info().Caps)
	}
	frame := segment(t, false, 777)
	send(t, p, frame, unfinish)
	if got := next(t, fd); !bytes.Equal(got, frame) {
		t.Errorf("got\n% x, want\n% x", got[:54], frame[:54])
	}
}

// TestVirtioTSO sends a segment of ten times the MSS through a ring whose device takes them: it arrives in one piece, unfinished. Without
// the device's consent the capability is not there.
func TestVirtioTSO(t *testing.T) {
	const mss = 1000
	for _, c := range []struct {
		name, args string
		tso        bool
	}{{"not offered", "", false}, {"offered", ",tso=1", true}} {
		t.Run(c.name, func(t *testing.T) {
			sock := filepath.Join(t.TempDir(), "vhost.sock")
			large := Config{BufSize: 32 << 10, Buffers: 1024, Ring: 128}
			large.Vdev = "net_vhost0,iface=" + sock + c.args
			back := open(t, large)
			large.Vdev = "net_virtio_user0,path=" + sock
			front := open(t, large)
			if i := front.Info(); i.Caps&pmd.TSO != 0 != c.tso || i.MaxTSO >= 10*mss != c.tso || i.MaxTSO > pmd.MaxLarge {
				t.Fatalf("capabilities %b, MaxTSO %d", i.Caps, i.MaxTSO)
			}
			if !c.tso {
				return
			}
			until(t, front.LinkUp)
			frame := segment(t, false, 10*mss)
			send(t, front, frame, func(b *pmd.Buf) {
				unfinish(b)
				b.SegSize = mss
			})
			receive(t, back, func(b *pmd.Buf) bool {
				if got := b.Bytes(); b.Flags != pmd.RxPartial || len(got) != len(frame) || !bytes.Equal(got[tcp4At+20:], frame[tcp4At+20:]) {
					t.Errorf("%d of %d bytes arrived, flags %b", len(got), len(frame), b.Flags)
				}
				return true
			})
			if s := front.Stats(); s.TxErrors != 0 || s.TxFrames != 10 {
				t.Errorf("%+v", s)
			}
		})
	}
}
