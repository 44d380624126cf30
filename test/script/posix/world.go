// Package posix gives a stack on virtual time the system calls of a Unix host: a table of descriptors, calls that block, error numbers.
// The runner of packet scripts (test/script) and the packetdrill library (test/packetdrill) are built on it.
//
// A World is one stack with its port and clock. Everything happens in the caller's goroutine, and time passes only in Advance and Step.
// A call that would block is Pending, and ends in the turn in which it can.
package posix

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Config describes a World.
type Config struct {
	Addrs   []netip.Prefix // of the stack
	Gateway netip.Addr
	MTU     int
	TCP     tcp.Config
	Cong    string // congestion control; default cubic
}

// Start is the time at which worlds begin.
const Start plugins.Time = 1e9

// World is a stack with its surroundings.
type World struct {
	Stack *stack.Stack

	port    *port
	arena   *mem.Arena
	now     plugins.Time
	fds     map[int]*desc
	waiting []*Pending
	ended   int            // calls that had to wait and have ended
	alarms  []plugins.Time // at which a waiting call wants to be tried
}

// Now implements stack.Clock.
func (w *World) Now() plugins.Time { return w.now }

// New makes a world.
func New(cfg Config) (*World, error) {
	w := &World{now: Start, fds: map[int]*desc{}}
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	var err error
	if w.port, err = newPort(cfg.MTU, w.Now); err != nil {
		return nil, err
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		return nil, err
	}
	w.arena = mem.NewHeapArena(budget)
	sc := stack.Config{Port: w.port, Addrs: cfg.Addrs, TCP: cfg.TCP, Arena: w.arena, Clock: w, Seed: 1, DADTransmits: -1}
	if sc.Gateway = cfg.Gateway; cfg.Gateway.Is6() {
		sc.Gateway, sc.Gateway6 = netip.Addr{}, cfg.Gateway
	}
	sc.Modules[plugins.Cong].Name = cfg.Cong
	// Most scripts expect bursts, as a queueing discipline without pacing gives them.
	sc.Modules[plugins.Pace].Name = "none"
	if w.Stack, err = stack.New(sc); err != nil {
		return nil, errors.Join(err, w.port.Close())
	}
	if cfg.Gateway.IsValid() { // known, so that the first packet need not wait
		w.port.ask(cfg.Gateway, cfg.Addrs[0].Addr())
	}
	w.settle()
	w.port.out = nil
	return w, nil
}

// Close closes the stack. An error says what leaked.
func (w *World) Close() error {
	w.waiting = nil
	err := w.Stack.Close()
	for _, d := range w.fds {
		if d.conn != nil {
			d.conn.Close()
		}
	}
	return errors.Join(err, w.arena.Close())
}

// Inject lets the stack receive an IP packet now.
func (w *World) Inject(ip []byte) {
	w.port.inject(ip)
	w.settle()
}

// Take returns what the stack has sent since the last call.
func (w *World) Take() []Sent {
	out := w.port.out
	w.port.out = nil
	return out
}

// settle turns the stack until it rests, without letting time pass, and ends the calls that can end.
func (w *World) settle() {
	for w.turns(); w.tryWaiting(); {
		w.turns()
	}
	w.turns() // a call that still waits may have told the worker so
}

func (w *World) turns() {
	for range maxTurns {
		if busy := w.Stack.Turn(); !busy && len(w.port.in) == 0 {
			return
		}
	}
	panic("posix: the stack does not come to rest")
}

const maxTurns = 100000

func (w *World) tryWaiting() (progress bool) {
	for _, p := range slices.Clone(w.waiting) {
		if p.try(w.now) {
			progress = true
			w.ended++
			w.waiting = slices.DeleteFunc(w.waiting, func(q *Pending) bool { return p == q })
		}
	}
	return progress
}

// Next is the earliest time, not before now, at which something is due; plugins.Never if nothing is.
func (w *World) Next() plugins.Time {
	w.alarms = slices.DeleteFunc(w.alarms, func(t plugins.Time) bool { return t <= w.now })
	at := w.Stack.Deadline()
	for _, t := range w.alarms {
		at = min(at, t)
	}
	return max(at, w.now)
}

// Step lets time pass until something is due, or until limit, and does it. It returns false at the limit.
func (w *World) Step(limit plugins.Time) bool {
	at := w.Next()
	if at > limit {
		w.now = max(w.now, limit)
		w.settle()
		return false
	}
	if at == w.now { // a deadline that did not move: the wheel's grain
		at++
	}
	w.now = at
	w.settle()
	return true
}

// Advance lets time pass until t.
func (w *World) Advance(t plugins.Time) {
	for w.now < t && w.Step(t) {
	}
	w.settle()
}

// Ended is the number of calls that had to wait and have ended.
func (w *World) Ended() int { return w.ended }

func (w *World) alarm(at plugins.Time) { w.alarms = append(w.alarms, at) }

// Result is what a call returns: Ret, or -1 and Err.
type Result struct {
	Ret int
	Err error // an Errno
}

// A Call does one try of a system call. It returns false if the call has to wait.
type Call func() (Result, bool)

// Pending is a call under way.
type Pending struct {
	call Call
	Result
	Done bool
	At   plugins.Time // when it ended
}

func (p *Pending) try(now plugins.Time) bool {
	if !p.Done {
		if p.Result, p.Done = p.call(); p.Done {
			p.At = now
		}
	}
	return p.Done
}

// Do begins a call, and turns the stack.
func (w *World) Do(c Call) *Pending {
	p := &Pending{call: c}
	if !p.try(w.now) {
		w.waiting = append(w.waiting, p)
	}
	w.settle()
	return p
}

// Cancel takes a call that waits out; it does not end.
func (w *World) Cancel(p *Pending) {
	w.waiting = slices.DeleteFunc(w.waiting, func(q *Pending) bool { return p == q })
}

func (w *World) after(d time.Duration) plugins.Time {
	at := w.now.Add(d)
	w.alarm(at)
	return at
}
