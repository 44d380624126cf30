package sock_test

import (
	"bytes"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// pairOf is pair with addresses of both families, used at once.
func pairOf(t *testing.T, workers int) (all [2]*stack.Stack) {
	t.Helper()
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*memlink.Port{pa, pb} {
		addrs := [2][]string{{"10.0.0.1/24", "fd00::1/64"}, {"10.0.0.2/24", "fd00::2/64"}}[i]
		c := stack.Config{Port: p, DADTransmits: -1, Workers: make([]stack.WorkerConfig, workers)}
		for _, a := range addrs {
			c.Addrs = append(c.Addrs, netip.MustParsePrefix(a))
		}
		s, err := stack.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		all[i] = s
	}
	return all
}

// A socket of any address and both families hears both; datagrams of all sizes go over IPv6; closed ports refuse.
func TestUDP6(t *testing.T) {
	s := pairOf(t, 2)
	l, err := sock.ListenPacket(s[1], "udp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := sock.ListenPacket(s[1], "udp6", ":53"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket of IPv6 beside: %v", err)
	}
	limit := time.Now().Add(soon)
	l.SetDeadline(limit)
	in, out := make([]byte, 70000), make([]byte, 65527)
	for i := range out {
		out[i] = byte(i * 11)
	}
	for _, to := range []string{"10.0.0.2:53", "[fd00::2]:53"} {
		d := sock.Dialer{Stack: s[0]}
		c, err := d.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(limit)
		sizes := []int{1, 0, 1400, 1452, 1453, 1472, 1473, 5000, 65507}
		if to[0] == '[' {
			sizes = append(sizes, 65527)
		}
		for _, n := range sizes {
			if _, err := c.Write(out[:n]); err != nil {
				t.Fatal(err)
			}
			k, from, err := l.ReadFromUDPAddrPort(in)
			if err != nil || !bytes.Equal(in[:k], out[:n]) || from.String() != c.LocalAddr().String() {
				t.Fatalf("to %s: %d bytes came as %d from %v, %v", to, n, k, from, err)
			}
			if _, err := l.WriteToUDPAddrPort(in[:k], from); err != nil {
				t.Fatal(err)
			}
			if k, err := c.Read(in); err != nil || !bytes.Equal(in[:k], out[:n]) {
				t.Fatalf("from %s: %d bytes came back as %d, %v", to, n, k, err)
			}
		}
	}
	c, err := sock.DialUDP(s[0], "udp6", netip.AddrPort{}, netip.MustParseAddrPort("[fd00::2]:54"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(limit)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(in); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := sock.DialUDP(s[0], "udp4", netip.AddrPort{}, netip.MustParseAddrPort("[fd00::2]:54")); err == nil {
		t.Error("udp4 to an IPv6 address")
	}
}
