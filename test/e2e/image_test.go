package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	stackwire "github.com/fastpath-tcp/fastpath/stack/wire"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// image is what an observer on the path sees of a segment, but for numbers that differ by nature: sequence numbers, timestamps, ports
// and the shift of the window scale, which follows from the largest buffer.
type image struct {
	flags             string
	ttl, tos          byte
	df                bool
	idZero            bool // the IP ID is 0
	options           string
	payload           int
	window            int // of a SYN or SYN-ACK, else 0
	ackZero, urgent   bool
	reservedOrOverlap byte
}

// imageOf reads an IPv4 TCP frame.
func imageOf(t *testing.T, frame []byte) (im image, src netip.AddrPort) {
	t.Helper()
	var p stackwire.Packet
	var s stackwire.TCP
	if d := stackwire.Parse(frame, &p, true); d != stackwire.DropNone {
		t.Fatalf("a frame that is dropped: %v", d)
	}
	if d := stackwire.ParseTCP(&p, &s, true); d != stackwire.DropNone {
		t.Fatalf("a segment that is dropped: %v", d)
	}
	ip := p.L3
	im = image{ttl: ip[8], tos: ip[1], df: ip[6]&0x40 != 0, idZero: binary.BigEndian.Uint16(ip[4:]) == 0, payload: len(s.Payload),
		ackZero: s.Ack == 0, urgent: s.Urgent != 0, reservedOrOverlap: ip[6] & 0x80}
	for i, n := range []string{"F", "S", "R", "P", "A", "U", "E", "C"} {
		if s.Flags&(1<<i) != 0 {
			im.flags += n
		}
	}
	if s.Flags&stackwire.SYN != 0 {
		im.window = int(s.Window)
	}
	im.options = maskOptions(s.Opts)
	return im, netip.AddrPortFrom(p.Src.Netip(), s.SrcPort)
}

// maskOptions writes options byte by byte, with values that differ by nature as "..".
func maskOptions(o []byte) string {
	var b strings.Builder
	for len(o) > 0 {
		n := 1
		if o[0] > 1 && len(o) > 1 {
			n = min(int(o[1]), len(o))
		}
		fmt.Fprintf(&b, "%x", o[:min(n, 2)])
		switch {
		case n > 2 && (o[0] == 8 || o[0] == 3):
			b.WriteString("..")
		case n > 2:
			fmt.Fprintf(&b, "%x", o[2:n])
		}
		b.WriteByte(' ')
		o = o[max(n, 1):]
	}
	return b.String()
}

// talk is the same conversation for everybody: a request of two segments and a half, an answer of one, and the client closes first.
func talk(client, server net.Conn) error {
	request, answer := bytes.Repeat([]byte("q"), 3600), bytes.Repeat([]byte("a"), 700)
	errs := make(chan error, 1)
	go func() {
		errs <- func() error {
			if _, err := io.ReadFull(server, make([]byte, len(request))); err != nil {
				return err
			}
			if _, err := server.Write(answer); err != nil {
				return err
			}
			if _, err := server.Read(make([]byte, 1)); err != io.EOF {
				return fmt.Errorf("read after the client's end: %w", err)
			}
			return server.Close()
		}()
	}()
	if _, err := client.Write(request); err != nil {
		return err
	}
	if _, err := io.ReadFull(client, make([]byte, len(answer))); err != nil {
		return err
	}
	if err := client.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("read after the server's end: %w", err)
	}
	client.Close() //nolint:errcheck // both directions are over
	return <-errs
}

// TestWireImage has the kernel and fastpath say the same to each other in both roles, and compares what each of them sent as client, and
// as server: SYN, SYN-ACK, data, FIN look alike (TTL, DF, IP ID, flags, option kinds, order and padding, first windows, PSH).
func TestWireImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	kernel, ours := newNS(t, "image"), newNS(t, "image")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(kernel.Sysctl("net.ipv4.tcp_ecn", "2"))
	pair, err := netns.Veth(netns.End{NS: kernel, Name: clientIf, Addrs: []netip.Prefix{netip.MustParsePrefix(clientIP + "/24")}},
		netns.End{NS: ours, Name: serverIf}, 1500)
	must(err)
	defer pair.Close() //nolint:errcheck // the namespaces take it with them
	nic, err := afpacket.Open(afpacket.Config{Interface: serverIf, NetNSPath: ours.Path()})
	must(err)
	port := trace.New(nic, stack.Monotonic{}.Now)
	st, err := stack.New(stack.Config{Port: port, Addrs: []netip.Prefix{netip.MustParsePrefix(serverIP + "/24")}})
	must(err)
	defer st.Close() //nolint:errcheck // leaks are other tests' business
	capture, err := port.Start(trace.Options{})
	must(err)

	// The kernel as client, then as server.
	l, err := sock.Listen(st, "tcp", serverIP+":80")
	must(err)
	var kc net.Conn
	must(kernel.Do(func() (err error) {
		kc, err = net.DialTimeout("tcp", serverIP+":80", 10*time.Second)
		return err
	}))
	sc, err := l.Accept()
	must(err)
	must(talk(kc, sc))
	var kl net.Listener
	must(kernel.Do(func() (err error) {
		kl, err = net.Listen("tcp", clientIP+":81")
		return err
	}))
	defer kl.Close() //nolint:errcheck // it only listens
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	oc, err := (&sock.Dialer{Stack: st}).DialContext(ctx, "tcp", clientIP+":81")
	must(err)
	ks, err := kl.Accept()
	must(err)
	must(talk(oc, ks))

	// What each end sent, by role: the first of each kind.
	kinds := map[string]map[string]image{"kernel client": {}, "kernel server": {}, "our client": {}, "our server": {}}
	_, err = capture.Each(func(f trace.Frame) error {
		if binary.BigEndian.Uint16(f.Data[12:]) != stackwire.EtherTypeIPv4 || f.Data[14+9] != stackwire.ProtoTCP {
			return nil
		}
		im, src := imageOf(t, f.Data)
		who := map[bool]string{true: "our ", false: "kernel "}[src.Addr().String() == serverIP]
		role := map[bool]string{true: "server", false: "client"}[src.Port() == 80 || src.Port() == 81]
		kind := im.flags
		if im.payload > 0 {
			kind = fmt.Sprint("data ", im.payload)
		}
		if strings.Contains(im.options, " 05") { // SACK blocks: an answer to what a busy machine had repeated or reordered
			kind += " sack"
		}
		if _, ok := kinds[who+role][kind]; !ok {
			kinds[who+role][kind] = im
		}
		return nil
	})
	must(err)
	for _, c := range []struct {
		role  string
		kinds []string
	}{
		{"client", []string{"S", "A", "data 1448", "data 704", "FA"}},
		{"server", []string{"SA", "A", "data 700", "FA"}},
	} {
		for _, k := range c.kinds {
			theirs, ok1 := kinds["kernel "+c.role][k]
			mine, ok2 := kinds["our "+c.role][k]
			if !ok1 || !ok2 {
				t.Errorf("%s, %s: the kernel sent one: %v, fastpath: %v", c.role, k, ok1, ok2)
				continue
			}
			if mine != theirs {
				t.Errorf("%s, %s:\nkernel   %+v\nfastpath %+v", c.role, k, theirs, mine)
			}
		}
	}
}
