package tcp

import (
	"testing"

	"pgregory.net/rapid"
)

// TestPRRExample is the example of RFC 9937, section 8: a window of 20 segments, reduced to 10, one of which is lost. Two were sent by
// limited transmit. The third duplicate brings the fast retransmission; then one segment leaves for every second acknowledgement.
func TestPRRExample(t *testing.T) {
	const mss = 1000
	const ssthresh = 10 * mss
	var p prr
	// 22 outstanding, 3 SACKed of which 1 by this acknowledgement, 1 lost: RecoverFS is 22-3+1.
	p.enter(20 * mss)
	inFlight := uint32(18 * mss)
	sent := 0
	for ack := range 19 {
		if ack > 0 {
			inFlight -= mss
		}
		p.ack(mss, false)
		cwnd := p.window(inFlight, ssthresh, mss)
		for inFlight+mss <= cwnd {
			inFlight += mss
			p.out += mss
			sent++
		}
		if want := max(1, (ack+1)/2); inFlight > ssthresh && sent != want {
			t.Fatalf("%d sent after %d acknowledgements, want %d", sent, ack+1, want)
		}
	}
	if sent != 10 || inFlight != 10*mss {
		t.Errorf("sent %d, %d in flight at the end, want 10 and %d", sent, inFlight, 10*mss)
	}
}

func TestPRRArithmetic(t *testing.T) {
	const mss = 1000
	for _, c := range []struct {
		name                     string
		recoverFS                uint32
		delivered, out           uint64
		newly                    uint32
		safe                     bool
		inFlight, ssthresh, cwnd uint32
	}{
		{"proportional, rounded up", 3000, 1001, 1, 2, false, 5000, 1000, 5334},
		{"proportional", 20000, 5000, 2000, 1000, false, 15000, 10000, 16000},
		{"the first retransmission is forced", 20000, 0, 0, 0, false, 15000, 10000, 16000},
		{"... and whole", 20000, 0, 0, 1000, false, 15000, 10000, 16000},
		{"never less than nothing", 20000, 1000, 9000, 1000, false, 15000, 10000, 15000},
		{"conservative bound", 20000, 9000, 9000, 1000, false, 5000, 10000, 6000},
		{"slow-start bound", 20000, 9000, 9000, 1000, true, 5000, 10000, 7000},
		{"bound by ssthresh", 20000, 15000, 1000, 1000, true, 9500, 10000, 10000},
		{"what was delivered in excess", 20000, 9000, 5000, 1000, false, 1000, 10000, 6000},
	} {
		p := prr{on: true, recoverFS: c.recoverFS, delivered: c.delivered, out: c.out}
		p.ack(c.newly, c.safe)
		if got := p.window(c.inFlight, c.ssthresh, mss); got != c.cwnd {
			t.Errorf("%s: window %d, want %d", c.name, got, c.cwnd)
		}
		if p.pending || p.newly != 0 {
			t.Errorf("%s: deliveries are still pending", c.name)
		}
	}
}

// A batch with several acknowledgements is safe only if each was.
func TestPRRSafe(t *testing.T) {
	for _, c := range []struct {
		acks []bool
		safe bool
	}{{[]bool{true}, true}, {[]bool{true, true}, true}, {[]bool{true, false}, false}, {[]bool{false, true}, false}} {
		p := prr{on: true, recoverFS: 1}
		for _, s := range c.acks {
			p.ack(1, s)
		}
		if p.safe != c.safe {
			t.Errorf("%v: safe is %v", c.acks, p.safe)
		}
	}
	p := prr{on: true, recoverFS: 1}
	p.ack(0, true)
	if p.pending {
		t.Error("an acknowledgement that delivers nothing counts")
	}
}

// TestPRRBounds: whatever is delivered, a reduction neither bursts above what was delivered and a segment, nor ends above ssthresh.
func TestPRRBounds(t *testing.T) {
	const mss = 1000
	rapid.Check(t, func(t *rapid.T) {
		flight := rapid.Uint32Range(3, 100).Draw(t, "flight") * mss
		ssthresh := rapid.Uint32Range(2, max(flight/mss/2, 2)).Draw(t, "ssthresh") * mss
		var p prr
		p.enter(flight)
		inFlight := flight
		for delivered := uint32(0); delivered < flight; {
			n := min(rapid.Uint32Range(1, 5).Draw(t, "n")*mss, flight-delivered, inFlight)
			if n == 0 {
				return
			}
			delivered += n
			inFlight -= n
			p.ack(n, rapid.Bool().Draw(t, "safe"))
			cwnd := p.window(inFlight, ssthresh, mss)
			if cwnd < inFlight {
				t.Fatalf("window %d below what is in flight, %d", cwnd, inFlight)
			}
			if burst := cwnd - inFlight; inFlight <= ssthresh && cwnd > max(ssthresh, inFlight+mss) || burst > max(n, uint32(p.delivered-p.out))+mss {
				t.Fatalf("window %d with %d in flight, ssthresh %d, %d delivered", cwnd, inFlight, ssthresh, n)
			}
			for inFlight+mss <= cwnd {
				inFlight += mss
				p.out += mss
			}
		}
		if inFlight > ssthresh+mss {
			t.Fatalf("%d in flight at the end, ssthresh is %d", inFlight, ssthresh)
		}
	})
}
