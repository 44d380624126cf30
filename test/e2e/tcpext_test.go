package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/fault"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// duo is a stack of this process and a kernel, each at an end of a veth pair.
type duo struct {
	*testing.T
	st     *stack.Stack
	kernel *netns.NS
	marks  *fault.Port // marks one of 50 packets with ECT, both ways
}

const (
	duoStack  = "10.7.0.1"
	duoKernel = "10.7.0.2"
)

// newDuo makes them. sysctls are the kernel's, as key and value.
func newDuo(t *testing.T, cfg tcp.Config, sysctls ...string) *duo {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	d := &duo{T: t, kernel: newNS(t, "kernel")}
	ours := newNS(t, "stack")
	for i := 0; i < len(sysctls); i += 2 {
		if err := d.kernel.Sysctl(sysctls[i], sysctls[i+1]); err != nil {
			t.Skipf("this kernel has no %s=%s: %v", sysctls[i], sysctls[i+1], err)
		}
	}
	pair, err := netns.Veth(netns.End{NS: d.kernel, Name: "k0", Addrs: []netip.Prefix{netip.MustParsePrefix(duoKernel + "/24")}},
		netns.End{NS: ours, Name: "s0"}, 1500)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pair.Close() })
	port, err := afpacket.Open(afpacket.Config{Interface: "s0", NetNSPath: ours.Path(), Promiscuous: true})
	if err != nil {
		t.Fatal(err)
	}
	marks := fault.Frames{Mark: 2 * fault.Percent}
	if d.marks, err = fault.New(port, fault.Config{Seed: 1, Tx: marks, Rx: marks}); err != nil {
		t.Fatal(errors.Join(err, port.Close()))
	}
	if d.st, err = stack.New(stack.Config{Port: d.marks, Addrs: []netip.Prefix{netip.MustParsePrefix(duoStack + "/24")}, TCP: cfg}); err != nil {
		t.Fatal(errors.Join(err, port.Close()))
	}
	t.Cleanup(func() {
		if err := d.st.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *duo) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// count returns a counter of the kernel.
func (d *duo) count(name string) int {
	d.Helper()
	out, err := d.kernel.Command("nstat", "-asz", name).Output()
	if err != nil {
		d.Skipf("needs nstat (Debian: iproute2): %v", err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, err := strconv.Atoi(f[1])
			d.must(err)
			return n
		}
	}
	d.Fatalf("nstat shows no counter %s", name)
	return 0
}

// kernelServer echoes on port 7 of the kernel.
func (d *duo) kernelServer(opt func(fd int) error) {
	d.Helper()
	lc := net.ListenConfig{Control: sockopt(opt)}
	var l net.Listener
	d.must(d.kernel.Do(func() (err error) {
		l, err = lc.Listen(d.Context(), "tcp4", duoKernel+":7")
		return err
	}))
	d.Cleanup(func() { _ = l.Close() })
	go serveEcho(l)
}

func serveEcho(l net.Listener) {
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
}

func sockopt(opt func(fd int) error) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		if opt == nil {
			return nil
		}
		return errors.Join(c.Control(func(fd uintptr) { err = opt(int(fd)) }), err)
	}
}

// stackServer echoes on port 7 of the stack.
func (d *duo) stackServer() {
	d.Helper()
	l, err := sock.Listen(d.st, "tcp", ":7")
	d.must(err)
	d.Cleanup(func() { _ = l.Close() })
	go serveEcho(l)
}

// echo sends n bytes, wants them back, and ends the connection.
func (d *duo) echo(c net.Conn, n int) {
	d.Helper()
	defer c.Close()
	d.must(c.SetDeadline(time.Now().Add(20 * time.Second)))
	want := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
	first := min(n, 1000) // before the read, which would have the handshake begin without data
	if _, err := c.Write(want[:first]); err != nil {
		d.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(want[first:])
		done <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
	}()
	got, err := io.ReadAll(c)
	d.must(errors.Join(err, <-done))
	if !bytes.Equal(got, want) {
		d.Fatalf("%d of %d bytes came back", len(got), n)
	}
}

func (d *duo) fromStack(fast bool) *sock.Conn {
	d.Helper()
	dialer := sock.Dialer{Stack: d.st, FastOpen: fast}
	c, err := dialer.DialAddr(d.Context(), netip.MustParseAddrPort(duoKernel+":7"))
	d.must(err)
	return c
}

func (d *duo) fromKernel(opt func(fd int) error) (c net.Conn) {
	d.Helper()
	dialer := net.Dialer{Timeout: 10 * time.Second, Control: sockopt(opt)}
	d.must(d.kernel.Do(func() (err error) {
		c, err = dialer.DialContext(d.Context(), "tcp4", duoStack+":7")
		return err
	}))
	return c
}

func (d *duo) stats() tcp.Stats { return d.st.Stats()[0].TCP }

// TestKernelFastOpen: RFC 7413 with the kernel as server and as client. The first connection asks for a cookie, later ones send data in
// the SYN.
func TestKernelFastOpen(t *testing.T) {
	d := newDuo(t, tcp.Config{FastOpenQueue: 16}, "net.ipv4.tcp_fastopen", "3")
	d.kernelServer(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN, 16) })
	for range 3 {
		d.echo(d.fromStack(true), 5000)
	}
	if s := d.stats(); s.FastOpenActive != 2 || s.FastOpenActiveFails != 0 {
		t.Errorf("the stack as client: %d taken, %d not", s.FastOpenActive, s.FastOpenActiveFails)
	}
	if n, req := d.count("TcpExtTCPFastOpenPassive"), d.count("TcpExtTCPFastOpenCookieReqd"); n != 2 || req != 1 {
		t.Errorf("the kernel as server: %d connections by their SYN, %d cookies asked for", n, req)
	}
	d.stackServer()
	for range 3 {
		d.echo(d.fromKernel(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1) }), 5000)
	}
	if s := d.stats(); s.FastOpenPassive != 2 || s.FastOpenCookies != 1 || s.FastOpenPassiveFails != 0 {
		t.Errorf("the stack as server: %d connections by their SYN, %d cookies asked for, %d bad", s.FastOpenPassive, s.FastOpenCookies, s.FastOpenPassiveFails)
	}
	if n, fails := d.count("TcpExtTCPFastOpenActive"), d.count("TcpExtTCPFastOpenActiveFail"); n != 2 || fails != 0 {
		t.Errorf("the kernel as client: %d taken, %d not", n, fails)
	}
}

// TestKernelSynCookies: both ends answer SYNs with cookies, and the other does not notice.
func TestKernelSynCookies(t *testing.T) {
	d := newDuo(t, tcp.Config{SynCookies: tcp.CookiesAlways}, "net.ipv4.tcp_syncookies", "2")
	d.kernelServer(nil)
	d.stackServer()
	for range 3 {
		d.echo(d.fromKernel(nil), 500_000)
		d.echo(d.fromStack(false), 500_000)
	}
	if s := d.stats(); s.SyncookiesRecv != 3 || s.SyncookiesFailed != 0 {
		t.Errorf("our cookies: %d good, %d bad", s.SyncookiesRecv, s.SyncookiesFailed)
	}
	if n := d.count("TcpExtSyncookiesRecv"); n != 3 {
		t.Errorf("the kernel's cookies: %d came back", n)
	}
}

// TestKernelECN: classic ECN with the kernel in both roles, and AccECN that falls back to it (RFC 9768, 3.1.2), with marks on the way.
func TestKernelECN(t *testing.T) {
	for _, m := range []tcp.ECN{tcp.ECNOn, tcp.ECNAccurate} {
		t.Run(fmt.Sprint("mode ", m), func(t *testing.T) {
			d := newDuo(t, tcp.Config{ECN: m}, "net.ipv4.tcp_ecn", "1")
			d.kernelServer(nil)
			d.stackServer()
			d.echo(d.fromStack(false), 2_000_000)
			d.echo(d.fromKernel(nil), 2_000_000)
			s := d.stats()
			if s.EcnOpens != 2 || s.AccEcnOpens != 0 || s.EcnFallbacks != 0 {
				t.Errorf("%d connections with ECN, %d with AccECN, %d fallbacks", s.EcnOpens, s.AccEcnOpens, s.EcnFallbacks)
			}
			out, in := d.marks.Counters().TxMarked, d.marks.Counters().RxMarked
			if n := d.count("IpExtInECT0Pkts"); n < 1000 || d.count("IpExtInCEPkts") != int(out) {
				t.Errorf("the kernel got %d packets as ECT(0), and %d of %d marks", n, d.count("IpExtInCEPkts"), out)
			}
			// A classic receiver echoes on many segments; a mark on what was sent again, or on what the window cannot hold, is none.
			if n := d.count("TcpExtTCPDeliveredCE"); in < 10 || s.CEIn < in*9/10 || s.CEIn > in || n == 0 {
				t.Errorf("%d of %d marks were seen; the kernel was told of %d segments", s.CEIn, in, n)
			}
			if s.EcnReductions == 0 || s.EcnReductions > out || s.ECEIn < s.EcnReductions {
				t.Errorf("%d reductions, %d echoes, for %d marks", s.EcnReductions, s.ECEIn, out)
			}
		})
	}
}

// TestKernelAccECN: AccECN on both ends, where the kernel has it: net.ipv4.tcp_ecn of Linux 6.18 ends at 2.
func TestKernelAccECN(t *testing.T) {
	d := newDuo(t, tcp.Config{ECN: tcp.ECNAccurate}, "net.ipv4.tcp_ecn", "3")
	d.kernelServer(nil)
	d.stackServer()
	d.echo(d.fromStack(false), 2_000_000)
	d.echo(d.fromKernel(nil), 2_000_000)
	s := d.stats()
	if s.AccEcnOpens != 2 {
		t.Errorf("%d connections with AccECN", s.AccEcnOpens)
	}
	if n := d.count("TcpExtTCPDeliveredCE"); s.CEIn == 0 || uint64(n) != s.CEIn {
		t.Errorf("%d marks came, the kernel was told of %d", s.CEIn, n)
	}
}
