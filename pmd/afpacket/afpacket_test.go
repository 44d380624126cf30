package afpacket

import (
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/peertest"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

func openPort(t testing.TB, n *netns.NS, c Config) *Port {
	t.Helper()
	c.NetNSPath = n.Path()
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// joined opens ports on both ends of a veth pair.
func joined(t testing.TB, c Config, mtu int) (a, b *Port) {
	na, nb := peertest.NS(t), peertest.NS(t)
	peertest.Veth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, mtu)
	ca, cb := c, c
	ca.Interface, cb.Interface = "a", "b"
	return openPort(t, na, ca), openPort(t, nb, cb)
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]Config{
		"one queue":    {RingFrames: 256, PoolSize: 1024},
		"two queues":   {RingFrames: 256, PoolSize: 1024, Queues: 2},
		"software sum": {RingFrames: 256, PoolSize: 1024, NoTxCsum: true, Qdisc: true},
	} {
		t.Run(name, func(t *testing.T) {
			pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) { return joined(t, c, 1500) }, pmdtest.Options{
				TxRing: layout(256, txOffset+vnetLen+1500+ethLen).slots(), Async: true,
			})
		})
	}
	t.Run("jumbo", func(t *testing.T) {
		pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
			return joined(t, Config{RingFrames: 256, PoolSize: 1024}, 9000)
		}, pmdtest.Options{Async: true})
	})
}

func TestOpenErrors(t *testing.T) {
	n := peertest.NS(t)
	peertest.Veth(t, netns.End{NS: n, Name: "a"}, netns.End{NS: n, Name: "b"}, 0)
	if err := n.Run("ip", "link", "set", "dev", "b", "down"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		c    Config
		want string
	}{
		"missing":   {Config{Interface: "nosuch", NetNSPath: n.Path()}, `no interface "nosuch"`},
		"down":      {Config{Interface: "b", NetNSPath: n.Path()}, "ip link set dev b up"},
		"loopback":  {Config{Interface: "lo", NetNSPath: n.Path()}, "not Ethernet"},
		"namespace": {Config{Interface: "a", NetNSPath: n.Path() + "-none"}, "-none"},
		"queues":    {Config{Interface: "a", NetNSPath: n.Path(), Queues: 1000}, "Queues = 1000"},
		"ring":      {Config{Interface: "a", NetNSPath: n.Path(), RingFrames: 1}, "RingFrames = 1"},
		"mac":       {Config{Interface: "a", NetNSPath: n.Path(), MAC: net.HardwareAddr{1}}, "MAC"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Open(tc.c)
			if err == nil {
				p.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.c.Interface) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
		})
	}
	t.Run("permission", func(t *testing.T) {
		result := make(chan error)
		go n.Do(func() error {
			runtime.LockOSThread() // the thread has lost its capabilities: it ends with the goroutine
			h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			err := unix.Capset(&h, &none[0])
			if err == nil {
				_, err = Open(Config{Interface: "a"})
			}
			result <- err
			return nil
		})
		if err := <-result; err == nil || !strings.Contains(err.Error(), "setcap") {
			t.Errorf("error %v does not name the capabilities", err)
		}
	})
}

// frame makes a test frame in a buffer of q.
func frame(t testing.TB, q pmd.Queue, dst, src net.HardwareAddr, proto []byte, payload string) *pmd.Buf {
	t.Helper()
	return peertest.Frame(t, q, dst, src, proto, []byte(payload))
}

func TestVLANTagIsPutBack(t *testing.T) {
	a, b := joined(t, Config{}, 0)
	defer peertest.Close(t, a, b)
	for name, head := range map[string][]byte{
		"802.1Q":  {0x81, 0x00, 0x60, 0x2a, 0x88, 0xb5},
		"802.1ad": {0x88, 0xa8, 0x20, 0x07, 0x88, 0xb5},
		"none":    {0x88, 0xb5},
		"double":  {0x88, 0xa8, 0x20, 0x07, 0x81, 0x00, 0x00, 0x2a, 0x88, 0xb5},
		"full":    {0x81, 0x00, 0x00, 0x2a, 0x88, 0xb5},
	} {
		t.Run(name, func(t *testing.T) {
			payload := strings.Repeat("x", 60)
			if name == "full" {
				payload = strings.Repeat("y", 1500)
			}
			f := frame(t, a.Queue(0), b.Info().MAC, a.Info().MAC, head, payload)
			want := string(f.Bytes())
			peertest.Send(t, a.Queue(0), f)
			if got, _ := peertest.Recv(t, b.Queue(0)); got != want {
				t.Errorf("sent     %x\nreceived %x", want, got)
			}
		})
	}
}

func TestUnsendableFramesAreCounted(t *testing.T) {
	a, b := joined(t, Config{}, 0)
	defer peertest.Close(t, a, b)
	q := a.Queue(0)
	bad := map[string]*pmd.Buf{
		"runt":     frame(t, q, b.Info().MAC, a.Info().MAC, nil, ""),
		"too long": frame(t, q, b.Info().MAC, a.Info().MAC, []byte{8, 0}, strings.Repeat("x", 1501)),
		"lengths":  frame(t, q, b.Info().MAC, a.Info().MAC, []byte{8, 0}, strings.Repeat("x", 39)),
	}
	bad["lengths"].Flags, bad["lengths"].L2Len, bad["lengths"].L3Len = pmd.TxTCPCsum, 14, 20
	for name, f := range bad {
		before := a.Stats()
		peertest.Send(t, q, f)
		if s := a.Stats(); s.TxErrors != before.TxErrors+1 || s.TxFrames != before.TxFrames {
			t.Errorf("%s: counters went from %+v to %+v", name, before, s)
		}
	}
	f := frame(t, q, b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "the ring is in step")
	want := string(f.Bytes())
	peertest.Send(t, q, f)
	if got, _ := peertest.Recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

func TestFullRingIsCounted(t *testing.T) {
	a, b := joined(t, Config{RingFrames: 64}, 0)
	defer peertest.Close(t, a, b)
	const n = 500
	for range n {
		peertest.Send(t, a.Queue(0), frame(t, a.Queue(0), b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "data"))
	}
	rx := make([]*pmd.Buf, 64)
	got := uint64(0)
	peertest.Until(t, "all frames received or counted", func() bool {
		_, k := b.Queue(0).Poll(nil, rx)
		pmd.FreeAll(rx[:k])
		got += uint64(k)
		return got+b.Stats().RxDropped >= n
	})
	if s := b.Stats(); got == 0 || s.RxDropped == 0 || got+s.RxDropped != n || s.RxFrames != got {
		t.Errorf("%d frames sent, %d received, counters %+v", n, got, s)
	}
}

// TestLinkDown takes the interface down and up again under the port.
func TestLinkDown(t *testing.T) {
	na, nb := peertest.NS(t), peertest.NS(t)
	peertest.Veth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, 0)
	a, b := openPort(t, na, Config{Interface: "a"}), openPort(t, nb, Config{Interface: "b"})
	defer peertest.Close(t, a, b)
	q := a.Queue(0)
	peertest.Until(t, "link up", a.LinkUp)
	if err := na.Run("ip", "link", "set", "dev", "a", "down"); err != nil {
		t.Fatal(err)
	}
	peertest.Until(t, "link down", func() bool { return !a.LinkUp() && !b.LinkUp() })
	fd := []unix.PollFd{{Fd: int32(q.WakeFD()), Events: unix.POLLIN}}
	peertest.Until(t, "the socket's error to be cleared", func() bool { n, _ := unix.Poll(fd, 0); return n == 0 })
	for range 3 {
		peertest.Send(t, q, frame(t, q, b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "stale"))
	}
	if s := a.Stats(); s.TxErrors != 3 || q.TxRoom() != len(a.queues[0].tx) {
		t.Errorf("after 3 frames into a dead link: room %d, %+v", q.TxRoom(), s)
	}
	if err := na.Run("ip", "link", "set", "dev", "a", "up"); err != nil {
		t.Fatal(err)
	}
	peertest.Until(t, "link up again", func() bool { return a.LinkUp() && b.LinkUp() })
	f := frame(t, q, b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "fresh")
	want := string(f.Bytes())
	peertest.Send(t, q, f)
	if got, _ := peertest.Recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

// TestInterfaceGone deletes the interface under the port.
func TestInterfaceGone(t *testing.T) {
	na, nb := peertest.NS(t), peertest.NS(t)
	pair := peertest.Veth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, 0)
	a := openPort(t, na, Config{Interface: "a"})
	defer peertest.Close(t, a)
	if err := pair.Close(); err != nil {
		t.Fatal(err)
	}
	peertest.Until(t, "link down", func() bool { return !a.LinkUp() })
	q := a.Queue(0)
	peertest.Send(t, q, frame(t, q, a.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "data"))
	if s := a.Stats(); s.TxErrors != 1 {
		t.Errorf("counters %+v", s)
	}
}

func TestOtherMACMakesPromiscuous(t *testing.T) {
	na, nb := peertest.NS(t), peertest.NS(t)
	peertest.Veth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, 0)
	mac := net.HardwareAddr{2, 1, 2, 3, 4, 5}
	a, b := openPort(t, na, Config{Interface: "a"}), openPort(t, nb, Config{Interface: "b", MAC: mac})
	defer peertest.Close(t, a, b)
	if got := b.Info().MAC.String(); got != mac.String() {
		t.Errorf("Info.MAC is %s", got)
	}
	out, err := nb.Command("ip", "-d", "link", "show", "b").Output()
	if err != nil || !strings.Contains(string(out), "promiscuity 1") {
		t.Errorf("the interface is not promiscuous: %s %v", out, err)
	}
	f := frame(t, a.Queue(0), mac, a.Info().MAC, []byte{0x88, 0xb5}, "for another address")
	want := string(f.Bytes())
	peertest.Send(t, a.Queue(0), f)
	if got, _ := peertest.Recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

func mustPrefix(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
