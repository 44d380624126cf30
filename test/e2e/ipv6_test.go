package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv6"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

const (
	serverIP6 = "2001:db8:7::1"
	clientIP6 = "2001:db8:7::2"
)

// world6 is a world whose daemon serves IPv6 too.
func world6(t *testing.T, l link) *world {
	t.Helper()
	need(t, "ping", "curl")
	app := func(kind string, port int, keys string) {
		l.more += fmt.Sprintf("[[app]]\nname = \"%s6-%d\"\nkind = %q\nlisten = \"[::]:%d\"\n%s\n", kind, port, kind, port, keys)
	}
	app("http", 8080, fmt.Sprintf("upload = true\nseed = %d", seed))
	app("proxy", 8083, fmt.Sprintf("backend = \"[%s]:8083\"\nvia = \"fastpath\"", clientIP6))
	l.addrs = append(l.addrs, serverIP6+"/64")
	w := newWorld(t, l)
	w.enable6Client()
	return w
}

// enable6Client gives the client an address of IPv6.
func (w *world) enable6Client() {
	w.Helper()
	w.command(nil, "ip", "-6", "addr", "add", clientIP6+"/64", "dev", w.enable6(), "nodad")
}

// address6Client does the same, and waits until the daemon uses its own.
func (w *world) address6Client() {
	w.Helper()
	w.enable6Client()
	w.address6(serverIP6)
}

// enable6 turns IPv6 on at the client's interface, whose name it returns.
func (w *world) enable6() (dev string) {
	w.Helper()
	dev = clientIf
	if w.driver == "tap" && w.path == nil {
		dev = serverIf
	}
	w.must(w.client.Sysctl("net.ipv6.conf."+dev+".disable_ipv6", "0"))
	return dev
}

// bad6 are counters of the kernel that move only if it was sent something malformed.
var bad6 = []string{"Ip6InHdrErrors", "Ip6InTooBigErrors", "Ip6InUnknownProtos", "Ip6InTruncatedPkts", "Icmp6InErrors", "Icmp6InCsumErrors"}

// IPv6 with the kernel at the other end: neighbour discovery, ping, HTTP both ways, connections in both directions, link-local addresses.
func TestIPv6(t *testing.T) {
	for _, driver := range []string{"afpacket", "tap", "dpdk"} {
		t.Run(driver, func(t *testing.T) {
			w := world6(t, link{driver: driver, offloads: driver == "afpacket"})
			before := w.nstat()
			w.eventually(10*time.Second, func() error { // duplicate address detection takes a second or two
				return w.client.Run("ping", "-6", "-c", "1", "-W", "1", serverIP6)
			})
			w.command(nil, "ping", "-6", "-c", "3", "-i", "0.2", "-s", "1400", serverIP6)
			w.command(nil, "ping", "-6", "-c", "2", "-i", "0.2", "-s", "4000", serverIP6) // in fragments, both ways

			const size = 20 << 20
			url := fmt.Sprintf("http://[%s]:8080", serverIP6)
			w.same("download", w.curl("-6", "-g", fmt.Sprintf("%s/blob?size=%d&seed=3", url, size)), 3, size)
			w.uploaded(w.curl("-6", "-g", "-T", w.contentFile(5, size), url+"/upload"), 5, size)

			w.throughProxy6()
			w.reachable6(serverIP6)
			ll := w.address6("fe80::")
			dev := clientIf
			if driver == "tap" {
				dev = serverIf
			}
			w.same("download from the link-local address", w.curl("-6", "-g", fmt.Sprintf("http://[%s%%25%s]:8080/blob?size=100000&seed=3", ll, dev)), 3, 100000)
			after := w.nstat().since(before)
			for _, n := range bad6 {
				if after[n] != 0 {
					t.Errorf("the kernel counts %d %s", after[n], n)
				}
			}
		})
	}
}

// throughProxy6 reaches a server at the client through the daemon, which opens a connection to it.
func (w *world) throughProxy6() {
	w.Helper()
	var l net.Listener
	w.must(w.client.Do(func() (err error) {
		l, err = net.Listen("tcp6", fmt.Sprintf("[%s]:8083", clientIP6))
		return err
	}))
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 5)
		if _, err := c.Read(b); err == nil {
			_, _ = c.Write(bytes.ToUpper(b))
		}
	}()
	var c net.Conn
	w.must(w.client.Do(func() (err error) {
		c, err = net.Dial("tcp6", fmt.Sprintf("[%s]:8083", serverIP6))
		return err
	}))
	defer c.Close()
	w.must(c.SetDeadline(time.Now().Add(10 * time.Second)))
	_, err := c.Write([]byte("hello"))
	w.must(err)
	b := make([]byte, 5)
	_, err = c.Read(b)
	w.must(err)
	if string(b) != "HELLO" {
		w.Errorf("through the proxy came %q", b)
	}
}

// reachable6 wants the kernel to have confirmed the daemon as its neighbour: by its answers, and by TCP's progress.
func (w *world) reachable6(ip string) {
	w.Helper()
	w.eventually(10*time.Second, func() error {
		_ = w.client.Run("ping", "-6", "-c", "1", "-W", "1", ip)
		out := string(w.command(nil, "ip", "-6", "neigh", "show", ip))
		if !strings.Contains(out, "REACHABLE") {
			return fmt.Errorf("the kernel's neighbour: %s", out)
		}
		return nil
	})
}

// address6 waits for the daemon to have an address that begins like this, and to use it.
func (w *world) address6(prefix string) (ip string) {
	w.Helper()
	w.eventually(15*time.Second, func() error {
		all := w.stat().Ports[0].Addresses
		for _, a := range all {
			if addr, _, _ := strings.Cut(a, "/"); strings.HasPrefix(a, prefix) && !strings.Contains(a, " ") {
				ip = addr
				return nil
			}
		}
		return fmt.Errorf("the daemon has %q", all)
	})
	return ip
}

// Of an address that the kernel has, the daemon says so and does not use it (RFC 4862, 5.4.5); its other addresses work.
func TestIPv6Duplicate(t *testing.T) {
	need(t, "ping")
	w := newWorld(t, link{driver: "afpacket", portKeys: "slaac = true\n"})
	w.enable6()
	w.command(nil, "ip", "-6", "addr", "add", serverIP6+"/64", "dev", clientIf, "nodad")
	w.address6("fe80::")
	w.stop()
	w.addrs, w.portKeys = []string{serverIP6 + "/64", "2001:db8:7::9/64"}, ""
	w.start()
	w.eventually(10*time.Second, func() error {
		if all := w.stat().Ports[0].Addresses; !strings.Contains(strings.Join(all, ","), serverIP6+"/64 duplicate") {
			return fmt.Errorf("the daemon has %q", all)
		}
		return nil
	})
	if !strings.Contains(w.daemon.said(), "another host has this address") {
		t.Error("the daemon does not say so")
	}
	w.eventually(10*time.Second, func() error { return w.client.Run("ping", "-6", "-c", "1", "-W", "1", "2001:db8:7::9") })
}

// A router at the client gives the daemon its prefix, its MTU and itself as the way to everywhere.
func TestIPv6SLAAC(t *testing.T) {
	w := world6(t, link{driver: "afpacket", portKeys: "slaac = true\n"})
	w.command(nil, "ip", "-6", "addr", "add", "2001:db8:77::1/64", "dev", clientIf, "nodad")
	w.command(nil, "ip", "-6", "addr", "add", "2001:db8:99::1/128", "dev", "lo")
	stop := w.advertise("2001:db8:77::", 1400)
	defer stop()
	ip := w.address6("2001:db8:77:")
	w.eventually(10*time.Second, func() error { return w.client.Run("ping", "-6", "-c", "1", "-W", "1", ip) })
	// From an address that only the default route leads back to.
	w.same("download", w.curl("-6", "-g", "--interface", "2001:db8:99::1", fmt.Sprintf("http://[%s]:8080/blob?size=1000000&seed=3", ip)), 3, 1000000)

	var c net.Conn
	w.must(w.client.Do(func() (err error) {
		c, err = net.Dial("tcp6", fmt.Sprintf("[%s]:8080", ip))
		return err
	}))
	defer c.Close()
	var ss control.SSReply
	w.must(w.call(control.OpSS, control.SSRequest{PeerPort: uint16(c.LocalAddr().(*net.TCPAddr).Port)}, &ss))
	if len(ss.Conns) != 1 || ss.Conns[0].AdvMSSBytes != 1400-60 {
		t.Errorf("the daemon announces %+v, the router an MTU of 1400", ss.Conns)
	}
}

// advertise sends router advertisements from the client's interface until stop is called.
func (w *world) advertise(prefix string, mtu uint32) (stop func()) {
	w.Helper()
	var p *ipv6.PacketConn
	var dev *net.Interface
	w.must(w.client.Do(func() error {
		c, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		p = ipv6.NewPacketConn(c)
		dev, err = net.InterfaceByName(clientIf)
		return err
	}))
	w.must(p.SetMulticastHopLimit(255))
	w.must(p.SetMulticastInterface(dev))
	b := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	b = append(append(b, 1, 1), dev.HardwareAddr...)
	b = binary.BigEndian.AppendUint32(append(b, 5, 1, 0, 0), mtu)
	b = append(b, 3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x07, 0x08, 0, 0, 0, 0)
	b = append(b, net.ParseIP(prefix)...)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_, _ = p.WriteTo(b, nil, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: clientIf})
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-ended; p.Close() }
}
