package sock_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// The same against a name server on the kernel's UDP and TCP, whose offloads leave checksums to the receiver; and datagrams of all sizes,
// in fragments both ways.
func TestKernelPeer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	client, server := namespace(t, "udpa"), namespace(t, "udpb")
	veth, err := netns.Veth(netns.End{NS: client, Name: "a"}, netns.End{
		NS: server, Name: "b", Offloads: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")},
	}, 1500)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { veth.Close() })
	var port *afpacket.Port
	if err := client.Do(func() (err error) { port, err = afpacket.Open(afpacket.Config{Interface: "a"}); return err }); err != nil {
		t.Fatal(err)
	}
	st, err := stack.New(stack.Config{Port: port, Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}, Workers: make([]stack.WorkerConfig, 2)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &nameServer{}
	var dns, echo net.PacketConn
	var ln net.Listener
	if err := server.Do(func() (err error) {
		if dns, err = net.ListenPacket("udp4", "10.9.0.2:53"); err != nil {
			return err
		}
		if echo, err = net.ListenPacket("udp4", "10.9.0.2:7"); err != nil {
			return err
		}
		ln, err = net.Listen("tcp4", "10.9.0.2:53")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer dns.Close()
	defer echo.Close()
	defer ln.Close()
	go s.serveUDP(dns)
	go s.serveTCP(ln)
	go func() {
		buf := make([]byte, 70000)
		for {
			n, from, err := echo.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(buf[:n], from)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	r := sock.NewResolver(sock.Dialer{Stack: st}, netip.MustParseAddrPort("10.9.0.2:53"))
	if ips, err := r.LookupNetIP(ctx, "ip4", "one.test."); err != nil || len(ips) != 1 {
		t.Errorf("one: %v, %v", ips, err)
	}
	if ips, err := r.LookupNetIP(ctx, "ip4", "many.test."); err != nil || len(ips) != 200 || s.tcp.Load() == 0 {
		t.Errorf("many: %d addresses, %v after %d questions by TCP", len(ips), err, s.tcp.Load())
	}
	c, err := sock.DialUDP(st, "udp4", netip.AddrPort{}, netip.MustParseAddrPort("10.9.0.2:7"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(soon))
	out, in := make([]byte, 65507), make([]byte, 70000)
	for i := range out {
		out[i] = byte(i * 7)
	}
	for _, n := range []int{0, 1, 100, 1472, 1473, 3000, 9000} {
		if _, err := c.Write(out[:n]); err != nil {
			t.Fatal(err)
		}
		if k, err := c.Read(in); err != nil || string(in[:k]) != string(out[:n]) {
			t.Fatalf("%d bytes came back as %d, %v", n, k, err)
		}
	}
	closed, err := sock.DialUDP(st, "udp4", netip.AddrPort{}, netip.MustParseAddrPort("10.9.0.2:9"))
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	closed.SetDeadline(time.Now().Add(soon))
	if _, err := closed.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := closed.Read(in); err == nil || err.(net.Error).Timeout() {
		t.Errorf("a closed port of the kernel: %v", err)
	}
}

func namespace(t *testing.T, name string) *netns.NS {
	t.Helper()
	n, err := netns.New(name)
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
