package tcp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// Nagle's algorithm with Minshall's rule: a small segment waits while an earlier small one is unacknowledged, not behind full ones.
func TestNagle(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 30000)
	f.Write(10)
	f.Expect("P. 1:11(10) ack 1")
	f.Write(10)
	f.Write(10)
	p.Done()
	f.Send(". 1:1(0) ack 11")
	f.Expect("P. 11:31(20) ack 1")
	f.Write(990) // does not fill a segment
	p.Done()
	f.Write(10) // fills it
	f.Expect("P. 31:1031(1000) ack 1")
	f.Send(". 1:1(0) ack 1031")
	f.Write(2500)
	f.Expect(". 1031:2031(1000) ack 1")
	f.Expect(". 2031:3031(1000) ack 1")
	f.Expect("P. 3031:3531(500) ack 1") // behind full ones
	f.Write(500)
	p.Done()
	f.Send(". 1:1(0) ack 3031")
	p.Done()
	f.Send(". 1:1(0) ack 3531")
	f.Expect("P. 3531:4031(500) ack 1")
}

func TestNoDelay(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 30000)
	f.Conn.SetOption(tcp.OptNoDelay, true)
	for i := range 5 {
		f.Write(10)
		f.Expect(fmt.Sprintf("P. %d:%d(10) ack 1", 1+10*i, 11+10*i))
	}
	f.Conn.SetOption(tcp.OptNoDelay, false)
	f.Write(10)
	p.Done()
	f.Conn.SetOption(tcp.OptNoDelay, true) // sends what waits
	f.Expect("P. 51:61(10) ack 1")
}

// A corked connection sends full segments only; what is left leaves when the cork is drawn, after 200 ms (RFC 9293, MUST-60), or with the
// FIN.
func TestCork(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 30000)
	f.Conn.SetOption(tcp.OptCork|tcp.OptNoDelay, true)
	f.Write(1500)
	f.Expect(". 1:1001(1000) ack 1")
	f.Send(". 1:1(0) ack 1001")
	f.Conn.SetOption(tcp.OptCork, false)
	f.Expect("P. 1001:1501(500) ack 1")
	f.Send(". 1:1(0) ack 1501")
	f.Conn.SetOption(tcp.OptCork, true)
	f.Write(10)
	p.Quiet(100 * ms)
	f.Send("P. 1:11(10) ack 1501") // what the peer sends does not put it off
	f.Expect(". 1501:1501(0) ack 11")
	f.ExpectAfter(100*ms, exact, "P. 1501:1511(10) ack 11")
	f.Send(". 11:11(0) ack 1511")
	f.Write(10)
	f.Conn.SetOption(tcp.OptNoDelay, true) // as tcp(7) has it: what waits leaves, and the cork stays
	f.Expect("P. 1511:1521(10) ack 11")
	f.Send(". 11:11(0) ack 1521")
	f.Write(10)
	p.Quiet(100 * ms)
	f.CloseWrite()
	f.Expect("FP. 1521:1531(10) ack 11")
}

// RFC 9293, 3.7.1: the peer's MSS bounds what is sent; absent it is 536 (MUST-15), and very small ones count as 88.
func TestSendMSS(t *testing.T) {
	for _, c := range []struct {
		opts string
		mss  uint32
	}{
		{"mss 536", 536}, {"mss 1000", 1000}, {"mss 1460", 1460}, {"mss 9000", 1460}, {"mss 65535", 1460}, {"sackOK", 536}, {"mss 0", 88}, {"mss 40", 88},
		{"mss 1000,ts * *", 988}, {"mss 100,ts * *,sackOK", 88},
	} {
		t.Run(c.opts, func(t *testing.T) {
			p := newPeer(t, tcp.Config{})
			l := p.Listen(1)
			f := p.Passive(l, 5000, c.opts, 60000)
			f.Write(int(c.mss) * 3)
			for i := range c.mss {
				if i == 3 {
					break
				}
				flags := "."
				if i == 2 {
					flags = "P."
				}
				f.Expect(fmt.Sprintf("%s %d:%d(%d) ack 1", flags, 1+i*c.mss, 1+(i+1)*c.mss, c.mss))
			}
		})
	}
}

// What is announced follows from the interface's MTU, options not counted (RFC 9293, 3.7.1; RFC 6691).
func TestAnnouncedMSS(t *testing.T) {
	for _, mtu := range []int{576, 1500, 9000} {
		p := tcptest.New(t, tcptest.Config{Link: memlink.Config{MTU: mtu}})
		f := p.Connect()
		f.Expect(fmt.Sprintf("S 0:0(0) <mss %d,sackOK,ts * *,ws 14>", mtu-40))
		f.Send(fmt.Sprintf("S. 0:0(0) ack 1 <mss %d,ts * *>", mtu-40))
		f.Expect(". 1:1(0) ack 1")
		f.Write(3 * mtu)
		n := mtu - 40 - 12
		f.Expect(fmt.Sprintf(". 1:%d(%d) ack 1", 1+n, n))
		p.Take()
	}
	p := newPeer(t, tcp.Config{MTU: 1000}) // less than the interface's
	f := p.Connect()
	f.Expect("S 0:0(0) <mss 960,sackOK,ts * *,ws 14>")
}

// RFC 9293, 3.7.1: with blocks and timestamps no frame exceeds the MTU. (Peer.Parse checks each.) Segments just below the MSS that
// have room for the blocks carry them.
func TestSACKFitsMTU(t *testing.T) {
	for n := 1380; n <= 1448; n += 4 {
		p := newPeer(t, tcp.Config{NoDelay: true})
		l := p.Listen(1)
		f := p.Passive(l, 5000, "mss 1460,sackOK,ts * *", 60000)
		var early []string
		for i := range 4 {
			early = append(early, fmt.Sprintf("P. %d:%d(100) ack 1 <ts 9999 0>", 101+200*i, 201+200*i))
		}
		f.SendBatch(early...)
		p.Take()
		f.Write(n)
		blocks, data := 0, 0
		for _, fr := range p.Take() {
			seg, o := p.Parse(fr.Data)
			data += len(seg.Payload)
			if o.NSack > 0 {
				blocks++
			}
		}
		if data != n || blocks == 0 && n <= 1448-36 {
			t.Errorf("%d bytes sent as %d, with blocks on %d segments", n, data, blocks)
		}
	}
}

// The first window is ten segments (RFC 6928), and more follows as it is acknowledged.
func TestInitialWindow(t *testing.T) {
	for _, iw := range []int{0, 3} {
		p, f := established(t, tcp.Config{InitialWindow: iw}, "mss 1000", 60000)
		f.Write(40_000)
		n := len(p.Take())
		if want := max(iw, 0); n != want && !(iw == 0 && n == 10) {
			t.Errorf("initial window of %d: %d segments", iw, n)
		}
		f.Send(". 1:1(0) ack 2001")
		if more := len(p.Take()); more != 4 { // slow start: two for each
			t.Errorf("%d segments after two were acknowledged, want 4", more)
		}
	}
}

// Jumbo segments whose bytes lie in many pieces: where only small chunks are to be had, small writes make many.
func TestManyPieces(t *testing.T) {
	smallOnly := mem.Backing{
		Map: func(n int) ([]byte, error) {
			if n > 256<<10 {
				return nil, errors.New("no slab for larger chunks")
			}
			return make([]byte, n), nil
		},
		Unmap: mem.Heap.Unmap, Return: mem.Heap.Return,
	}
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{MTU: 9000}, Stack: stack.Config{Arena: mem.NewArenaOn(smallBudget(t, 1<<30), smallOnly)}})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 8960", 60000)
	f.Conn.SetOption(tcp.OptCork, true)
	for written := 0; written < 20000; {
		n, err := f.Conn.TryWrite(tcptest.Bytes(uint64(written), min(1000, 20000-written)))
		if err != nil {
			t.Fatalf("after %d bytes: %v", written, err)
		}
		written += n
	}
	f.Expect(". 1:8961(8960) ack 1")
	f.Expect(". 8961:17921(8960) ack 1") // half of the window is one
	f.Send(". 1:1(0) ack 17921")
	f.CloseWrite()
	f.Expect("FP. 17921:20001(2080) ack 1")
}
