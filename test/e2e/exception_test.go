package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/test/netns"
)

// The kernel's side of the exception path.
const (
	exceptionIf = "exc0"
	kernelIP    = "10.7.0.9"
)

// serveKernel echoes on an address of the kernel in the daemon's namespace.
func (w *world) serveKernel(ip string, port int) {
	w.Helper()
	l := w.listen(w.server, ip, port)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

// echoes sends data to an echo server and wants it back.
func echoes(ns *netns.NS, ip string, port int, data []byte) error {
	c, err := dialIn(ns, ip, port)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- err
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("%s: %w", net.JoinHostPort(ip, fmt.Sprint(port)), err)
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("%s: other data came back", ip)
	}
	return <-sent
}

// TestException: ping and a TCP server of the kernel are reached through fastpath's port, and the kernel reaches out through it, beside
// fastpath's own connections.
func TestException(t *testing.T) {
	for name, l := range map[string]link{"afpacket": {driver: "afpacket"}, "afpacket, offloads": {driver: "afpacket", offloads: true}, "dpdk": {driver: "dpdk"}} {
		t.Run(name, func(t *testing.T) {
			l.portKeys = fmt.Sprintf("exception = %q\nexception_addresses = [\"%s/24\"]\nexception_rate = 100000\n", exceptionIf, kernelIP)
			w := newWorld(t, l)
			if out, err := w.client.Command("ping", "-c", "3", "-W", "2", "-s", "3000", kernelIP).CombinedOutput(); err != nil {
				t.Fatalf("ping: %v\n%s", err, out)
			}
			w.serveKernel(kernelIP, 2222)
			data := bytes.Repeat([]byte("through the exception path "), 20_000)
			w.must(echoes(w.client, kernelIP, 2222, data))
			w.download(1 << 20)
			// The other way: the kernel of the daemon's host opens a connection.
			l := w.listen(w.client, clientIP, 3333)
			go func() {
				if c, err := l.Accept(); err == nil {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}
			}()
			w.must(echoes(w.server, clientIP, 3333, data))
			w.download(1 << 20)
			s := w.stat().Counters
			if s["exception_to_kernel"] < 300 || s["exception_from_kernel"] < 300 || s["exception_errors"] != 0 {
				t.Errorf("counted %d, %d; %d errors", s["exception_to_kernel"], s["exception_from_kernel"], s["exception_errors"])
			}
		})
	}
}

// TestExceptionUnclaimed: with the same address, ports on which fastpath does not listen are the kernel's.
func TestExceptionUnclaimed(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket", portKeys: fmt.Sprintf(
		"exception = %q\nexception_addresses = [\"%s/24\"]\nexception_unclaimed = true\n", exceptionIf, serverIP)})
	w.serveKernel(serverIP, 2222)
	data := bytes.Repeat([]byte("unclaimed "), 10_000)
	w.must(echoes(w.client, serverIP, 2222, data))
	w.download(1 << 20)
	w.must(echoes(w.client, serverIP, 2222, data))
	var c net.PacketConn
	w.must(w.server.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", net.JoinHostPort(serverIP, "5353"))
		return err
	}))
	defer c.Close()
	var from net.Conn
	w.must(w.client.Do(func() (err error) {
		from, err = net.Dial("udp4", net.JoinHostPort(serverIP, "5353"))
		return err
	}))
	defer from.Close()
	buf := make([]byte, 100)
	var n int
	var peer net.Addr
	w.eventually(10*time.Second, func() (err error) { // a datagram may find no room
		if _, err = from.Write([]byte("datagram")); err != nil {
			return err
		}
		w.must(c.SetReadDeadline(time.Now().Add(time.Second)))
		n, peer, err = c.ReadFrom(buf)
		return err
	})
	if ap := netip.MustParseAddrPort(peer.String()); string(buf[:n]) != "datagram" || ap.Addr() != netip.MustParseAddr(clientIP) {
		t.Errorf("%q from %v", buf[:n], peer)
	}
}

// TestExceptionRate: what is beyond the rate is dropped and counted, and fastpath's own traffic does not suffer.
func TestExceptionRate(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket", portKeys: fmt.Sprintf(
		"exception = %q\nexception_addresses = [\"%s/24\"]\nexception_rate = 50\n", exceptionIf, kernelIP)})
	if out, err := w.client.Command("ping", "-c", "1", "-W", "5", kernelIP).CombinedOutput(); err != nil {
		t.Fatalf("ping: %v\n%s", err, out)
	}
	var c net.Conn
	w.must(w.client.Do(func() (err error) {
		c, err = net.Dial("udp4", net.JoinHostPort(kernelIP, "9"))
		return err
	}))
	defer c.Close()
	for range 2000 {
		_, _ = c.Write([]byte("flood"))
	}
	w.download(1 << 20)
	w.eventually(10*time.Second, func() error {
		s := w.stat().Counters
		if s["exception_limited"]+s["exception_full"] < 1000 || s["exception_to_kernel"] > 600 {
			return fmt.Errorf("%d frames passed, %d beyond the rate, %d found no room", s["exception_to_kernel"], s["exception_limited"], s["exception_full"])
		}
		return nil
	})
}

// The kernel gets each frame on the interface itself, too. With the port's own Ethernet address there it takes what is for any of its
// addresses (RFC 1122, 3.3.4.2: weak host model), so that it answers twice, until a remedy of conf/example.toml keeps it from that.
func TestExceptionOnce(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket", portKeys: fmt.Sprintf("exception = %q\nexception_addresses = [\"%s/24\"]\n", exceptionIf, kernelIP)})
	set := func(arpIgnore, rpFilter int) {
		for name, value := range map[string]int{"arp_ignore": arpIgnore, "rp_filter": rpFilter} {
			w.must(w.server.Run("sysctl", "-q", fmt.Sprintf("net.ipv4.conf.all.%s=0", name), fmt.Sprintf("net.ipv4.conf.%s.%s=%d", serverIf, name, value)))
		}
	}
	answers := func() (n int, twice bool) {
		out, err := w.client.Command("ping", "-c", "4", "-i", "0.2", "-W", "2", kernelIP).CombinedOutput()
		if err != nil {
			t.Fatalf("ping: %v\n%s", err, out)
		}
		return bytes.Count(out, []byte("bytes from")), bytes.Contains(out, []byte("DUP!"))
	}
	w.must(w.server.Run("ip", "link", "set", serverIf, "address", "02:00:00:07:00:01"))
	set(0, 0)
	if n, twice := answers(); !twice {
		t.Errorf("%d answers, none twice: there is nothing to remedy", n)
	}
	set(1, 1)
	if n, twice := answers(); n != 4 || twice {
		t.Errorf("with arp_ignore and rp_filter: %d answers, twice %v", n, twice)
	}
	t.Run("nft", func(t *testing.T) {
		nft, err := exec.LookPath("nft")
		if err != nil {
			t.Skip("needs nft (Debian: nftables)")
		}
		set(0, 0)
		w.must(w.server.Run(nft, "add table netdev fastpath; add chain netdev fastpath in { type filter hook ingress device "+serverIf+" priority 0; policy drop; }"))
		if n, twice := answers(); n != 4 || twice {
			t.Errorf("%d answers, twice %v", n, twice)
		}
	})
	w.download(1 << 20)
}
