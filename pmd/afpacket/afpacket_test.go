package afpacket

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

const patience = 10 * time.Second

// until calls f until it reports true, for at most patience.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func newNS(t testing.TB) *netns.NS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and packet sockets")
	}
	n, err := netns.New("afpacket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func newVeth(t testing.TB, a, b netns.End, mtu int) *netns.Pair {
	t.Helper()
	p, err := netns.Veth(a, b, mtu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

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
	na, nb := newNS(t), newNS(t)
	newVeth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, mtu)
	ca, cb := c, c
	ca.Interface, cb.Interface = "a", "b"
	return openPort(t, na, ca), openPort(t, nb, cb)
}

func closePort(t testing.TB, ps ...*Port) {
	t.Helper()
	for _, p := range ps {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
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
	n := newNS(t)
	newVeth(t, netns.End{NS: n, Name: "a"}, netns.End{NS: n, Name: "b"}, 0)
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
	b := q.Pool().Get()
	if b == nil {
		t.Fatal(pmd.ErrNoBuffers)
	}
	for _, p := range [][]byte{dst, src, proto, []byte(payload)} {
		b.Append(p)
	}
	return b
}

func send(t testing.TB, q pmd.Queue, b *pmd.Buf) {
	t.Helper()
	tx := []*pmd.Buf{b}
	until(t, "send a frame", func() bool { n, _ := q.Poll(tx, nil); return n == 1 })
}

// recv waits for the next frame and returns its bytes and flags.
func recv(t testing.TB, q pmd.Queue) (string, uint16) {
	t.Helper()
	rx := make([]*pmd.Buf, 1)
	until(t, "receive a frame", func() bool { _, n := q.Poll(nil, rx); return n == 1 })
	s, f := string(rx[0].Bytes()), rx[0].Flags
	q.Pool().Put(rx[0])
	return s, f
}

func TestVLANTagIsPutBack(t *testing.T) {
	a, b := joined(t, Config{}, 0)
	defer closePort(t, a, b)
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
			send(t, a.Queue(0), f)
			if got, _ := recv(t, b.Queue(0)); got != want {
				t.Errorf("sent     %x\nreceived %x", want, got)
			}
		})
	}
}

func TestUnsendableFramesAreCounted(t *testing.T) {
	a, b := joined(t, Config{}, 0)
	defer closePort(t, a, b)
	q := a.Queue(0)
	bad := map[string]*pmd.Buf{
		"runt":     frame(t, q, b.Info().MAC, a.Info().MAC, nil, ""),
		"too long": frame(t, q, b.Info().MAC, a.Info().MAC, []byte{8, 0}, strings.Repeat("x", 1501)),
		"lengths":  frame(t, q, b.Info().MAC, a.Info().MAC, []byte{8, 0}, strings.Repeat("x", 39)),
	}
	bad["lengths"].Flags, bad["lengths"].L2Len, bad["lengths"].L3Len = pmd.TxTCPCsum, 14, 20
	for name, f := range bad {
		before := a.Stats()
		send(t, q, f)
		if s := a.Stats(); s.TxErrors != before.TxErrors+1 || s.TxFrames != before.TxFrames {
			t.Errorf("%s: counters went from %+v to %+v", name, before, s)
		}
	}
	f := frame(t, q, b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "the ring is in step")
	want := string(f.Bytes())
	send(t, q, f)
	if got, _ := recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

func TestFullRingIsCounted(t *testing.T) {
	a, b := joined(t, Config{RingFrames: 64}, 0)
	defer closePort(t, a, b)
	const n = 500
	for range n {
		send(t, a.Queue(0), frame(t, a.Queue(0), b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "data"))
	}
	rx := make([]*pmd.Buf, 64)
	got := uint64(0)
	until(t, "all frames received or counted", func() bool {
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
	na, nb := newNS(t), newNS(t)
	newVeth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, 0)
	a, b := openPort(t, na, Config{Interface: "a"}), openPort(t, nb, Config{Interface: "b"})
	defer closePort(t, a, b)
	q := a.Queue(0)
	until(t, "link up", a.LinkUp)
	if err := na.Run("ip", "link", "set", "dev", "a", "down"); err != nil {
		t.Fatal(err)
	}
	until(t, "link down", func() bool { return !a.LinkUp() && !b.LinkUp() })
	fd := []unix.PollFd{{Fd: int32(q.WakeFD()), Events: unix.POLLIN}}
	until(t, "the socket's error to be cleared", func() bool { n, _ := unix.Poll(fd, 0); return n == 0 })
	for range 3 {
		send(t, q, frame(t, q, b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "stale"))
	}
	if s := a.Stats(); s.TxErrors != 3 || q.TxRoom() != len(a.queues[0].tx) {
		t.Errorf("after 3 frames into a dead link: room %d, %+v", q.TxRoom(), s)
	}
	if err := na.Run("ip", "link", "set", "dev", "a", "up"); err != nil {
		t.Fatal(err)
	}
	until(t, "link up again", func() bool { return a.LinkUp() && b.LinkUp() })
	f := frame(t, q, b.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "fresh")
	want := string(f.Bytes())
	send(t, q, f)
	if got, _ := recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

// TestInterfaceGone deletes the interface under the port.
func TestInterfaceGone(t *testing.T) {
	na, nb := newNS(t), newNS(t)
	pair := newVeth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, 0)
	a := openPort(t, na, Config{Interface: "a"})
	defer closePort(t, a)
	if err := pair.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "link down", func() bool { return !a.LinkUp() })
	q := a.Queue(0)
	send(t, q, frame(t, q, a.Info().MAC, a.Info().MAC, []byte{0x88, 0xb5}, "data"))
	if s := a.Stats(); s.TxErrors != 1 {
		t.Errorf("counters %+v", s)
	}
}

func TestOtherMACMakesPromiscuous(t *testing.T) {
	na, nb := newNS(t), newNS(t)
	newVeth(t, netns.End{NS: na, Name: "a"}, netns.End{NS: nb, Name: "b"}, 0)
	mac := net.HardwareAddr{2, 1, 2, 3, 4, 5}
	a, b := openPort(t, na, Config{Interface: "a"}), openPort(t, nb, Config{Interface: "b", MAC: mac})
	defer closePort(t, a, b)
	if got := b.Info().MAC.String(); got != mac.String() {
		t.Errorf("Info.MAC is %s", got)
	}
	out, err := nb.Command("ip", "-d", "link", "show", "b").Output()
	if err != nil || !strings.Contains(string(out), "promiscuity 1") {
		t.Errorf("the interface is not promiscuous: %s %v", out, err)
	}
	f := frame(t, a.Queue(0), mac, a.Info().MAC, []byte{0x88, 0xb5}, "for another address")
	want := string(f.Bytes())
	send(t, a.Queue(0), f)
	if got, _ := recv(t, b.Queue(0)); got != want {
		t.Errorf("received %q", got)
	}
}

func mustPrefix(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
