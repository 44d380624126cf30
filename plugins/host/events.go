package host

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// What an Event tells.
const (
	Started    = "started"     // the module is attached and checked
	Stopped    = "stopped"     // it was detached on purpose
	Swapped    = "swapped"     // it serves the flows of For now; Took is the longest loop-boundary work of a worker
	Upgraded   = "upgraded"    // it goes on with the code of another file; Detail says which
	Changed    = "changed"     // it goes on with other parameters; Detail says which
	RolledBack = "rolled back" // its trial has failed, the flows are where they were; Detail says why
	Refused    = "refused"     // it could not be started or used; Detail says why. What was in use stays in use
	WentLate   = "late"        // the fallback has its flows, the process goes on
	CameBack   = "in time"     // it has its flows back; Took is how long it was late
	Crashed    = "crashed"     // it is dead; Detail says why
	FellBack   = "fallback"    // the fallback has its flows; Took is the time since the death was known
	Recovered  = "recovered"   // a new process serves in its place; Took is the time since the death was known
	GaveUp     = "gave up"     // it died too often; the fallback stays
)

// Event is something that happened to a module.
type Event struct {
	Time   time.Time
	Kind   plugins.Kind
	Name   string
	What   string
	PID    int           // 0 if linked in
	Flows  int           // flows that were moved
	Took   time.Duration // see the kinds of event
	Detail string
	To     string            // with RolledBack: the module that new flows get again
	For    plugins.Selection // with Swapped: which flows
}

// eventList keeps the last events, and logs each.
type eventList struct {
	mu   sync.Mutex
	log  *slog.Logger
	max  int
	list []Event
	tell func(Event)
}

func (l *eventList) add(e Event) {
	e.Time = wallNow()
	level := slog.LevelInfo
	switch e.What {
	case WentLate, Crashed, Refused, FellBack, RolledBack:
		level = slog.LevelWarn
	case GaveUp:
		level = slog.LevelError
	}
	attrs := []any{"kind", e.Kind.String(), "module", e.Name}
	if e.PID != 0 {
		attrs = append(attrs, "pid", e.PID)
	}
	if e.Flows != 0 {
		attrs = append(attrs, "flows", e.Flows)
	}
	if e.Took != 0 {
		attrs = append(attrs, "took", e.Took)
	}
	if e.Detail != "" {
		attrs = append(attrs, "detail", e.Detail)
	}
	if e.What == Swapped {
		attrs = append(attrs, "for", e.For.String())
	}
	l.log.Log(context.Background(), level, "module "+e.What, attrs...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == l.max {
		l.list = l.list[:copy(l.list, l.list[1:])]
	}
	l.list = append(l.list, e)
	if l.tell != nil {
		l.tell(e)
	}
}

func (l *eventList) all() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Event(nil), l.list...)
}

// OnEvent makes the manager call f for each event from now on, in order. f must not block, and not call the manager.
func (m *Manager) OnEvent(f func(Event)) {
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	m.events.tell = f
}
