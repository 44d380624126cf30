package tcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// tooBig is a router's word that the segment at sq was too large for a link of this MTU.
func tooBig(f *tcptest.Flow, sq uint32, mtu int) {
	f.ICMP(wire.ICMPUnreachable, wire.ICMPFragNeeded, uint32(mtu), sq, 1500)
}

// both runs a test with the stack as server and as client. The connections have no options but MSS 1460, and the peer's window is 65535.
func both(t *testing.T, cfg tcp.Config, test func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow)) {
	t.Run("server", func(t *testing.T) {
		p, f := established(t, cfg, "mss 1460,sackOK", 65535)
		test(t, p, f)
	})
	t.Run("client", func(t *testing.T) {
		p := newPeer(t, cfg)
		f := p.Connect()
		f.Expect("S 0:0(0)")
		f.Send("S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK>")
		f.Expect(". 1:1(0) ack 1")
		test(t, p, f)
	})
}

// RFC 1191, 3 and 6: the first word about the path counts at once: what is in flight goes again in pieces, without a cut of the
// congestion window, and later segments are smaller. Ten minutes later (6.3) the full size is tried again.
func TestPathMTU(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(4000)
		f.Expect(". 1:1461(1460) ack 1")
		f.Expect(". 1461:2921(1460) ack 1")
		f.Expect("P. 2921:4001(1080) ack 1") // small enough
		cwnd := f.Info().Cwnd
		tooBig(f, 1, 1400)
		f.Expect(". 1:1361(1360) ack 1")
		f.Expect(". 1361:2721(1360) ack 1")
		f.Expect("P. 2721:2921(200) ack 1")
		if i := f.Info(); i.MSS != 1360 || i.PMTU != 1400 || i.Cwnd != cwnd || i.CAState != "open" {
			t.Errorf("MSS %d, PMTU %d, cwnd %d (was %d), %s", i.MSS, i.PMTU, i.Cwnd, cwnd, i.CAState)
		}
		f.Send(". 1:1(0) ack 4001 win 65535")
		f.Write(1361)
		f.Expect(". 4001:5361(1360) ack 1")
		f.Expect("P. 5361:5362(1) ack 1")
		f.Send(". 1:1(0) ack 5362 win 65535")
		p.Quiet(11 * time.Minute)
		f.Write(1460)
		f.Expect("P. 5362:6822(1460) ack 1")
		f.Send(". 1:1(0) ack 6822 win 65535")
	})
}

// Other connections of the worker to the same destination begin with what was learned (RFC 1191, 6.1), until it expires.
func TestPathMTUIsShared(t *testing.T) {
	p := newPeer(t, tcp.Config{})
	l := p.Listen(10)
	f := p.Passive(l, 5000, "mss 1460", 65535)
	f.Write(1460)
	f.Expect("P. 1:1461(1460) ack 1")
	tooBig(f, 1, 1000)
	f.Expect(". 1:961(960) ack 1")
	f.Expect("P. 961:1461(500) ack 1")
	f.Send(". 1:1(0) ack 1461")
	g := p.Passive(l, 5001, "mss 1460", 65535)
	if i := g.Info(); i.MSS != 960 || i.AdvMSS != 1460 || i.Cwnd != 9600 {
		t.Errorf("MSS %d, announced %d, cwnd %d", i.MSS, i.AdvMSS, i.Cwnd)
	}
	p.Quiet(10 * time.Minute)
	h := p.Passive(l, 5002, "mss 1460", 65535)
	if i := h.Info(); i.MSS != 1460 {
		t.Errorf("MSS %d after 10 minutes", i.MSS)
	}
	g.Write(1460)
	g.Expect("P. 1:1461(1460) ack 1")
	g.Send(". 1:1(0) ack 1461")
}

// RFC 5927, 4.1: a message that does not quote what is in flight is not for us. One that says nothing new changes nothing, none goes below
// the least MTU (Linux's 552), and a router that does not know its own is taken to mean the next plateau (RFC 1191, 7).
func TestPathMTUChecks(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		want := func(mss uint32) {
			t.Helper()
			if i := f.Info(); i.MSS != mss {
				t.Errorf("MSS %d, want %d", i.MSS, mss)
			}
		}
		f.Write(1460)
		f.Expect("P. 1:1461(1460) ack 1")
		tooBig(f, 0, 1000)
		tooBig(f, 1461, 1000)
		tooBig(f, 1<<31, 1000)
		tooBig(f, 1, 1500)
		tooBig(f, 1, 9000)
		want(1460)
		tooBig(f, 1, 0)
		want(1452)
		f.Expect(". 1:1453(1452) ack 1")
		f.Expect("P. 1453:1461(8) ack 1")
		tooBig(f, 1, 68)
		want(512)
		f.Expect(". 1:513(512) ack 1")
		f.Expect(". 513:1025(512) ack 1")
		f.Expect("P. 1025:1461(436) ack 1")
		f.Send(". 1:1(0) ack 1461")
		if s := p.Stats().TCP; s.TooBigs != 4 || s.TooBigsIgnored != 2 || s.PathShrinks != 2 {
			t.Errorf("%d messages, %d ignored, %d times smaller", s.TooBigs, s.TooBigsIgnored, s.PathShrinks)
		}
	})
}

// RFC 5927, 7.2: after segments of full size have arrived, a forged message does nothing while data is acknowledged; a true one counts when
// the segment that it quotes has timed out.
func TestPathMTUWaitsForTimeout(t *testing.T) {
	both(t, tcp.Config{}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(1460)
		f.Expect("P. 1:1461(1460) ack 1")
		p.Idle(10 * ms)
		f.Send(". 1:1(0) ack 1461 win 65535")
		f.Write(2920)
		f.Expect(". 1461:2921(1460) ack 1")
		f.Expect("P. 2921:4381(1460) ack 1")
		tooBig(f, 1461, 600)
		p.Done()
		f.Send(". 1:1(0) ack 4381 win 65535")
		if s := p.Stats().TCP; s.TooBigsIgnored != 1 || f.Info().MSS != 1460 {
			t.Errorf("%d ignored, MSS %d", s.TooBigsIgnored, f.Info().MSS)
		}
		f.Write(1460)
		f.Expect("P. 4381:5841(1460) ack 1")
		tooBig(f, 4381, 600)
		f.ExpectAfter(205*ms, 10*ms, "P. 4381:5841(1460) ack 1") // a tail-loss probe
		if i := f.Info(); i.MSS != 1460 {
			t.Errorf("MSS %d before the timeout", i.MSS)
		}
		p.Until(time.Second, func() bool { return f.Info().MSS != 1460 })
		if i := f.Info(); i.MSS != 560 {
			t.Errorf("MSS %d", i.MSS)
		}
		f.Expect(". 4381:4941(560) ack 1") // after a timeout the window is one segment
		f.Send(". 1:1(0) ack 4941 win 65535")
		f.Expect(". 4941:5501(560) ack 1")
		f.Expect("P. 5501:5841(340) ack 1")
		f.Send(". 1:1(0) ack 5841 win 65535")
	})
}

// transfer lets the application write all it can, and the peer acknowledge segments of up to mtu bytes, in order, with SACK blocks
// for what lies behind a gap. It stops after n bytes and returns the largest segment that arrived.
func transfer(p *tcptest.Peer, f *tcptest.Flow, start, n, mss int) (largest int) {
	p.T.Helper()
	wrote, got := 0, start
	type block struct{ lo, hi int }
	var have []block
	for round := 0; got < start+n; round++ {
		if round > 20*n/1000+100 {
			p.T.Fatalf("%d of %d bytes", got-start, n)
		}
		for wrote < n {
			k, err := f.Conn.TryWrite(tcptest.Bytes(uint64(start-1+wrote), min(n-wrote, 10_000)))
			if wrote += k; err != nil || k == 0 {
				break
			}
		}
		p.Idle(10 * ms)
		ack := false
		for _, fr := range p.Take() {
			seg, _ := p.Parse(fr.Data)
			lo, k := int(seg.Seq-f.IRS), len(seg.Payload)
			if ack = true; k > mss || k == 0 {
				continue
			}
			largest = max(largest, k)
			have = append(have, block{lo, lo + k})
		}
		for moved := true; moved; {
			moved = false
			for _, b := range have {
				if b.lo <= got && b.hi > got {
					got, moved = b.hi, true
				}
			}
		}
		if !ack {
			continue
		}
		sack, last := "", block{}
		for _, b := range have {
			if b.lo > got && b.hi > last.hi {
				if b.lo == last.hi {
					last.hi = b.hi
				} else if last.hi == 0 {
					last = b
				}
			}
		}
		if last.hi > 0 {
			sack = fmt.Sprintf(" <sack %d:%d>", last.lo, last.hi)
		}
		f.Send(fmt.Sprintf(". 1:1(0) ack %d win 65535%s", got, sack))
	}
	p.Idle(time.Second)
	p.Take()
	return largest
}

// RFC 4821, 7.7: when large segments vanish without a word, timeouts make them small, and then probes find the largest that arrives; their
// loss is no congestion (7.6.2).
func TestBlackHole(t *testing.T) {
	both(t, tcp.Config{NoDelay: true}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		largest := transfer(p, f, 1, 400_000, 1300)
		i, s := f.Info(), p.Stats().TCP
		if largest > 1300 || largest < 1300-8 || i.MSS != uint32(largest) {
			t.Errorf("largest segment %d, MSS %d, the path takes 1300", largest, i.MSS)
		}
		if s.BlackHoles != 1 || s.PathProbesAcked < 2 || s.PathProbesLost < 2 || s.PathProbes != s.PathProbesAcked+s.PathProbesLost {
			t.Errorf("%d black holes, %d probes, %d arrived, %d lost", s.BlackHoles, s.PathProbes, s.PathProbesAcked, s.PathProbesLost)
		}
		if s.Recoveries != 0 {
			t.Errorf("%d recoveries: the loss of a probe counted as congestion", s.Recoveries)
		}
	})
}

// With ProbeAlways segments begin small and grow to what the path takes; ten minutes later larger ones are tried again.
func TestProbeAlways(t *testing.T) {
	both(t, tcp.Config{NoDelay: true, PathProbing: tcp.ProbeAlways}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		if i := f.Info(); i.MSS != 1024 || i.PMTU != 1064 {
			t.Fatalf("MSS %d, PMTU %d at first", i.MSS, i.PMTU)
		}
		if n := transfer(p, f, 1, 600_000, 1200); n < 1192 || n > 1200 {
			t.Errorf("largest segment %d, the path takes 1200", n)
		}
		if s := p.Stats().TCP; s.Recoveries != 0 || s.RTOs != 0 || s.BlackHoles != 0 {
			t.Errorf("%d recoveries, %d timeouts, %d black holes", s.Recoveries, s.RTOs, s.BlackHoles)
		}
		p.Idle(10 * time.Minute)
		p.Take()
		if n := transfer(p, f, 600_001, 600_000, 1460); n < 1452 {
			t.Errorf("largest segment %d after ten minutes, the path takes 1460", n)
		}
	})
}

// With ProbeNever timeouts do not change the size.
func TestProbeNever(t *testing.T) {
	both(t, tcp.Config{PathProbing: tcp.ProbeNever, RetransTimeout: 10 * time.Second}, func(t *testing.T, p *tcptest.Peer, f *tcptest.Flow) {
		f.Write(5000)
		p.Idle(5 * time.Second)
		for _, fr := range p.Take() {
			if seg, _ := p.Parse(fr.Data); len(seg.Payload) != 1460 && len(seg.Payload) != 620 {
				t.Errorf("a segment of %d bytes", len(seg.Payload))
			}
		}
		f.Send("R 1:1(0)")
	})
}

// Messages are taken up at a limited rate, whoever sends them (RFC 8201, 5.2).
func TestPathMTURate(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1460", 65535)
	f.Write(1460)
	f.Expect("P. 1:1461(1460) ack 1")
	p.Idle(10 * ms)
	f.Send(". 1:1(0) ack 1461 win 65535")
	f.Write(1460)
	f.Expect("P. 1461:2921(1460) ack 1")
	for range 1500 {
		tooBig(f, 1461, 600)
	}
	if s := p.Stats().TCP; s.TooBigs != 1500 || s.TooBigsIgnored != 500 {
		t.Errorf("%d messages, %d ignored", s.TooBigs, s.TooBigsIgnored)
	}
	f.Send(". 1:1(0) ack 2921 win 65535")
}

// Jumbo frames: segments are as large as both ends say, and shrink to what the path takes.
func TestJumbo(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{MTU: 9000}})
	f := p.Passive(p.Listen(1), 5000, "mss 8960", 65535)
	f.Write(17_920)
	f.Expect(". 1:8961(8960) ack 1")
	f.Expect("P. 8961:17921(8960) ack 1")
	tooBig(f, 1, 1500)
	for n := 1; n < 17_921; { // each of what left by itself ends with a small one
		k, fl := min(1460, (n+8959)/8960*8960+1-n), "."
		if k < 1460 {
			fl = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(%d) ack 1", fl, n, n+k, k))
		n += k
	}
	f.Send(". 1:1(0) ack 17921 win 65535")
}

// RFC 8201, 4: a link of IPv6 takes 1280 bytes at least; a message that says less changes nothing.
func TestPathMTU6(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{IPv6: true})
	f := p.Passive(p.Listen(1), 5000, "mss 1440", 65535)
	f.Write(1440)
	f.Expect("P. 1:1441(1440) ack 1")
	f.ICMP(wire.ICMP6PacketTooBig, 0, 1279, 1, 1500)
	f.ICMP(wire.ICMP6PacketTooBig, 0, 1280, 0, 1500) // not in flight
	if i := f.Info(); i.MSS != 1440 || i.PMTU != 1500 {
		t.Errorf("MSS %d, PMTU %d", i.MSS, i.PMTU)
	}
	f.ICMP(wire.ICMP6PacketTooBig, 0, 1280, 1, 1500)
	f.Expect(". 1:1221(1220) ack 1")
	f.Expect("P. 1221:1441(220) ack 1")
	if i := f.Info(); i.MSS != 1220 || i.PMTU != 1280 {
		t.Errorf("MSS %d, PMTU %d", i.MSS, i.PMTU)
	}
	f.Send(". 1:1(0) ack 1441")
}
