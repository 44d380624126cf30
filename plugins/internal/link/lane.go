package link

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
)

// maxBatch is how many events one Poll of a module gets. Small enough that the first answers are published while the rest waits.
const maxBatch = 256

// A Lane is one worker's module instance between its two rings, on the module's side.
type Lane interface {
	// Turn runs the module if there is something to do at now, and reports whether there was.
	Turn(now plugins.Time) (worked bool)
	// Next is when Turn wants to run without an event.
	Next() plugins.Time
	// Prompt reports whether the host waits for each turn.
	Prompt() bool
	// Park prepares for waiting; it reports false if an event has arrived. Unpark ends it.
	Park() bool
	Unpark()
}

type lane[E, C any] struct {
	module   plugins.Module[E, C]
	events   *ring.Consumer[E]
	commands *ring.Producer[C]
	host     *HostBlock
	own      *ModuleBlock
	in       []E
	out      []C
	deadline plugins.Time
	blocked  bool // no room for answers
	lockstep bool
	turn     uint64 // lockstep: the last turn done
}

// retry is how soon a lane looks again that cannot go on because the host has not read its commands.
const retry = time.Millisecond

// NewLane returns the module's side of a fresh segment. With lockstep it runs exactly the host's turns, at the host's time.
func NewLane[E, C any](m plugins.Module[E, C], s Segment[E, C], lockstep bool) (Lane, error) {
	ev, err := ring.NewConsumer(s.Events, &s.Module.EvHead, &s.Host.EvTail)
	if err != nil {
		return nil, err
	}
	cmd, err := ring.NewProducer(s.Commands, &s.Module.CmdTail, &s.Host.CmdHead)
	if err != nil {
		return nil, err
	}
	l := &lane[E, C]{module: m, events: ev, commands: cmd, host: s.Host, own: s.Module, lockstep: lockstep}
	batch := min(maxBatch, len(s.Events))
	if lockstep {
		batch = len(s.Events) // one turn of the host is one Poll
	}
	l.in = make([]E, batch)
	l.out = make([]C, min(len(s.Commands), max(batch, maxBatch)))
	l.deadline = m.Deadline()
	s.Module.Deadline.Store(int64(l.deadline))
	if !lockstep {
		s.Module.Ran.Store(1)
	}
	return l, nil
}

func (l *lane[E, C]) Turn(now plugins.Time) bool {
	if l.lockstep {
		return l.step()
	}
	// Without room for answers nothing is consumed: the event ring fills, and the host knows what to do about that.
	room := min(l.commands.Room(), len(l.out))
	if l.blocked = room == 0; l.blocked {
		return false
	}
	n := l.events.Pop(l.in)
	if n == 0 && now < l.deadline {
		return false
	}
	l.run(now, n, room)
	return true
}

// step runs one turn of the host: the same events, time and room that a linked-in module would have got.
func (l *lane[E, C]) step() bool {
	turn := l.host.Turn.Load()
	if turn == l.turn {
		return false
	}
	l.turn = turn
	room := min(l.commands.Room(), len(l.out), int(l.host.Room.Load()))
	n := l.events.Pop(l.in)
	l.run(plugins.Time(l.host.Now.Load()), n, room)
	l.own.Ran.Store(turn)
	return true
}

func (l *lane[E, C]) run(now plugins.Time, n, room int) {
	k := l.module.Poll(now, l.in[:n], l.out[:room])
	for i := range l.out[:k] {
		l.commands.Push(&l.out[i])
	}
	// In this order: who sees the events consumed must find the answers and the new deadline.
	l.commands.Publish()
	if d := l.module.Deadline(); d != l.deadline {
		l.deadline = d
		l.own.Deadline.Store(int64(d))
	}
	l.events.Publish()
}

func (l *lane[E, C]) Next() plugins.Time {
	if l.lockstep {
		return plugins.Never // the host's clock runs it, not ours
	}
	if l.blocked {
		return Now().Add(retry) // the host rings for events, not for room
	}
	return l.deadline
}

func (l *lane[E, C]) Prompt() bool { return l.lockstep }

func (l *lane[E, C]) Park() bool {
	if l.blocked {
		return true // events that cannot be consumed do not keep the loop awake
	}
	if !l.events.Park() {
		return false
	}
	if l.lockstep && l.host.Turn.Load() != l.turn {
		l.events.Unpark()
		return false
	}
	return true
}

func (l *lane[E, C]) Unpark() { l.events.Unpark() }
