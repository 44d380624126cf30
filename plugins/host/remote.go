package host

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
)

// Remote is a module in another process as one worker sees it: a plugins.Module[E, C] and a plugins.Remote. Poll writes the
// events to one ring and returns the commands that have arrived on the other, checked. It never waits for the module, except
// in lockstep.
type Remote[E, C any] struct {
	state  atomic.Uint32
	fault  atomic.Pointer[string] // why it is dead
	notify chan<- struct{}        // told of every change of state; has room for one

	schema   *schema[E, C]
	events   *ring.Producer[E]
	commands *ring.Consumer[C]
	host     *link.HostBlock
	module   *link.ModuleBlock
	bell     *ring.Bell

	pushedAt []plugins.Time // active time at which each slot of the event ring was pushed
	guard    guard
	flows    flowTable[E]
	now      plugins.Time
	rungAt   uint64 // what the module had consumed when it was woken last
	settled  bool   // everything that the module was told is consumed, and its answers are read
	lockstep bool

	full   bool // the last call of Poll filled out, so the worker calls again
	budget int  // commands that Poll may still read until it does not

	credit   int          // commands that the module may have written: see allow
	credited plugins.Time // active time up to which it has had its credit

	dropped, stale, wakes atomic.Uint64
	probe                 latencyProbe
}

// Stats counts what became of the records of a module in a process.
type Stats struct {
	Events   uint64 // written to the ring
	Commands uint64 // read from it
	Dropped  uint64 // events dropped because the ring was full
	Stale    uint64 // commands for flows that are gone
	Wakes    uint64 // times that the parked module had to be woken
	Latency  Latency
}

// Sub takes the counts of an earlier look away.
func (s *Stats) Sub(before *Stats) {
	s.Events -= before.Events
	s.Commands -= before.Commands
	s.Dropped -= before.Dropped
	s.Stale -= before.Stale
	s.Wakes -= before.Wakes
	s.Latency.Sub(&before.Latency)
}

// Add adds those of another module or worker.
func (s *Stats) Add(o *Stats) {
	s.Events += o.Events
	s.Commands += o.Commands
	s.Dropped += o.Dropped
	s.Stale += o.Stale
	s.Wakes += o.Wakes
	s.Latency.add(&o.Latency)
}

func newRemote[E, C any](sch *schema[E, C], seg link.Segment[E, C], bell *ring.Bell, g Guard, lockstep bool, notify chan<- struct{}) (*Remote[E, C], error) {
	ev, err := ring.NewProducer(seg.Events, &seg.Host.EvTail, &seg.Module.EvHead)
	if err != nil {
		return nil, err
	}
	cmd, err := ring.NewConsumer(seg.Commands, &seg.Host.CmdHead, &seg.Module.CmdTail)
	if err != nil {
		return nil, err
	}
	return &Remote[E, C]{
		schema: sch, events: ev, commands: cmd, host: seg.Host, module: seg.Module, bell: bell,
		pushedAt: make([]plugins.Time, len(seg.Events)), guard: newGuard(g), lockstep: lockstep, notify: notify, rungAt: ^uint64(0), credit: maxCredit,
	}, nil
}

// State is Ready, Late or Dead.
func (r *Remote[E, C]) State() plugins.RemoteState { return plugins.RemoteState(r.state.Load()) }

// Fault says why the module is dead; "" if it is not.
func (r *Remote[E, C]) Fault() string {
	if f := r.fault.Load(); f != nil {
		return *f
	}
	return ""
}

// Stats returns the counters. Any goroutine may call it until the module is detached.
func (r *Remote[E, C]) Stats() (s Stats) {
	s = Stats{Events: r.host.EvTail.Pos(), Commands: r.host.CmdHead.Pos(),
		Dropped: r.dropped.Load(), Stale: r.stale.Load(), Wakes: r.wakes.Load()}
	r.probe.read(&s.Latency)
	return s
}

// Poll hands in to the module and returns up to len(out) of the commands that have arrived.
func (r *Remote[E, C]) Poll(now plugins.Time, in []E, out []C) int {
	r.now = now
	if r.State() == plugins.Dead {
		return 0
	}
	r.guard.tick(now)
	r.allow(len(in))
	r.flushClosed(now)
	for i := range in {
		r.admit(&in[i])
	}
	if r.lockstep {
		r.turn(now, len(in), len(out))
	} else {
		r.events.Publish()
		r.wake()
	}
	// The module publishes answers and deadline before it says that it has consumed; read in the opposite order, "all
	// consumed" means that all answers are here.
	consumed := r.events.Consumed()
	deadline := plugins.Time(r.module.Deadline.Load())
	n := r.collect(out)
	if r.judge(consumed, deadline); r.State() == plugins.Dead {
		return 0
	}
	return n
}

// wake rings for a parked module that has events, once until it has read some. One that has just had events dozes instead of
// parking, and costs no system call.
func (r *Remote[E, C]) wake() {
	consumed := r.events.Consumed()
	if consumed == r.events.Next() || consumed == r.rungAt || !r.events.Parked() {
		return
	}
	r.rungAt = consumed
	r.wakes.Add(1)
	r.bell.Ring()
}

// admit writes one event to the ring, or drops it according to the full-ring rule: once an event of a flow was dropped, all
// its further events are, until the worker resumes it.
func (r *Remote[E, C]) admit(e *E) {
	flow, id, class := r.schema.event(e)
	f := r.flows.at(flow.Slot)
	if f == nil {
		r.dropped.Add(1)
		return
	}
	switch class {
	case takes:
		if f.gen != flow.Gen {
			f.gen, f.asOf = flow.Gen, 0
		}
		f.known = true
		if f.dirty = !r.push(e); f.dirty {
			r.drop(f, flow)
			return
		}
		f.asOf = id
		r.probe.asked(flow, id, r.now)
		return
	case givesUp:
		if !r.push(e) {
			r.flows.closed = append(r.flows.closed, *e) // the module must hear of it: kept until there is room
		}
		if f.gen == flow.Gen {
			f.dirty = false
		}
		return
	}
	if f.dirty {
		r.dropped.Add(1)
		return
	}
	if !r.push(e) {
		f.dirty = true
		r.drop(f, flow)
		return
	}
	f.asOf = id
	r.probe.asked(flow, id, r.now)
}

func (r *Remote[E, C]) push(e *E) bool {
	at := r.events.Next()
	if !r.events.Push(e) {
		return false
	}
	r.pushedAt[at&uint64(len(r.pushedAt)-1)] = r.guard.active
	return true
}

func (r *Remote[E, C]) drop(f *flowState, flow plugins.Flow) {
	r.dropped.Add(1)
	r.flows.enqueue(f, flow)
}

// flushClosed writes Close events that found the ring full.
func (r *Remote[E, C]) flushClosed(now plugins.Time) {
	c := r.flows.closed
	if len(c) == 0 {
		return
	}
	n := 0
	for n < len(c) && r.push(&c[n]) {
		n++
	}
	r.flows.closed = c[:copy(c, c[n:])]
}

// collect copies commands out of the ring and keeps those that hold. A worker calls again while out gets full; such calls
// together read no more than what was in the ring at the first: a module that writes as fast as we read must not keep us.
func (r *Remote[E, C]) collect(out []C) int {
	if !r.full || r.lockstep {
		r.budget = r.commands.Len()
	}
	n := 0
	for n < len(out) && r.budget > 0 {
		k := r.commands.Pop(out[n:min(len(out), n+r.budget)])
		if k == 0 {
			break
		}
		r.budget -= k
		if r.credit -= k; r.credit < 0 && !r.lockstep {
			r.die(fmt.Sprintf("it floods its ring: more than %d commands beyond %d for each event and one for each microsecond", maxCredit, r.schema.perEvent))
			return 0
		}
		kept := n
		for i := n; i < n+k; i++ {
			ok, err := r.accept(&out[i])
			if err != nil {
				r.die(err.Error())
				return 0
			}
			if ok {
				out[kept] = out[i]
				kept++
			}
		}
		r.commands.Publish()
		n = kept
	}
	r.full = n == len(out) && n > 0
	return n
}

// maxCredit is how many commands a module may write at once.
const maxCredit = 1 << 17

// allow gives credit for commands: what its events can make a module say, and one for each microsecond that the worker runs. Who writes
// more, for long, is not answering.
func (r *Remote[E, C]) allow(events int) {
	r.credit = min(r.credit+events*r.schema.perEvent+int(r.guard.active.Sub(r.credited)/time.Microsecond), maxCredit)
	r.credited = r.guard.active
}

// accept says whether a command counts. An error means that the module broke the protocol. c is our copy: the module cannot
// change it any more.
func (r *Remote[E, C]) accept(c *C) (bool, error) {
	flow, asOf := r.schema.command(c)
	if int(flow.Slot) >= len(r.flows.slots) {
		return false, fmt.Errorf("command for slot %d, which was never used", flow.Slot)
	}
	f := &r.flows.slots[flow.Slot]
	if f.gen != flow.Gen || !f.known {
		r.stale.Add(1)
		return false, nil
	}
	if asOf > f.asOf {
		return false, fmt.Errorf("command as of event %d of slot %d, of which event %d was the last", asOf, flow.Slot, f.asOf)
	}
	if err := r.schema.check(c); err != nil {
		return false, err
	}
	r.probe.answered(flow, asOf, r.now)
	return true, nil
}

// judge looks at the module's progress and sets the state.
func (r *Remote[E, C]) judge(consumed uint64, deadline plugins.Time) {
	if r.State() == plugins.Dead {
		return
	}
	if r.events.Err() != nil || r.commands.Err() != nil {
		r.die("cursor out of bounds")
		return
	}
	outstanding := int(r.events.Next() - consumed)
	if r.settled = outstanding == 0 && r.commands.Len() == 0; r.settled {
		r.probe.on = false // what was not answered by now needed no answer
	}
	if r.lockstep {
		return // its worker waited for it: it cannot be late
	}
	oldest := r.pushedAt[consumed&uint64(len(r.pushedAt)-1)]
	switch st := r.guard.look(consumed, outstanding, oldest, deadline); st {
	case plugins.Dead:
		r.die(fmt.Sprintf("silent for %v with %d events outstanding", r.guard.Dead, outstanding))
	default:
		r.change(st)
	}
}

// change sets a state that is not Dead, unless the module is dead.
func (r *Remote[E, C]) change(st plugins.RemoteState) {
	if old := r.state.Load(); old != uint32(st) && plugins.RemoteState(old) != plugins.Dead && r.state.CompareAndSwap(old, uint32(st)) {
		r.tell()
	}
}

// die makes the module dead. The first reason stays. Any goroutine may call it.
func (r *Remote[E, C]) die(why string) {
	r.fault.CompareAndSwap(nil, &why)
	if plugins.RemoteState(r.state.Swap(uint32(plugins.Dead))) != plugins.Dead {
		r.tell()
	}
}

func (r *Remote[E, C]) tell() {
	select {
	case r.notify <- struct{}{}:
	default:
	}
}

// Deadline is when the worker should poll again: at once while events or commands are under way, else at the module's own
// deadline.
func (r *Remote[E, C]) Deadline() plugins.Time {
	switch st := r.State(); {
	case st == plugins.Dead:
		return plugins.Never
	case st == plugins.Late:
		return r.now.Add(r.guard.step) // only to see it recover
	case len(r.flows.closed) > 0 || len(r.flows.queue) > 0:
		return r.now
	case !r.settled:
		return r.now
	}
	return max(plugins.Time(r.module.Deadline.Load()), r.now)
}

// Dropped appends the flows that need a Resume, if there is room for them.
func (r *Remote[E, C]) Dropped(dst []plugins.Flow) []plugins.Flow {
	if len(r.flows.queue) == 0 {
		return dst
	}
	// Not for the first free slot: the flows would lose their next events at once.
	room := r.events.Room()
	if room < max(r.events.Cap()/4, 1) {
		return dst
	}
	n := min((room+1)/2, maxDropped)
	if free := cap(dst) - len(dst); free > 0 {
		n = min(n, free) // what does not fit can wait; an allocation cannot be undone
	}
	return r.flows.dequeue(dst, n)
}

// maxDropped is the most flows that Dropped returns at once.
const maxDropped = 256

// Room is how many events the ring takes now.
func (r *Remote[E, C]) Room() int { return r.events.Room() }
