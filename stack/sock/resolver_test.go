package sock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// nameServer answers for test names over UDP and TCP.
type nameServer struct {
	udp, tcp atomic.Int32 // questions
}

// answer answers a question; over UDP what is longer than 512 bytes is cut (RFC 1035, 4.2.1).
func (s *nameServer) answer(q []byte, limit int) []byte {
	var m dnsmessage.Message
	if m.Unpack(q) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Header.Response, m.Header.RecursionAvailable, m.Additionals = true, true, nil
	name := m.Questions[0].Name
	host := strings.TrimSuffix(name.String(), ".test.")
	add := func(last byte) {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 60}, Body: &dnsmessage.AResource{A: [4]byte{10, 0, 0, last}},
		})
	}
	switch {
	case m.Questions[0].Type != dnsmessage.TypeA && (host == "one" || host == "many"): // the name is there, this type is not
	case host == "one":
		add(2)
	case host == "many":
		for i := range 200 {
			add(byte(i + 1))
		}
	default:
		m.Header.RCode = dnsmessage.RCodeNameError
	}
	b, err := m.Pack()
	if err == nil && len(b) > limit {
		m.Answers, m.Header.Truncated = nil, true
		b, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return b
}

func (s *nameServer) serveUDP(c net.PacketConn) {
	buf := make([]byte, 2000)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		s.udp.Add(1)
		_, _ = c.WriteTo(s.answer(buf[:n], 512), from)
	}
}

func (s *nameServer) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var n [2]byte
			for {
				if _, err := io.ReadFull(c, n[:]); err != nil {
					return
				}
				q := make([]byte, binary.BigEndian.Uint16(n[:]))
				if _, err := io.ReadFull(c, q); err != nil {
					return
				}
				s.tcp.Add(1)
				a := s.answer(q, 65535)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}
		}()
	}
}

// Names are looked up over the stack; an answer that is cut is asked for again by TCP; a server that does not answer is passed over; a
// dialer takes names.
func TestResolver(t *testing.T) {
	sa, sb := pair(t, stack.Config{Workers: make([]stack.WorkerConfig, 2)})
	s := &nameServer{}
	pc, err := sock.ListenPacket(sb, "udp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	ln, err := sock.Listen(sb, "tcp", ":53")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go s.serveUDP(pc)
	go s.serveTCP(ln)
	d := sock.Dialer{Stack: sa}
	r := sock.NewResolver(d, netip.MustParseAddrPort("10.0.0.2:53"))
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	ips, err := r.LookupNetIP(ctx, "ip4", "one.test.")
	if err != nil || len(ips) != 1 || ips[0] != netip.MustParseAddr("10.0.0.2") || s.tcp.Load() != 0 || s.udp.Load() == 0 {
		t.Errorf("one: %v, %v after %d questions by UDP and %d by TCP", ips, err, s.udp.Load(), s.tcp.Load())
	}
	if ips, err = r.LookupNetIP(ctx, "ip4", "many.test."); err != nil || len(ips) != 200 || s.tcp.Load() == 0 {
		t.Errorf("many: %d addresses, %v after %d questions by TCP", len(ips), err, s.tcp.Load())
	}
	var de *net.DNSError
	if _, err := r.LookupNetIP(ctx, "ip4", "none.test."); err == nil {
		t.Error("a name that is not there was found")
	} else if de, _ = err.(*net.DNSError); de == nil || !de.IsNotFound {
		t.Errorf("none: %v", err)
	}
	// A port where nobody answers is refused at once, and the next server asked.
	r = sock.NewResolver(d, netip.MustParseAddrPort("10.0.0.2:54"), netip.MustParseAddrPort("10.0.0.2:53"))
	start := time.Now()
	if ips, err := r.LookupNetIP(ctx, "ip4", "one.test."); err != nil || len(ips) != 1 || time.Since(start) > 4*time.Second {
		t.Errorf("past a dead server: %v, %v after %v", ips, err, time.Since(start))
	}
	r = sock.NewResolver(d, netip.MustParseAddrPort("10.0.0.2:53"))
	echo, err := sock.Listen(sb, "tcp", ":7")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		c, err := echo.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	d.Resolver = r
	c, err := d.DialContext(ctx, "tcp4", "one.test.:7")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	msg := []byte("by name")
	got := make([]byte, len(msg))
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, msg) {
		t.Errorf("%q, %v", got, err)
	}
	// Without servers those are asked that the stack has learned (RFC 8106, 5.3.1), as long as it has them.
	learned := sock.NewResolver(d)
	host := (&sock.Host{Stacks: []*stack.Stack{sb, sa}}).Resolver()
	lookup := func(found bool) {
		t.Helper()
		for _, r := range []*net.Resolver{learned, host} {
			if ips, err := r.LookupNetIP(ctx, "ip4", "one.test."); (err == nil) != found || len(ips) == 0 == found {
				t.Errorf("from a server that was learned: %v, %v", ips, err)
			}
		}
	}
	lookup(false)
	lease := &stack.Binding{Addr: netip.MustParsePrefix("10.0.0.77/24"), DNS: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	if err := sa.Readdress(nil, lease); err != nil {
		t.Fatal(err)
	}
	lookup(true)
	if err := sa.Readdress(lease, nil); err != nil {
		t.Fatal(err)
	}
	lookup(false)
}
