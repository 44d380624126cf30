package bbr

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/cong/internal/window"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const (
	minCwndSegs  = 4       // window in PROBE_RTT, and floor of the window
	initCwndSegs = 10      // in flight until the RTT is known
	cycleLen     = 8       // phases of PROBE_BW
	maxBW        = 1 << 48 // bytes/s; keeps products with gains within 64 bits
)

// state is what BBR knows of one flow. Windows are bytes, rates bytes/s.
type state struct {
	live bool
	rand rng.Rand

	mode       mode
	pacingGain uint32
	cwndGain   uint32

	// The sample in work.
	roundStart bool
	rateValid  bool

	// Rounds, counted by packets.
	rounds             uint32
	nextRoundDelivered uint64
	delivered          uint64       // last count seen
	deliveredAt        plugins.Time // when it last moved
	lost               uint64       // bytes ever marked lost

	bw       maxFilter
	fullBW   uint64
	fullCnt  uint8
	pipeFull bool

	cycle   uint8
	cycleAt plugins.Time

	hasRTT            bool
	minRTT            time.Duration // 0: unknown
	minRTTAt          plugins.Time
	probeRTTDone      plugins.Time // 0: what is in flight has not fallen to the minimum yet
	probeRTTRoundDone bool
	idleRestart       bool

	ca           uint8 // the engine's state at the last sample
	prevCA       uint8 // the engine's state when the window was last set
	conservation bool
	priorCwnd    uint32

	extra  aggregation
	police policer
}

// bandwidth is the rate that BBR goes by, 0 before the first sample.
func (s *state) bandwidth() uint64 {
	if s.police.use {
		return s.police.bw
	}
	return s.bw.get()
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
		s.lost += uint64(in.Lost)
	case in.Kind == cong.KindTimeout:
		m.timeout(s, in, out, mss)
	case in.Kind == cong.KindRestart:
		m.restart(s, in, out)
	}
	window.Clamp(out, mss)
	out.TSOGoal = tsoSegs(out.Rate, mss) * mss
	s.publish(out)
}

func (m *module) open(s *state, in *cong.Sample, out *cong.Decision) {
	m.join(s, in)
	s.minRTT = in.MinRTT
	m.setGains(s)
	m.initRate(s, in, out)
}

// join starts in STARTUP.
func (m *module) join(s *state, in *cong.Sample) {
	*s = state{
		live: true, rand: rng.New(m.seed, in.Flow),
		nextRoundDelivered: in.Delivered, delivered: in.Delivered, deliveredAt: in.Now,
		cycleAt: in.Now, minRTTAt: in.Now, ca: in.CA, prevCA: in.CA,
	}
	s.extra.since = in.Now
	s.police.restart(s)
}

// resume joins a live flow: the snapshot's delivery rate is the bandwidth. A finite threshold says that the pipe was full
// once, so BBR goes on in PROBE_BW; without one the flow was still looking for its rate, and STARTUP goes on looking.
func (m *module) resume(s *state, in *cong.Sample, out *cong.Decision) {
	m.join(s, in)
	s.minRTT = in.MinRTT
	if s.minRTT <= 0 {
		s.minRTT = max(in.SRTT, 0)
	}
	s.priorCwnd = in.Cwnd
	bw := snapshotRate(in)
	if bw == 0 {
		m.setGains(s)
		m.initRate(s, in, out)
		return
	}
	s.bw.reset(0, bw)
	s.hasRTT = true // the rate follows the bandwidth from the start
	if in.Ssthresh != cong.InfiniteSsthresh {
		s.pipeFull, s.fullBW = true, bw
		m.enterProbeBW(s)
	}
	m.setGains(s)
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

func (m *module) ack(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	entered := in.Has(cong.FlagEnter) || in.CA >= cong.CACWR && s.ca < cong.CACWR
	s.ca = in.CA
	if entered {
		s.saveCwnd(out)
	}
	if in.Has(cong.FlagUndo) {
		s.undo()
	}
	if in.Acked > 0 {
		s.deliveredAt = in.Now
	}
	s.delivered = in.Delivered

	m.updateBW(s, in)
	m.updateAggregation(s, in, out, mss)
	m.updateCycle(s, in, out, mss)
	m.checkFullPipe(s, in)
	m.checkDrain(s, in, out, mss)
	m.updateMinRTT(s, in, out, mss)
	m.setGains(s)

	if !s.hasRTT && in.SRTT > 0 {
		m.initRate(s, in, out)
	}
	m.setRate(s, out, s.pacingGain)
	m.setCwnd(s, in, out, mss)
}

// saveCwnd remembers the window that holds outside of recovery and PROBE_RTT.
func (s *state) saveCwnd(out *cong.Decision) {
	if s.prevCA < cong.CARecovery && s.mode != probeRTT {
		s.priorCwnd = out.Cwnd
	} else {
		s.priorCwnd = max(s.priorCwnd, out.Cwnd)
	}
}

// undo: the loss was none, so look for the bandwidth again.
func (s *state) undo() {
	s.fullBW, s.fullCnt = 0, 0
	s.police.reset(s)
}

// timeout starts over in estimating whether the pipe is full. The engine sends one segment.
func (m *module) timeout(s *state, in *cong.Sample, out *cong.Decision, mss uint32) {
	s.saveCwnd(out)
	s.ca, s.prevCA = cong.CALoss, cong.CALoss
	s.fullBW = 0
	s.roundStart = true
	s.delivered = in.Delivered
	m.samplePolicer(s, true, false)
	s.conservation = false
	out.Cwnd = mss
}

// restart: sending starts after idle. Pacing at the estimate avoids a burst that the path has no tokens for.
func (m *module) restart(s *state, in *cong.Sample, out *cong.Decision) {
	s.idleRestart = true
	s.extra.since, s.extra.acked = in.Now, 0
	switch s.mode {
	case probeBW:
		m.setRate(s, out, unit)
	case probeRTT:
		m.checkProbeRTTDone(s, in, out)
	}
}
