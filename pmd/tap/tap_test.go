package tap

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/internal/peertest"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

func openTap(t testing.TB, n *netns.NS, c Config) *Port {
	t.Helper()
	if err := n.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	c.NetNSPath = n.Path()
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// joined opens a tap device and a packet socket on the kernel's side of it.
func joined(t testing.TB, c Config) (a *Port, b *afpacket.Port) {
	t.Helper()
	n := peertest.NS(t)
	a = openTap(t, n, c)
	peertest.Until(t, "link up", a.LinkUp)
	b, err := afpacket.Open(afpacket.Config{Interface: a.Info().Name, NetNSPath: n.Path(), RingFrames: 256, PoolSize: 1024})
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]Config{
		"one queue":  {Name: "tap0", PoolSize: 1024},
		"two queues": {Name: "tap0", PoolSize: 1024, Queues: 2},
		"no offload": {Name: "tap0", PoolSize: 1024, NoOffloads: true, NoTxCsum: true},
		"jumbo":      {Name: "tap0", PoolSize: 1024, MTU: 9000},
	} {
		t.Run(name, func(t *testing.T) {
			pmdtest.Run(t, func(t *testing.T) (pmd.Port, pmd.Port) {
				a, b := joined(t, c)
				return a, b
			}, pmdtest.Options{Async: true})
		})
	}
}

// kernels are a client and a server, each behind a tap device, whose frames are forwarded.
type kernels struct {
	client, server *netns.NS
	a, b           *Port
	*peertest.Forwarder
}

func newKernels(t testing.TB, noOffloads bool) *kernels {
	k := &kernels{client: peertest.NS(t), server: peertest.NS(t)}
	// The two kernels see each other's address on the wire as if it were one.
	k.a = openTap(t, k.client, Config{Name: "tap0", NoOffloads: noOffloads, HostAddrs: prefix("10.9.0.1/24")})
	k.b = openTap(t, k.server, Config{Name: "tap0", NoOffloads: noOffloads, HostAddrs: prefix("10.9.0.2/24")})
	k.Forwarder = peertest.Forward(k.a, k.b)
	t.Cleanup(func() {
		k.Stop()
		peertest.Close(t, k.a, k.b)
	})
	return k
}

func prefix(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }

// TestKernelTCP carries the TCP of one kernel to another, through super-frames with unfinished checksums and without.
func TestKernelTCP(t *testing.T) {
	const size = 24 << 20
	for name, off := range map[string]bool{"offloads on": false, "offloads off": true} {
		t.Run(name, func(t *testing.T) {
			k := newKernels(t, off)
			peertest.Transfer(t, k.client, k.server, "10.9.0.2", size)
			peertest.Transfer(t, k.server, k.client, "10.9.0.1", size)
			sa, sb := k.a.Stats(), k.b.Stats()
			t.Logf("a %+v, b %+v, %d unfinished checksums", sa, sb, k.Partial.Load())
			if k.Long.Load() > 0 || off != (k.Partial.Load() == 0) {
				t.Errorf("%d frames longer than the MTU, %d with unfinished checksums", k.Long.Load(), k.Partial.Load())
			}
			if sa.RxErrors+sb.RxErrors+sa.TxErrors+sb.TxErrors > 0 || sa.RxFrames < size/1460 || sb.RxFrames < size/1460 {
				t.Errorf("counters %+v, %+v", sa, sb)
			}
		})
	}
}

// TestHostSide wants the kernel's side set up as asked, and gone after Close.
func TestHostSide(t *testing.T) {
	n := peertest.NS(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0x10}
	p := openTap(t, n, Config{Name: "fp%d", HostMAC: mac, HostAddrs: prefix("10.9.1.1/24"), MTU: 1400})
	i := p.Info()
	if i.Name != "fp0" || i.MTU != 1400 || i.MAC.String() != "02:00:00:00:00:11" {
		t.Errorf("Info is %+v", i)
	}
	out, err := n.Command("ip", "addr", "show", "dev", "fp0").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{mac.String(), "10.9.1.1/24", "mtu 1400", ",UP"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	peertest.Close(t, p)
	if err := n.Run("ip", "link", "show", "dev", "fp0"); err == nil {
		t.Error("the device is still there")
	}
}

// TestPersistent attaches to a device that was there before, which stays.
func TestPersistent(t *testing.T) {
	for _, kind := range []string{"", "multi_queue"} {
		t.Run("kind "+kind, func(t *testing.T) {
			n := peertest.NS(t)
			args := []string{"tuntap", "add", "dev", "old", "mode", "tap"}
			if kind != "" {
				args = append(args, kind)
			}
			if err := n.Run("ip", args...); err != nil {
				t.Fatal(err)
			}
			p := openTap(t, n, Config{Name: "old"})
			if second, err := Open(Config{Name: "old", NetNSPath: n.Path()}); err == nil {
				peertest.Close(t, second)
				if kind == "" {
					t.Error("a second Open of a device with one queue succeeded")
				}
			} else if !strings.Contains(err.Error(), "in use") {
				t.Errorf("a second Open returned %v", err)
			}
			peertest.Close(t, p)
			if err := n.Run("ip", "link", "show", "dev", "old"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	n := peertest.NS(t)
	peertest.Veth(t, netns.End{NS: n, Name: "veth"}, netns.End{NS: n, Name: "peer"}, 0)
	if err := n.Run("ip", "tuntap", "add", "dev", "single", "mode", "tap"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		c    Config
		want string
	}{
		"no name":      {Config{}, "1 … 15 characters"},
		"long name":    {Config{Name: "abcdefghijklmnop"}, "1 … 15 characters"},
		"not a tap":    {Config{Name: "veth"}, "no TAP device"},
		"single queue": {Config{Name: "single", Queues: 2}, "multi_queue"},
		"queues":       {Config{Name: "t", Queues: -1}, "-1 queues"},
		"MAC":          {Config{Name: "t", HostMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, "kernel's side"},
		"MTU":          {Config{Name: "t", MTU: 10}, "MTU 10"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.c.NetNSPath = n.Path()
			p, err := Open(tc.c)
			if err == nil {
				p.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.c.Name) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
		})
	}
	if err := n.Run("ip", "link", "show", "dev", "t"); err == nil {
		t.Error("an Open that failed left its device behind")
	}
}

// TestCounted wants what cannot be sent, and what the kernel dropped, counted.
func TestCounted(t *testing.T) {
	n := peertest.NS(t)
	p := openTap(t, n, Config{Name: "tap0", HostAddrs: prefix("10.9.0.1/24")})
	defer peertest.Close(t, p)
	q := p.Queue(0)
	dst, src := p.link.MAC, p.Info().MAC
	for name, f := range map[string]*pmd.Buf{
		"runt":     peertest.Frame(t, q, dst, src),
		"too long": peertest.Frame(t, q, dst, src, make([]byte, 1503)),
	} {
		before := p.Stats()
		peertest.Send(t, q, f)
		if s := p.Stats(); s.TxErrors != before.TxErrors+1 || s.TxFrames != before.TxFrames {
			t.Errorf("%s: counters went from %+v to %+v", name, before, s)
		}
	}
	if err := n.Run("ip", "link", "set", "dev", "tap0", "down"); err != nil {
		t.Fatal(err)
	}
	peertest.Until(t, "link down", func() bool { return !p.LinkUp() })
	peertest.Send(t, q, peertest.Frame(t, q, dst, src, make([]byte, 50)))
	if s := p.Stats(); s.TxErrors != 3 {
		t.Errorf("a frame into a device that is down: %+v", s)
	}
	if err := n.Run("ip", "link", "set", "dev", "tap0", "up"); err != nil {
		t.Fatal(err)
	}
	peertest.Until(t, "link up", p.LinkUp)
	flood(t, n, 3000)
	rx := make([]*pmd.Buf, 64)
	got := uint64(0)
	for {
		_, k := q.Poll(nil, rx)
		if k == 0 {
			break
		}
		pmd.FreeAll(rx[:k])
		got += uint64(k)
	}
	if s := p.Stats(); got == 0 || got >= 3000 || s.RxFrames != got || s.RxDropped != 3000-got {
		t.Errorf("3000 datagrams, %d received, counters %+v", got, s)
	}
}

// flood has the kernel send broadcast datagrams, which need no ARP.
func flood(t testing.TB, n *netns.NS, count int) {
	t.Helper()
	err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20); err != nil {
			return err
		}
		for range count {
			to := &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 255}, Port: 9}
			if err := unix.Sendto(fd, []byte("data"), 0, to); err != nil && err != unix.ENOBUFS {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSuperFrameWithoutBuffers wants a super-frame handed out piece by piece as buffers come back, and Park to know of it.
func TestSuperFrameWithoutBuffers(t *testing.T) {
	n := peertest.NS(t)
	p := openTap(t, n, Config{Name: "tap0", PoolSize: 4})
	defer peertest.Close(t, p)
	q := p.Queue(0).(*Queue)
	// As read would leave it: TCP over IPv4, 10 segments of 500 bytes.
	frame := make([]byte, 14+20+20+10*500)
	copy(frame[12:], []byte{8, 0, 0x45, 0, byte((len(frame) - 14) >> 8), byte(len(frame) - 14), 0, 0, 0, 0, 64, 6})
	frame[14+20+12] = 5 << 4
	if err := q.split.Start(vnet.Header{Flags: vnet.NeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: 500}, frame, 1500); err != nil {
		t.Fatal(err)
	}
	rx := make([]*pmd.Buf, 64)
	for left := 10; left > 0; {
		if q.Park() {
			t.Fatalf("Park knows nothing of %d frames", left)
		}
		q.Unpark()
		_, k := q.Poll(nil, rx)
		if k != min(4, left) {
			t.Fatalf("%d frames with 4 buffers, %d left", k, left)
		}
		pmd.FreeAll(rx[:k])
		left -= k
	}
	if !q.Park() {
		t.Error("Park after the last frame")
	}
}

// TestHeadroom sends a frame with no room for the virtio header before it.
func TestHeadroom(t *testing.T) {
	a, b := joined(t, Config{Name: "tap0"})
	defer peertest.Close(t, a, b)
	f := a.Queue(0).Pool().Get()
	f.ResetAt(0)
	f.Append(bytes.Join([][]byte{b.Info().MAC, a.Info().MAC, {0x88, 0xb5}, bytes.Repeat([]byte("x"), 100)}, nil))
	want := string(f.Bytes())
	peertest.Send(t, a.Queue(0), f)
	if got, _ := peertest.Recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

func TestUserMAC(t *testing.T) {
	host := net.HardwareAddr{0xa0, 1, 2, 3, 4, 5}
	if m, err := userMAC(nil, host); err != nil || m.String() != "a2:01:02:03:04:04" || host[0] != 0xa0 {
		t.Errorf("%v, %v", m, err)
	}
}

// BenchmarkSend measures a frame written to the device, where the kernel counts it and throws it away.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := openTap(b, peertest.NS(b), Config{Name: "tap0"})
			defer peertest.Close(b, p)
			q := p.Queue(0)
			head := bytes.Join([][]byte{p.link.MAC, p.Info().MAC, {0x88, 0xb5}}, nil)
			tx := make([]*pmd.Buf, 32)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; {
				n := min(len(tx), b.N-sent)
				for i := range n {
					tx[i] = q.Pool().Get()
					tx[i].SetLen(size)
					copy(tx[i].Bytes(), head)
				}
				n, _ = q.Poll(tx[:n], nil)
				sent += n
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// BenchmarkReceive measures a frame sent by a packet socket on the kernel's side and read from the device.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			pa, pb := joined(b, Config{Name: "tap0"})
			defer peertest.Close(b, pa, pb)
			from, to := pb.Queue(0), pa.Queue(0)
			head := bytes.Join([][]byte{pa.Info().MAC, pb.Info().MAC, {0x88, 0xb5}}, nil)
			tx, rx := make([]*pmd.Buf, 32), make([]*pmd.Buf, 64)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			got := 0
			for sent := 0; sent < b.N; {
				n := min(len(tx), b.N-sent, from.TxRoom())
				for i := range n {
					tx[i] = from.Pool().Get()
					tx[i].SetLen(size)
					copy(tx[i].Bytes(), head)
				}
				from.Poll(tx[:n], nil)
				sent += n
				_, k := to.Poll(nil, rx)
				for _, f := range rx[:k] {
					to.Pool().Put(f)
				}
				got += k
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
			b.ReportMetric(float64(got)/float64(b.N)*100, "%received")
		})
	}
}

// BenchmarkKernelTCP carries 256 MB from one kernel to another through two devices and a forwarding goroutine per iteration.
func BenchmarkKernelTCP(b *testing.B) {
	const size = 256 << 20
	for name, off := range map[string]bool{"offloads on": false, "offloads off": true} {
		b.Run(name, func(b *testing.B) {
			k := newKernels(b, off)
			b.SetBytes(size)
			for b.Loop() {
				peertest.Bulk(b, k.client, k.server, "10.9.0.2", size)
			}
		})
	}
}
