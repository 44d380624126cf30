package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/fault"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// TestAccECN has a kernel that speaks Accurate ECN (RFC 9768; Linux since 7.0, where net.ipv4.tcp_ecn takes 3) and a stack of this process echo
// to each other in both roles, while the link marks one of 50 packets both ways. Both have to agree about what was marked: packets in the
// ACE field, bytes in the option.
func TestAccECN(t *testing.T) {
	need(t)
	needKernel(t, peerKernel)
	// What the guest sends is cut and has its checksums before it reaches the card: marks are of packets, as on a wire.
	m := boot(t, hardware{pairs: 1, peer: true, nic: ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off"})
	m.run("insert failover net_failover virtio_net && ifconfig eth0 %s up && sysctl -w net.ipv4.tcp_ecn=3", serverIP)
	port, err := afpacket.Open(afpacket.Config{Interface: clientIf, NetNSPath: m.client.Path(), Promiscuous: true})
	m.must(err)
	marks := fault.Frames{Mark: 2 * fault.Percent}
	link, err := fault.New(port, fault.Config{Seed: 1, Tx: marks, Rx: marks})
	if err != nil {
		t.Fatal(errors.Join(err, port.Close()))
	}
	st, err := stack.New(stack.Config{Port: link, Addrs: []netip.Prefix{netip.MustParsePrefix(clientIP + "/24")}, TCP: tcp.Config{ECN: tcp.ECNAccurate}})
	if err != nil {
		t.Fatal(errors.Join(err, link.Close()))
	}
	t.Cleanup(func() { m.must(st.Close()) })
	e := &echo{m, st, link}
	m.run("nc -ll -p 7 -e cat >/dev/null 2>&1 &")
	e.judged("the stack as client", e.client)
	e.judged("the stack as server", e.server)
	if s := st.Stats()[0].TCP; s.AccEcnOpens < 2 || s.EcnOpens != 0 || s.EcnFallbacks != 0 {
		t.Errorf("%d connections with AccECN, %d with classic ECN, %d fallbacks", s.AccEcnOpens, s.EcnOpens, s.EcnFallbacks)
	}
	m.halt()
}

// echoSize is how much goes each way.
const echoSize = 2_000_000

// echo is the two ends, and the link between them.
type echo struct {
	*machine
	st   *stack.Stack
	link *fault.Port
}

// judged runs one exchange and compares what the link has marked with what both ends know of it. After a handshake in which a segment was
// lost, or late, Linux leaves the option out: then the counts are guesses, and the exchange is run again.
func (e *echo) judged(role string, run func() tcp.Info) {
	e.Helper()
	for range 5 {
		marks, before := e.link.Counters(), e.kernel()
		i := run()
		now, after := e.link.Counters(), e.kernel()
		since := func(name string) uint64 { return after[name] - before[name] }
		out, in := now.TxMarked-marks.TxMarked, now.RxMarked-marks.RxMarked
		seen, told := since("IpExtInCEPkts"), since("TcpExtTCPDeliveredCE")
		e.Logf("%s: marked %d out, %d in; the stack has seen %d and was told of %d (%d bytes); the kernel has seen %d and was told of %d; %d SYNs repeated",
			role, out, in, i.CEIn, i.CEOut, i.ECNBytesOut[wire.CE], seen, told, since("TcpExtTCPSynRetrans"))
		if since("TcpExtTCPSynRetrans") != 0 {
			continue
		}
		if !i.AccECN || out < 10 || in < 10 {
			e.Errorf("%s: %+v", role, i)
		}
		if seen != out || uint64(i.CEOut) != seen {
			e.Errorf("%s: of %d marks the kernel has seen %d and reported %d", role, out, seen, i.CEOut)
		}
		// What Linux counts is an estimate: at most one turn of the ACE field is to be wrong.
		if uint64(i.CEIn) != in || told > in+8 || told+8 < in {
			e.Errorf("%s: of %d marks the stack has seen %d, and the kernel was told of %d", role, in, i.CEIn, told)
		}
		// It leaves the option out of most acknowledgements that have no mark to report.
		sum := uint64(i.ECNBytesOut[wire.ECT0] + i.ECNBytesOut[wire.ECT1] + i.ECNBytesOut[wire.CE])
		if sum > i.BytesAcked || sum < i.BytesAcked*9/10 || i.ECNBytesOut[wire.ECT1] != 0 {
			e.Errorf("%s: the kernel has reported %v bytes, and acknowledged %d", role, i.ECNBytesOut, i.BytesAcked)
		}
		return
	}
	e.Errorf("%s: each time a SYN was repeated", role)
}

// client is an exchange in which the stack opens the connection.
func (e *echo) client() tcp.Info {
	e.Helper()
	var c *sock.Conn
	e.eventually(func() (err error) { // the guest's server may need its time
		c, err = (&sock.Dialer{Stack: e.st}).DialAddr(e.Context(), netip.MustParseAddrPort(serverIP+":7"))
		return err
	})
	e.must(c.SetDeadline(time.Now().Add(patience)))
	want, sent := bytes.Repeat([]byte("0123456789abcdef"), echoSize/16), make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		sent <- err
	}()
	got := make([]byte, echoSize)
	_, err := io.ReadFull(c, got)
	e.must(errors.Join(err, <-sent))
	if !bytes.Equal(got, want) {
		e.Error("other bytes came back")
	}
	i := e.acknowledged(c)
	e.must(c.Close())
	return i
}

// server is one in which the kernel does.
func (e *echo) server() tcp.Info {
	e.Helper()
	l, err := sock.Listen(e.st, "tcp", ":7")
	e.must(err)
	e.run("rm -f /tmp/end; mkfifo /tmp/end; head -c %d /dev/urandom >/tmp/sent; { cat /tmp/sent; read x </tmp/end; } | nc %s 7 >/tmp/back & client=$!", echoSize, clientIP)
	conn, err := l.Accept()
	e.must(err)
	c := conn.(*sock.Conn)
	e.must(c.SetDeadline(time.Now().Add(patience)))
	_, err = io.CopyN(c, c, echoSize)
	e.must(err)
	i := e.acknowledged(c)
	e.must(errors.Join(c.Close(), l.Close()))
	e.run("echo >/tmp/end; wait $client; cmp /tmp/sent /tmp/back")
	return i
}

// acknowledged waits until the kernel has acknowledged all. Neither end closes before: Linux counts nothing of what comes after its own FIN.
func (e *echo) acknowledged(c *sock.Conn) (i tcp.Info) {
	e.Helper()
	e.eventually(func() (err error) {
		if i, err = c.Info(); err == nil && i.BytesAcked != echoSize {
			err = fmt.Errorf("%d of %d bytes are acknowledged", i.BytesAcked, echoSize)
		}
		return err
	})
	return i
}

// kernel reads the counters of the guest's kernel.
func (m *machine) kernel() map[string]uint64 {
	m.Helper()
	c := map[string]uint64{}
	var names []string
	for line := range strings.Lines(m.run("cat /proc/net/netstat")) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i := 1; i < min(len(names), len(f)); i++ {
			n, err := strconv.ParseUint(f[i], 10, 64)
			m.must(err)
			c[strings.TrimSuffix(names[0], ":")+names[i]] = n
		}
		names = nil
	}
	if len(c) == 0 {
		m.Fatal("the kernel shows no counters")
	}
	return c
}
