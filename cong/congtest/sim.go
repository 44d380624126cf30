// Package congtest tests congestion-control modules: Run is the conformance suite that every module must pass, Sim drives one
// module over an emulated path in virtual time as the engine would, Bench measures the cost of a sample.
package congtest

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Start is the time at which simulations begin.
const Start plugins.Time = 1_000_000_000

const dupThresh = 3 // segments delivered after a missing one that make it lost

// Stats counts what happened in a simulation.
type Stats struct {
	Sent, Lost, Timeouts, Recoveries, Marks uint64 // Sent and Lost in segments
	MaxQueue                                uint64 // bytes
	FirstLoss                               plugins.Time
}

// Sim is one flow over one path. It sends segments of one size, paces them by departure time with the credit of one half
// (DESIGN F8), keeps a scoreboard and PRR (RFC 9937), takes delivery-rate samples, and keeps the retransmission timer.
type Sim struct {
	Path     Path
	Backlog  uint64 // bytes that the application has not sent yet; Endless by default
	Stats    Stats
	OnSample func(*cong.Sample, *cong.Decision) // called with each sample and its answer, nil if there is none

	mod  cong.Module
	link link
	now  plugins.Time
	flow plugins.Flow
	id   uint64
	in   []cong.Sample
	out  [1]cong.Decision
	dec  cong.Decision

	sender
	sampler
	prr prr
}

// Endless is the backlog of an application that always has data.
const Endless = 1 << 62

// NewSim opens a flow of m over p. The handshake has told the RTT.
func NewSim(p Path, m cong.Module) *Sim {
	if p.MSS == 0 {
		p.MSS = 1448
	}
	s := &Sim{Path: p, Backlog: Endless, mod: m, now: Start, flow: plugins.Flow{Slot: 3, Gen: 1}}
	s.link = link{Path: &s.Path, rand: rng.Rand(p.Seed), tokens: p.PolicerSize, refill: s.now}
	s.srtt, s.rttvar, s.minRTT = p.RTT, p.RTT/2, p.RTT
	s.dec = cong.Decision{Cwnd: min(10*p.MSS, max(2*p.MSS, 14600)), Ssthresh: cong.InfiniteSsthresh}
	s.paced, s.rtoAt = s.now, plugins.Never
	s.poll(cong.Sample{Kind: cong.KindOpen})
	return s
}

// Swap gives the live flow to another module.
func (s *Sim) Swap(m cong.Module) {
	s.poll(cong.Sample{Kind: cong.KindClose})
	s.mod = m
	in := cong.Sample{Kind: cong.KindResume}
	in.PriorDelivered, in.Interval, in.Flags = s.lastPrior, s.lastInterval, s.lastFlags&(cong.FlagRateValid|cong.FlagAppLimited)
	in.Delivered = s.lastDelivered
	s.poll(in)
}

// Now returns the virtual time.
func (s *Sim) Now() plugins.Time { return s.now }

// Delivered returns the bytes delivered so far.
func (s *Sim) Delivered() uint64 { return s.delivered }

// Decision returns the module's last answer.
func (s *Sim) Decision() cong.Decision { return s.dec }

// InFlight returns the bytes in flight.
func (s *Sim) InFlight() uint32 { return s.inFlight }

// CA returns the congestion state.
func (s *Sim) CA() uint8 { return s.ca }

// Queue returns the bytes queued at the bottleneck.
func (s *Sim) Queue() uint64 { return s.link.queued(s.now) }

// Run runs for d.
func (s *Sim) Run(d time.Duration) {
	for end := s.now.Add(d); ; {
		s.transmit()
		next := min(s.nextAck(), s.nextSend(), s.rtoAt)
		if next > end {
			s.now = end
			return
		}
		s.now = max(next, s.now)
		switch {
		case s.nextAck() <= s.now:
			s.acknowledge()
		case s.rtoAt <= s.now:
			s.timeout()
		}
	}
}

// poll sends one batch of a single sample with the flow's present state filled in, and takes the answer.
func (s *Sim) poll(in cong.Sample) {
	s.id++
	in.Flow, in.ID, in.Now, in.CA, in.MSS = s.flow, s.id, s.now, s.ca, s.Path.MSS
	in.Cwnd, in.Ssthresh, in.InFlight = s.window(), s.dec.Ssthresh, s.inFlight
	in.SRTT, in.MinRTT = s.srtt, s.minRTT
	in.SndNxt = uint32(s.next * uint64(s.Path.MSS))
	in.Flags |= cong.FlagPaced
	if in.Delivered == 0 {
		in.Delivered = s.delivered
	}
	s.in = append(s.in[:0], in)
	n := s.mod.Poll(s.now, s.in, s.out[:])
	if n > 0 {
		s.dec = s.out[0]
	}
	if s.OnSample != nil {
		if n > 0 {
			s.OnSample(&s.in[0], &s.dec)
		} else {
			s.OnSample(&s.in[0], nil)
		}
	}
}
