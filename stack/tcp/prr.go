package tcp

import "github.com/fastpath-tcp/fastpath/cong"

// prr is proportional rate reduction (RFC 9937, section 6). It works in bytes.
type prr struct {
	delivered, out uint64
	recoverFS      uint32
	una            uint32 // SND.UNA after the last batch of acknowledgements, also while there is no reduction
	newly          uint32 // delivered since the window was last computed
	on             bool
	safe           bool // all acknowledgements since then advanced SND.UNA and reported no loss
	pending        bool
}

// enter starts a reduction. recoverFS is what is outstanding, less what was SACKed before this batch.
func (p *prr) enter(recoverFS uint32) {
	*p = prr{on: true, recoverFS: max(recoverFS, 1), una: p.una}
}

// acked records what a batch of acknowledgements has delivered and lost; SND.UNA is at una now. It is safe if that has moved, and nothing
// further was lost (safeACK).
func (p *prr) acked(newly, lost, una uint32) {
	safe := una != p.una && lost == 0
	p.una = una
	p.ack(newly, safe)
}

// ack records a batch's deliveries; window is computed when the ssthresh of this batch is known.
func (p *prr) ack(newly uint32, safe bool) {
	if newly == 0 {
		return
	}
	p.safe = safe && (p.safe || !p.pending)
	p.newly += newly
	p.pending = true
}

// window returns the congestion window for the deliveries recorded since the last call.
func (p *prr) window(inFlight, ssthresh, mss uint32) uint32 {
	d := uint64(p.newly)
	p.delivered += d
	var snd uint64
	if inFlight > ssthresh {
		// Proportional rate reduction.
		snd = sub(mulDivCeil(p.delivered, uint64(ssthresh), uint64(p.recoverFS)), p.out)
	} else {
		snd = max(sub(p.delivered, p.out), d)
		if p.safe { // slow-start reduction bound
			snd += uint64(mss)
		}
		snd = min(snd, uint64(ssthresh-inFlight))
	}
	if p.out == 0 { // the fast retransmit is always sent, and only whole segments are
		snd = max(snd, uint64(mss))
	}
	p.newly, p.safe, p.pending = 0, false, false
	return uint32(min(uint64(inFlight)+snd, cong.InfiniteSsthresh))
}

func sub(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}

func mulDivCeil(a, b, c uint64) uint64 {
	q := cong.MulDiv(a, b, c)
	if q*c != a*b {
		q++
	}
	return q
}
