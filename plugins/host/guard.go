package host

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Guard sets when a module in a process counts as late or dead. The zero value means the defaults.
type Guard struct {
	// Late is the age of the oldest unconsumed event at which the fallback takes over. Default 100 ms, or 10 ms if the module
	// has processors of its own.
	Late time.Duration
	// Dead is how long a module may consume nothing while events are outstanding. Default 2 s.
	Dead time.Duration
	// Return is how long a late module must have kept up before its flows come back. It doubles, up to 32 times, with each
	// relapse within Return after coming back. Default 10 times Late.
	Return time.Duration
}

func (g Guard) withDefaults() Guard {
	if g.Late <= 0 {
		g.Late = 100 * time.Millisecond
	}
	if g.Dead <= 0 {
		g.Dead = 2 * time.Second
	}
	if g.Return <= 0 {
		g.Return = 10 * g.Late
	}
	return g
}

// guard measures one module's lateness in its worker's active time: the time that passes between two calls of Poll counts
// only up to step, because a worker that was itself descheduled, or asleep, cannot blame the module for that time.
type guard struct {
	Guard
	step   time.Duration
	last   plugins.Time // of the last tick
	active plugins.Time // active time since the start

	consumed uint64       // as of the last look
	progress plugins.Time // active time of the last look that saw progress, or nothing outstanding

	deadline plugins.Time // the module's own, as of the last look
	overdue  plugins.Time // active time since which that very deadline has been past; -1 if it is not

	late     bool
	since    plugins.Time // active time since which a late module keeps up; -1 while it does not
	returned plugins.Time // active time of its last return
	hold     time.Duration
}

const maxHold = 32

func newGuard(g Guard) guard {
	g = g.withDefaults()
	return guard{Guard: g, step: max(g.Late/4, time.Millisecond), overdue: -1, since: -1, hold: g.Return, deadline: plugins.Never}
}

// tick advances the active time to now.
func (g *guard) tick(now plugins.Time) {
	if g.last != 0 && now > g.last {
		g.active = g.active.Add(min(now.Sub(g.last), g.step))
	}
	g.last = now
}

// look judges the module. consumed counts the events that it has consumed, outstanding those that it has not, oldest is the
// active time when the oldest of these was pushed, deadline the module's own.
func (g *guard) look(consumed uint64, outstanding int, oldest, deadline plugins.Time) plugins.RemoteState {
	if consumed != g.consumed || outstanding == 0 {
		g.consumed, g.progress = consumed, g.active
	}
	if deadline > g.last {
		g.overdue = -1
	} else if g.overdue < 0 || deadline != g.deadline { // it moves, so the module runs
		g.overdue = g.active
	}
	g.deadline = deadline

	var age time.Duration
	if outstanding > 0 {
		if age = g.active.Sub(oldest); g.active.Sub(g.progress) > g.Dead {
			return plugins.Dead
		}
	}
	if g.overdue >= 0 {
		age = max(age, g.active.Sub(g.overdue))
	}
	if g.late {
		g.lookLate(age)
	} else if age > g.Late {
		g.late, g.since = true, -1
		if g.returned != 0 && g.active.Sub(g.returned) < g.hold {
			g.hold = min(2*g.hold, maxHold*g.Return)
		} else {
			g.hold = g.Return
		}
	}
	if g.late {
		return plugins.Late
	}
	return plugins.Ready
}

// lookLate lets a late module return when it has kept up for hold.
func (g *guard) lookLate(age time.Duration) {
	switch {
	case age > g.Late/2:
		g.since = -1
	case g.since < 0:
		g.since = g.active
	case g.active.Sub(g.since) >= g.hold:
		g.late, g.returned = false, g.active
	}
}
