package sock_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Without any address of IPv4 everything works, a name's addresses of IPv4 do no harm, and no frame is of another protocol than IPv6.
func TestNoIPv4(t *testing.T) {
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	traced := trace.New(pa, stack.Monotonic{}.Now)
	start := func(p pmd.Port, addr string) *stack.Stack {
		s, err := stack.New(stack.Config{Port: p, DADTransmits: -1, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	sa, sb := start(traced, "2001:db8::1/64"), start(pb, "2001:db8::2/64")
	capture, err := traced.Start(trace.Options{Slots: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	ln := must(sock.Listen(sb, "tcp", ":80"))
	defer ln.Close()
	a4, a6 := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::2")
	d := sock.Dialer{Stack: sa, Timeout: 20 * time.Second, FallbackDelay: time.Minute, Resolver: names{"first4": {a4, a6}, "first6": {a6, a4}, "only4": {a4}}}
	for _, to := range []string{"[2001:db8::2]:80", "first4:80", "first6:80"} {
		c, err := d.Dial("tcp", to)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		s := must(ln.Accept())
		must(c.Write([]byte("hello")))
		b := make([]byte, 5)
		if _, err := io.ReadFull(s, b); err != nil || string(b) != "hello" || s.RemoteAddr().(*net.TCPAddr).IP.String() != "2001:db8::1" {
			t.Errorf("%s: %q from %v, %v", to, b, s.RemoteAddr(), err)
		}
		c.Close()
		s.Close()
	}
	for _, to := range []string{"10.0.0.2:80", "only4:80"} {
		if c, err := d.Dial("tcp", to); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("%s: %v, %v", to, c, err)
		}
	}
	pc := must(sock.ListenPacket(sb, "udp", ":53"))
	defer pc.Close()
	u := must(d.Dial("udp", "[2001:db8::2]:53"))
	defer u.Close()
	must(u.Write([]byte("name?")))
	b := make([]byte, 100)
	n, from, err := pc.ReadFrom(b)
	if err != nil || string(b[:n]) != "name?" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	must(pc.WriteTo([]byte("address"), from))
	if n, err := u.Read(b); err != nil || string(b[:n]) != "address" {
		t.Errorf("%q, %v", b[:n], err)
	}
	seen, err := capture.Each(func(f trace.Frame) error {
		if typ := binary.BigEndian.Uint16(f.Data[12:]); typ != wire.EtherTypeIPv6 {
			t.Errorf("a frame of type %#x", typ)
		}
		return nil
	})
	if seen < 20 || err != nil {
		t.Errorf("%d frames, %v", seen, err)
	}
}
