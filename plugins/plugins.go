// Package plugins holds the types that every module kind shares: time, flow handles, and the one shape of a module.
//
// A module is passive. It gets a batch of events, writes a batch of commands, and says when it next wants to run without
// an event. It starts no goroutine, takes no lock, reads no clock and keeps no pointer to the engine, so the same code runs
// linked into a worker, in a process of its own behind shared-memory rings, and in a simulation on virtual time.
//
// Records (events and commands) hold no pointers, are 64 or 128 bytes long, and use bytes, payload bytes per second and
// nanoseconds, so that the same record travels through a slice or through a ring.
package plugins

import (
	"fmt"
	"math"
	"time"
)

// Time is a point in time: nanoseconds of CLOCK_MONOTONIC, or of a virtual clock.
type Time int64

// Never is the deadline that does not come.
const Never Time = math.MaxInt64

// Add returns t+d. Never stays Never.
func (t Time) Add(d time.Duration) Time {
	if t == Never {
		return Never
	}
	return t + Time(d)
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Unlimited is the pacing rate (payload bytes per second) that means "no limit".
const Unlimited uint64 = math.MaxUint64

// Flow names one connection of one worker. Slots are small, dense and reused; a reused slot has a new Gen.
type Flow struct{ Slot, Gen uint32 }

// A Module turns events into commands.
type Module[E, C any] interface {
	// Poll consumes all of in and writes up to len(out) commands; it returns how many. What does not fit is kept, and
	// Deadline then returns now. It never blocks, allocates in steady state, or keeps in or out.
	Poll(now Time, in []E, out []C) (n int)
	// Deadline is the next time at which Poll wants to run without an event; Never if there is none.
	Deadline() Time
}

// RemoteState says whether a module in another process can serve flows now.
type RemoteState uint32

// States of a Remote.
const (
	Ready RemoteState = iota // answers in time
	Late                     // its oldest unconsumed event is too old: the fallback serves its flows until it is Ready again
	Dead                     // exited, broke the protocol, or silent for too long; final
)

func (s RemoteState) String() string {
	switch s {
	case Ready:
		return "ready"
	case Late:
		return "late"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("state(%d)", uint32(s))
}

// Remote is what a Module in another process offers its worker besides Poll. All methods but State are the worker's.
type Remote interface {
	// State is one atomic load. The worker moves the module's flows to the fallback when it is not Ready, keeps calling Poll
	// (with no events), and moves them back, with Resume, when it is Ready again. Dead is final.
	State() RemoteState
	// Dropped appends to dst the flows whose events were dropped because the ring was full, now that there is room, at most
	// 256 per call; the worker answers each with a Resume event. Until then further events of such a flow are dropped.
	Dropped(dst []Flow) []Flow
	// Room is how many events Poll takes now without dropping one; whoever replays a long log spreads it by this figure.
	Room() int
}

// SwapReport tells what a change of module did.
type SwapReport struct {
	Flows int           // flows that were moved
	Gap   time.Duration // the longest loop-boundary work of any worker
}

// Kind is one of the three questions that a worker asks of modules.
type Kind uint8

// The kinds of modules.
const (
	Rtx  Kind = iota // retransmit queue: what was lost, what to send again, when to probe
	Pace             // pacing: when a flow's next bytes may leave
	Cong             // congestion control: window and rate
	NumKinds
)

var kindNames = [NumKinds]string{"rtx", "pace", "cong"}

func (k Kind) String() string {
	if k < NumKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind is the inverse of Kind.String.
func ParseKind(s string) (Kind, error) {
	for k, n := range kindNames {
		if s == n {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("unknown module kind %q (want rtx, pace or cong)", s)
}

// Param documents one parameter of a module.
type Param struct {
	Name    string // as in the configuration
	Type    string // "int", "uint", "bool", "float", "duration", "rate"
	Unit    string // "", "bytes", "ms", "1/1024", ...
	Default string
	Doc     string
}

// Info describes a module.
type Info struct {
	Kind    Kind
	Name    string // "bbr"
	Version string // semantic version of the module
	Params  []Param
	Needs   []string // features of the host: see Features
}

// Params are a module's parameters as the configuration gives them: name to value, in text form. A factory rejects names
// that it does not know and values that it cannot use; its error then joins a *ParamError for each.
type Params map[string]string

// ParamError says what is wrong with one parameter.
type ParamError struct {
	Module, Param string // names
	Problem       string // "70 is not within 0…60"
}

func (e *ParamError) Error() string { return e.Module + ": " + e.Param + ": " + e.Problem }

// New makes one module instance for one worker. seed feeds the instance's random draws.
type New[E, C any] func(p Params, seed uint64) (Module[E, C], error)
