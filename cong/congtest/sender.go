package congtest

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// tx is one transmission of one segment.
type tx struct {
	seq  uint64 // of the segment, counted in segments
	ack  plugins.Time
	mark bool
	done bool // delivered or marked lost
	lost bool
	snap snapshot
}

// sender is the scoreboard. The path keeps order, so transmissions are acknowledged in the order of their ids.
type sender struct {
	ca       uint8
	inFlight uint32
	next     uint64   // next new segment
	una      uint64   // first segment not acknowledged
	got      []bool   // segments delivered
	sacked   uint64   // segments delivered beyond una
	txs      []tx     // transmissions from id first on
	first    uint64   // id of txs[0]
	ackAt    uint64   // id of the next transmission to be acknowledged
	high     uint64   // one above the highest id delivered
	lossAt   uint64   // ids below are delivered or marked lost
	again    []uint64 // segments to send again
	recover  uint64   // recovery ends when una reaches it
	entered  bool     // a CWR that the module asked for has not been reported yet

	paced    plugins.Time // next departure
	dataSegs uint64

	srtt, rttvar, minRTT time.Duration
	rtoAt                plugins.Time
	backoff              uint

	limited  bool // the window was used up in this window of data
	maxOut   uint32
	usageEnd uint64
}

// window is the engine's window: PRR's while it reduces for the module.
func (s *Sim) window() uint32 {
	if s.reducing() {
		return s.prr.cwnd
	}
	return s.dec.Cwnd
}

func (s *Sim) reducing() bool {
	return s.dec.Flags&cong.WantsPRR != 0 && (s.ca == cong.CARecovery || s.ca == cong.CACWR)
}

func (s *Sim) rate() uint64 {
	if s.dec.Rate != 0 {
		return s.dec.Rate
	}
	// TCP_FACTS 5.3: 200 % in the first half of slow start, else 120 %.
	ratio := uint64(120)
	if s.dec.Cwnd < s.dec.Ssthresh/2 {
		ratio = 200
	}
	return cong.MulDiv(uint64(max(s.window(), s.inFlight))*ratio/100, uint64(time.Second), uint64(max(s.srtt, 1)))
}

func (s *Sim) hasData() bool { return len(s.again) > 0 || s.Backlog >= uint64(s.Path.MSS) }

func (s *Sim) roomFor() bool { return s.inFlight+s.Path.MSS <= s.window() }

// nextSend is when the next segment may leave, Never if the window or the application does not let it.
func (s *Sim) nextSend() plugins.Time {
	if !s.hasData() || !s.roomFor() {
		return plugins.Never
	}
	return s.paced
}

func (s *Sim) nextAck() plugins.Time {
	for ; s.ackAt < s.first+uint64(len(s.txs)); s.ackAt++ {
		if t := &s.txs[s.ackAt-s.first]; t.ack != 0 {
			return t.ack
		}
	}
	return plugins.Never
}

func (s *Sim) transmit() {
	if s.inFlight == 0 && s.una == s.next && s.hasData() && s.appLimited != 0 {
		s.poll(cong.Sample{Kind: cong.KindRestart})
	}
	for s.nextSend() <= s.now {
		s.transmitOne()
	}
	s.validate(s.hasData() && !s.roomFor())
}

func (s *Sim) transmitOne() {
	mss := s.Path.MSS
	t := tx{}
	outstanding := s.next > s.una
	for len(s.again) > 0 && s.got[s.again[0]] {
		s.again = s.again[1:]
	}
	if len(s.again) > 0 {
		t.seq = s.again[0]
		s.again = s.again[1:]
	} else {
		if s.Backlog < uint64(mss) {
			return
		}
		s.Backlog -= uint64(mss)
		t.seq = s.next
		s.next++
		s.got = append(s.got, false)
	}
	if s.rtoAt == plugins.Never {
		s.armRTO()
	}
	s.inFlight += mss
	t.snap = s.sampler.send(s.now, s.inFlight, outstanding)
	t.ack, t.mark = s.link.send(s.now, mss)
	s.Stats.Sent++
	s.Stats.MaxQueue = max(s.Stats.MaxQueue, s.link.queued(s.now))
	s.txs = append(s.txs, t)
	s.prr.out += uint64(mss)
	s.pace(mss)
}

// pace moves the next departure; up to half of a segment's time is forgiven for lateness.
func (s *Sim) pace(mss uint32) {
	prior := s.paced
	s.paced = max(s.paced, s.now)
	if s.dataSegs++; s.dataSegs <= 10 {
		return
	}
	rate := s.rate()
	if rate == plugins.Unlimited || rate == 0 {
		return
	}
	length := cong.MulDiv(uint64(mss), uint64(time.Second), rate)
	credit := uint64(s.paced.Sub(prior))
	s.paced = s.paced.Add(time.Duration(min(length-min(length/2, credit), uint64(time.Hour))))
}

// validate notes whether the window is what limits the flow, per window of data as Linux does.
func (s *Sim) validate(isLimited bool) {
	if s.una >= s.usageEnd || isLimited || !s.limited && s.inFlight > s.maxOut {
		s.limited, s.maxOut, s.usageEnd = isLimited, s.inFlight, s.next
	}
}

func (s *Sim) armRTO() {
	rto := s.srtt + max(4*s.rttvar, 200*time.Millisecond)
	s.rtoAt = s.now.Add(min(rto<<min(s.backoff, 10), 120*time.Second))
}

// markAppLimited is called before the window changes.
func (s *Sim) markAppLimited() {
	if s.Backlog < uint64(s.Path.MSS) && s.inFlight < s.window() && len(s.again) == 0 {
		s.appLimited = max(s.delivered+uint64(s.inFlight), 1)
	}
}

func (s *Sim) rttSample(rtt time.Duration) {
	s.rttvar += ((s.srtt - rtt).Abs() - s.rttvar) / 4
	s.srtt += (rtt - s.srtt) / 8
	s.minRTT = min(s.minRTT, rtt)
}

// lose marks the transmissions below id lost and tells the module of each.
func (s *Sim) lose(id uint64) (lost uint32) {
	mss := s.Path.MSS
	for ; s.lossAt < id; s.lossAt++ {
		t := &s.txs[s.lossAt-s.first]
		if t.done {
			continue
		}
		t.done, t.lost = true, true
		s.inFlight -= mss
		s.lostBytes += uint64(mss)
		lost += mss
		s.Stats.Lost++
		if s.Stats.FirstLoss == 0 {
			s.Stats.FirstLoss = s.now
		}
		if !s.got[t.seq] {
			s.again = append(s.again, t.seq)
		}
		in := cong.Sample{Kind: cong.KindLost, Lost: mss, SendTime: t.snap.sent, PriorDelivered: t.snap.delivered,
			TxInFlight: t.snap.inFlight, LostSinceSend: uint32(s.lostBytes - t.snap.lost)}
		if t.snap.appLimited {
			in.Flags |= cong.FlagAppLimited
		}
		s.poll(in)
	}
	return lost
}

// forget drops transmissions that are done with.
func (s *Sim) forget() {
	done := min(s.ackAt, s.lossAt) - s.first
	if done > 4096 && done > uint64(len(s.txs))/2 {
		s.txs = s.txs[:copy(s.txs, s.txs[done:])]
		s.first += done
	}
}
