package congtest

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// acknowledge takes in all acknowledgements that arrive now, as one batch.
func (s *Sim) acknowledge() {
	s.markAppLimited()
	prior := s.inFlight
	outstanding := s.next - s.una - s.sacked
	una := s.una
	in := cong.Sample{Kind: cong.KindAck, PriorInFlight: prior}
	s.sampler.begin()
	marked := false
	for s.nextAck() <= s.now {
		t := &s.txs[s.ackAt-s.first]
		s.ackAt++
		s.high = s.ackAt
		s.delivery(t, &in)
		marked = marked || t.mark && t.seq >= s.recover // one reaction per window of data (RFC 3168, 6.1.2)
	}
	for s.una < s.next && s.got[s.una] {
		s.una++
		s.sacked--
	}
	if s.una > una {
		s.backoff = 0
	}
	s.rtoAt = plugins.Never
	if s.next > s.una {
		s.armRTO()
	}
	if s.high > dupThresh {
		in.Lost = s.lose(max(s.high-dupThresh, s.lossAt))
	}
	s.sampler.finish(s.now, s.minRTT, &in)
	s.transition(&in, marked, outstanding*uint64(s.Path.MSS))
	if s.sacked > 0 {
		in.Flags |= cong.FlagSacked
	}
	if s.limited {
		in.Flags |= cong.FlagCwndLimited
	}
	s.lastPrior, s.lastDelivered, s.lastInterval, s.lastFlags = in.PriorDelivered, s.delivered, in.Interval, in.Flags
	s.poll(in)
	s.obey(&in, s.una > una)
	s.forget()
}

// delivery takes in the acknowledgement of one transmission.
func (s *Sim) delivery(t *tx, in *cong.Sample) {
	mss := s.Path.MSS
	if !t.done {
		s.inFlight -= mss
		t.done = true
	}
	if t.mark {
		in.Marked += mss
		s.Stats.Marks++
	}
	if s.got[t.seq] {
		return // the receiver has it already
	}
	s.got[t.seq] = true
	s.sacked++
	in.Acked += mss
	s.sampler.deliver(s.now, mss, &t.snap)
	in.RTT = s.now.Sub(t.snap.sent)
	in.Flags |= cong.FlagRTTValid
	s.rttSample(in.RTT)
}

// transition moves the congestion state; flight is what was outstanding and not SACKed before.
func (s *Sim) transition(in *cong.Sample, marked bool, flight uint64) {
	enter := func(ca uint8) {
		if s.ca < cong.CACWR {
			s.prr.begin(flight)
		}
		s.ca, s.recover = ca, s.next
		in.Flags |= cong.FlagEnter
	}
	if s.ca >= cong.CACWR && s.una >= s.recover {
		s.ca = cong.CAOpen
		in.Flags |= cong.FlagExit
	}
	if s.entered {
		s.entered = false
		in.Flags |= cong.FlagEnter
	}
	switch {
	case in.Lost > 0 && s.ca < cong.CARecovery:
		enter(cong.CARecovery)
		s.Stats.Recoveries++
	case marked && s.ca < cong.CACWR:
		enter(cong.CACWR)
		in.Flags |= cong.FlagECE
	case s.ca == cong.CAOpen && s.sacked > 0:
		s.ca = cong.CADisorder
	case s.ca == cong.CADisorder && s.sacked == 0:
		s.ca = cong.CAOpen
	}
}

// obey carries out the answer.
func (s *Sim) obey(in *cong.Sample, advanced bool) {
	if s.dec.Flags&cong.MarkAppLimited != 0 {
		s.appLimited = max(s.delivered+uint64(s.inFlight), 1)
	}
	if s.dec.Flags&cong.EnterCWR != 0 && s.ca < cong.CACWR {
		s.ca, s.recover, s.entered = cong.CACWR, s.next, true
		s.prr.begin(uint64(s.inFlight))
	}
	if s.reducing() {
		s.prr.ack(s.inFlight, s.dec.Ssthresh, s.Path.MSS, in.Acked, advanced && in.Lost == 0)
	}
}

// timeout is the retransmission timer: all that is in flight is lost.
func (s *Sim) timeout() {
	s.markAppLimited()
	prior := s.inFlight
	s.Stats.Timeouts++
	in := cong.Sample{Kind: cong.KindTimeout, PriorInFlight: prior}
	if s.ca != cong.CALoss {
		in.Flags |= cong.FlagEnter
		s.recover = s.next
	}
	s.ca = cong.CALoss
	in.Lost = s.lose(s.first + uint64(len(s.txs)))
	s.backoff++
	s.entered = false
	s.inFlight = prior // the sample tells what was in flight before
	s.poll(in)
	s.inFlight = 0
	s.dec.Cwnd = min(s.dec.Cwnd, s.Path.MSS) // DESIGN, section 3: in flight + 1 MSS
	s.paced = s.now
	s.armRTO()
}

// prr is proportional rate reduction (RFC 9937).
type prr struct {
	cwnd      uint32
	delivered uint64
	out       uint64
	flight    uint64
}

func (p *prr) begin(flight uint64) { *p = prr{flight: max(flight, 1)} }

func (p *prr) ack(inFlight, ssthresh, mss, acked uint32, safe bool) {
	p.delivered += uint64(acked)
	var snd int64
	if inFlight > ssthresh {
		snd = int64((p.delivered*uint64(ssthresh)+p.flight-1)/p.flight) - int64(p.out)
	} else {
		snd = max(int64(p.delivered)-int64(p.out), int64(acked))
		if safe {
			snd += int64(mss)
		}
		snd = min(int64(ssthresh)-int64(inFlight), snd)
	}
	if p.out == 0 && snd <= 0 {
		snd = int64(mss)
	}
	p.cwnd = inFlight + uint32(max(snd, 0))
}

// snapshot is what the delivery-rate sampler notes at a transmission (TCP_FACTS 1.1).
type snapshot struct {
	sent, firstSent, deliveredAt plugins.Time
	delivered, lost              uint64
	inFlight                     uint32
	appLimited                   bool
}

type sampler struct {
	delivered   uint64
	lostBytes   uint64
	deliveredAt plugins.Time
	firstSent   plugins.Time
	appLimited  uint64
	newest      *snapshot // of this batch

	// The last sample, for Resume.
	lastPrior, lastDelivered uint64
	lastInterval             time.Duration
	lastFlags                uint16
}

func (r *sampler) send(now plugins.Time, inFlight uint32, outstanding bool) snapshot {
	if !outstanding {
		r.firstSent, r.deliveredAt = now, now
	}
	return snapshot{sent: now, firstSent: r.firstSent, deliveredAt: r.deliveredAt, delivered: r.delivered, lost: r.lostBytes,
		inFlight: inFlight, appLimited: r.appLimited != 0}
}

func (r *sampler) begin() { r.newest = nil }

func (r *sampler) deliver(now plugins.Time, size uint32, p *snapshot) {
	r.delivered += uint64(size)
	r.deliveredAt = now
	r.newest = p // transmissions are acknowledged in order
}

func (r *sampler) finish(now plugins.Time, minRTT time.Duration, in *cong.Sample) {
	if r.appLimited != 0 && r.delivered > r.appLimited {
		r.appLimited = 0
	}
	p := r.newest
	if p == nil {
		return
	}
	in.PriorDelivered, in.SendTime, in.TxInFlight = p.delivered, p.sent, p.inFlight
	in.LostSinceSend = uint32(r.lostBytes - p.lost)
	if p.appLimited {
		in.Flags |= cong.FlagAppLimited
	}
	in.Interval = max(p.sent.Sub(p.firstSent), now.Sub(p.deliveredAt))
	r.firstSent = p.sent
	if in.Interval >= minRTT && in.Interval > 0 {
		in.Flags |= cong.FlagRateValid
	}
}
