// Package cong is the congestion-control module kind: the records that go in and out, and Each, which turns one pure
// per-flow function into a module.
//
// The engine sends one Sample per flow and batch of acknowledgements, plus samples for special moments (Open, Resume, Lost,
// Timeout, Restart, Close). The module answers each Sample with at most one Decision; the latest Decision per flow wins. All
// quantities are bytes, payload bytes per second, and nanoseconds.
package cong

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Kinds of Sample.
const (
	// KindOpen starts a flow at ESTABLISHED. Cwnd is the initial window, SRTT and MinRTT are set if the handshake gave a sample.
	KindOpen uint8 = iota + 1
	// KindAck reports a batch of acknowledgements.
	KindAck
	// KindLost reports one lost range: Lost is its size; SendTime, PriorDelivered, TxInFlight, LostSinceSend and
	// FlagAppLimited are the snapshot taken when it was sent. It precedes the KindAck or KindTimeout of the same batch.
	KindLost
	// KindTimeout reports a retransmission timeout. InFlight and PriorInFlight are from before the timeout.
	KindTimeout
	// KindRestart comes before the first transmission after idle (nothing in flight, application-limited).
	KindRestart
	// KindResume gives a live flow to this module. Cwnd, Ssthresh, SRTT, MinRTT, Delivered, InFlight, MSS and CA are
	// the flow's present state; the last delivery rate is (Delivered-PriorDelivered)/Interval.
	KindResume
	// KindClose ends a flow. It has no answer.
	KindClose
)

// Flags of a Sample.
const (
	FlagAppLimited  uint16 = 1 << iota // the rate sample was application-limited when its packet was sent
	FlagCwndLimited                    // the window was used up since the last sample (RFC 7661 sense, Linux is_cwnd_limited)
	FlagRateValid                      // Interval, PriorDelivered, TxInFlight, LostSinceSend, SendTime are a valid rate sample
	FlagRTTValid                       // RTT is valid
	FlagAckDelayed                     // the receiver probably delayed this acknowledgement
	FlagEnter                          // recovery (CA Recovery, CWR or Loss) was entered in this batch
	FlagExit                           // recovery was left in this batch
	FlagUndo                           // the last reduction was spurious: restore
	FlagECE                            // the peer echoes congestion marks (ECN)
	FlagSacked                         // some data is SACKed above the cumulative acknowledgement
	FlagNoSACK                         // the peer does not do SACK
	FlagPaced                          // the flow is paced
)

// Congestion states of the engine, as Linux names them.
const (
	CAOpen uint8 = iota
	CADisorder
	CACWR
	CARecovery
	CALoss
)

// Sample is what a congestion-control module is told. 128 bytes, no pointers.
type Sample struct {
	Flow           plugins.Flow
	ID             uint64       // event id; Decision.AsOf refers to it
	Now            plugins.Time // arrival time of the acknowledgements
	Kind           uint8
	CA             uint8 // congestion state after this batch
	Flags          uint16
	MSS            uint32        // payload bytes of a full segment
	Acked          uint32        // bytes newly delivered (cumulatively or selectively)
	Lost           uint32        // bytes newly marked lost
	Marked         uint32        // bytes newly acknowledged with an ECN echo; with AccECN those that were marked, as far as the peer tells
	LostSinceSend  uint32        // bytes marked lost between the sending of the sampled packet and now
	InFlight       uint32        // bytes in flight after this batch
	PriorInFlight  uint32        // bytes in flight before this batch
	TxInFlight     uint32        // bytes in flight when the sampled packet was sent, it included
	Cwnd           uint32        // the engine's present window
	Delivered      uint64        // bytes ever delivered
	PriorDelivered uint64        // Delivered when the sampled packet was sent
	Interval       time.Duration // in which Delivered-PriorDelivered bytes were delivered
	RTT            time.Duration // of the latest-sent acknowledged packet
	SRTT           time.Duration // smoothed (RFC 6298)
	MinRTT         time.Duration // windowed minimum of the engine; 0 if unknown
	SendTime       plugins.Time  // departure time of the sampled packet
	Ssthresh       uint32        // the engine's present ssthresh
	SndNxt         uint32        // SND.NXT
}

// Has reports whether all of flags are set.
func (s *Sample) Has(flags uint16) bool { return s.Flags&flags == flags }

// Rate is the delivery rate of the sample in bytes per second, rounded down; 0 without FlagRateValid.
func (s *Sample) Rate() uint64 {
	if s.Flags&FlagRateValid == 0 || s.Interval <= 0 {
		return 0
	}
	return MulDiv(s.Delivered-s.PriorDelivered, uint64(time.Second), uint64(s.Interval))
}

// Flags of a Decision.
const (
	// WantsPRR: in recovery and CWR the engine reduces to Ssthresh by proportional rate reduction (RFC 9937).
	WantsPRR uint32 = 1 << iota
	// MarkAppLimited: the engine treats what is in flight as application-limited (BBR's ProbeRTT).
	MarkAppLimited
	// EnterCWR: the module backed off without a loss (CDG); the engine enters CWR and reduces by PRR to Ssthresh.
	EnterCWR
)

// InfiniteSsthresh is the slow-start threshold before the first reduction.
const InfiniteSsthresh = 1<<32 - 1

// Decision is a congestion-control module's answer. 64 bytes, no pointers.
type Decision struct {
	Flow     plugins.Flow
	AsOf     uint64 // ID of the last Sample of this flow that was taken into account
	Rate     uint64 // pacing rate, payload bytes/s; 0: derive from window and SRTT; plugins.Unlimited: unpaced
	Cwnd     uint32 // congestion window in bytes
	Ssthresh uint32 // in bytes; InfiniteSsthresh if none
	TSOGoal  uint32 // bytes per burst that the module would like; 0: the engine's own sizing
	Flags    uint32
	Aux      [3]uint64 // the algorithm's own state, shown by `fastpath ctl ss`; its Describe function reads it
}

// Module is a congestion-control module.
type Module = plugins.Module[Sample, Decision]

// New makes a congestion-control module.
type New = plugins.New[Sample, Decision]
