// Package pace is the pacing module kind: the records, the Earliest-Departure-Time arithmetic that the engine evaluates when
// it sends (Line and Clock), and the modules edt and none.
package pace

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Kinds of Event.
const (
	EvOpen   uint8 = iota + 1
	EvUpdate       // window, ssthresh, SRTT or rate changed
	EvResume       // a live flow, with the same fields as EvUpdate
	EvClose
)

// Event is what a pacing module is told. 64 bytes, no pointers.
type Event struct {
	Flow     plugins.Flow
	ID       uint64
	Time     plugins.Time
	Kind     uint8
	_        [3]uint8
	MSS      uint32
	Cwnd     uint32
	Ssthresh uint32
	Rate     uint64 // congestion control's rate, payload bytes/s; 0: derive from window and SRTT; Unlimited: unpaced
	MaxRate  uint64 // the connection's own maximum, payload bytes/s; Unlimited or 0 if none
	SRTT     time.Duration
}

// CreditOne is a credit fraction of 1 in Line.Credit.
const CreditOne = 1 << 16

// Line is a pacing module's answer: the line that a flow's departures follow. 64 bytes, no pointers.
type Line struct {
	Flow     plugins.Flow
	AsOf     uint64
	Rate     uint64        // payload bytes/s; Unlimited: no pacing
	Horizon  time.Duration // a departure further ahead than this is refused to the sender
	Credit   uint32        // fraction of a piece's duration that lateness may forgive, in 1/CreditOne (F8: one half)
	FreeSegs uint32        // the first FreeSegs data segments of the connection are not paced
	_        [3]uint64
}

// Module is a pacing module.
type Module = plugins.Module[Event, Line]

// New makes a pacing module.
type New = plugins.New[Event, Line]
