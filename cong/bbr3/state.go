package bbr3

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
)

const (
	minPipeSegs = 4         // BBR.MinPipeCwnd
	maxBW       = 1<<48 - 1 // bytes/s; keeps products with gains within 64 bits
	unset       = 1<<32 - 1 // a bound that does not bind yet
	unsetBW     = 1<<64 - 1
)

// ackPhase tells which part of a probe the acknowledgements that arrive belong to.
type ackPhase uint8

const (
	acksInit          ackPhase = iota // not probing
	acksRefilling                     // sent before the probe
	acksProbeStarting                 // the probe has begun, its acknowledgements have not come yet
	acksProbeFeedback                 // of the probe
	acksProbeStopping                 // the probe is over, its last acknowledgements are still to come
)

// state is what BBR knows of one flow. Windows are bytes, rates bytes/s. The names are the draft's.
type state struct {
	live bool
	rand rng.Rand

	mode       mode
	ackPhase   ackPhase
	ca         uint8 // the engine's state at the last sample
	pacingGain uint32
	cwndGain   uint32

	// The sample in work.
	rate       uint64 // its delivery rate; 0: none
	roundStart bool

	// Rounds, counted by packets.
	rounds             uint32
	nextRoundDelivered uint64

	// The model: bandwidth.
	maxBW       [2]uint64 // of the cycle before and of this one
	bwShortTerm uint64
	bw          uint64 // the lesser of both

	// The model: volume.
	inflightLongTerm  uint32
	inflightShortTerm uint32

	latest signals
	full   fullPipe
	probe  probing
	rtt    minRTT
	minRTT time.Duration // 0: unknown
	extra  aggregation
	ecn    marks
	undo   undoState

	hasRTT          bool
	idleRestart     bool
	drainStartRound uint32
	priorCwnd       uint32
	initialEnd      uint64 // until so much is delivered STARTUP's window grows: InitialCwnd, or the window that was taken over
}

func (m *module) step(s *state, in *cong.Sample, out *cong.Decision) {
	mss := window.MSS(in)
	switch {
	case !s.live && in.Kind == cong.KindOpen:
		m.open(s, in, out)
	case !s.live:
		m.resume(s, in, out)
	case in.Kind == cong.KindAck:
		m.ack(s, in, out, mss)
	case in.Kind == cong.KindLost:
		m.lost(s, in, out, mss)
	case in.Kind == cong.KindTimeout:
		m.timeout(s, in, out, mss)
	case in.Kind == cong.KindRestart:
		m.restart(s, in, out)
	}
	window.Clamp(out, mss)
	out.TSOGoal = max(quantum(out.Rate, mss)/mss, 1) * mss
	s.publish(out)
}

func (m *module) open(s *state, in *cong.Sample, out *cong.Decision) {
	m.join(s, in)
	m.enterStartup(s)
	m.initRate(s, in, out)
}

// join is BBROnInit.
func (m *module) join(s *state, in *cong.Sample) {
	*s = state{
		live: true, rand: rng.New(m.seed, in.Flow), ca: in.CA,
		nextRoundDelivered: in.Delivered,
		bwShortTerm:        unsetBW, inflightLongTerm: unset, inflightShortTerm: unset,
		priorCwnd: in.Cwnd, initialEnd: in.Delivered + uint64(in.Cwnd),
	}
	s.minRTT = in.MinRTT
	if s.minRTT <= 0 {
		s.minRTT = max(in.SRTT, 0)
	}
	s.rtt = minRTT{stamp: in.Now, probeDelay: s.minRTT, probeStamp: in.Now}
	s.latest.roundDelivered = in.Delivered
	s.extra.since = in.Now
	s.probe.cycleStamp = in.Now
}

// resume joins a live flow: the snapshot's delivery rate is the bandwidth. A finite threshold says that the pipe was full
// once, so BBR goes on in PROBE_BW, and first drains what the algorithm before left queued; without one the flow was still
// looking for its rate, and STARTUP goes on looking.
func (m *module) resume(s *state, in *cong.Sample, out *cong.Decision) {
	m.join(s, in)
	bw := snapshotRate(in)
	s.maxBW[1], s.bw = bw, bw
	if bw == 0 || in.Ssthresh == cong.InfiniteSsthresh {
		m.enterStartup(s)
		m.initRate(s, in, out) // in slow start the window tells more than the rate of a round trip ago
		return
	}
	s.hasRTT = true // the rate follows the bandwidth from the start
	s.full.reached = true
	m.startDown(s, in)
	m.setRate(s, out, s.pacingGain)
}

// snapshotRate is the bandwidth that a snapshot tells: its last delivery rate. One that the application limited says little;
// then half a window per round trip, what a window of twice the path's product carries, is the least to start from.
func snapshotRate(in *cong.Sample) uint64 {
	bw := window.SnapshotRate(in)
	if in.SRTT > 0 && (bw == 0 || in.Has(cong.FlagAppLimited)) {
		bw = max(bw, cong.MulDiv(uint64(in.Cwnd)/2, uint64(time.Second), uint64(in.SRTT)))
	}
	return min(bw, maxBW)
}

// ack is BBRUpdateOnACK.
func (m *module) ack(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	m.observe(s, in, out)
	s.updateLatestSignals(in)
	m.updateCongestionSignals(s, in, out)
	m.updateAggregation(s, in, out)
	s.checkFullPipe(in)
	m.checkStartupDone(s, in, out, mss)
	m.checkDrainDone(s, in, out, mss)
	m.updateCycle(s, in, out, mss)
	m.updateMinRTT(s, in)
	m.checkProbeRTT(s, in, out, mss)
	s.advanceLatestSignals(in)
	s.boundBW()

	if !s.hasRTT && in.SRTT > 0 {
		m.initRate(s, in, out)
	}
	m.setRate(s, out, s.pacingGain)
	m.setCwnd(s, in, out, mss)
}

// observe follows the engine into and out of recovery.
func (m *module) observe(s *state, in *cong.Sample, out *cong.Decision) {
	was := s.ca >= cong.CARecovery
	is := in.CA >= cong.CARecovery
	switch {
	case is && !was:
		s.saveCwnd(out)
		s.save()
		s.full.recoveryDelivered = in.Delivered
	case was && !is:
		out.Cwnd = max(out.Cwnd, s.priorCwnd)
	}
	s.ca = in.CA
	if in.Has(cong.FlagUndo) {
		m.spurious(s, in, out)
	}
	if !is && in.Lost == 0 {
		s.undo.episode = false // what it undoes is kept: that it was spurious may turn out later
	}
}

// saveCwnd remembers the window that holds outside of recovery and PROBE_RTT.
func (s *state) saveCwnd(out *cong.Decision) {
	if s.ca < cong.CARecovery && s.mode != probeRTT {
		s.priorCwnd = out.Cwnd
	} else {
		s.priorCwnd = max(s.priorCwnd, out.Cwnd)
	}
}

// timeout: the engine sends one segment; recovery ends with the window of before, within the model's bounds.
func (m *module) timeout(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	s.saveCwnd(out)
	s.save()
	s.ca = cong.CALoss
	out.Cwnd = mss
}

// restart: sending starts after idle. Pacing at the estimate avoids a burst that the path has no room for.
func (m *module) restart(s *state, in *cong.Sample, out *cong.Decision) {
	s.idleRestart = true
	s.extra.since, s.extra.acked = in.Now, 0
	switch {
	case s.mode.probesBW():
		m.setRate(s, out, percent)
	case s.mode == probeRTT:
		m.checkProbeRTTDone(s, in, out)
	}
}
