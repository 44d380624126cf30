package pace

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/param"
)

// flow is a module's state of one connection. 40 bytes.
type flow struct {
	id       plugins.Flow
	asOf     uint64
	rate     uint64 // what the last event asks for
	answered uint64 // rate of the last line; 0: none yet
	open     bool
	waiting  bool // on the module's list of flows to answer
}

// module answers a line per flow whenever the flow's rate changes. Everything else in the line is the module's configuration.
type module struct {
	rate     rater
	horizon  time.Duration
	credit   uint32
	freeSegs uint32

	chunks  []*[chunk]flow // by slot
	waiting []uint32       // slots of flows with an answer to give
	now     plugins.Time
}

const (
	chunk    = 256
	maxSlots = 1 << 22 // bounds what a corrupted record can make a module allocate
)

func newModule(r *param.Reader, rate rater) *module {
	return &module{
		rate:     rate,
		horizon:  r.Duration("horizon", time.Millisecond, time.Hour),
		credit:   uint32(r.Uint("credit", 0, 100) * CreditOne / 100),
		freeSegs: uint32(r.Uint("free_segs", 0, 1<<20)),
	}
}

// Poll takes all events and answers, for each flow whose rate changed, its present line.
func (m *module) Poll(now plugins.Time, in []Event, out []Line) (n int) {
	m.now = now
	for i := range in {
		m.event(&in[i])
	}
	done := 0
	for _, slot := range m.waiting {
		f := m.slot(slot)
		if f.open && f.rate != f.answered {
			if n == len(out) {
				break
			}
			out[n] = Line{Flow: f.id, AsOf: f.asOf, Rate: f.rate, Horizon: m.horizon, Credit: m.credit, FreeSegs: m.freeSegs}
			f.answered = f.rate
			n++
		}
		f.waiting = false
		done++
	}
	m.waiting = m.waiting[:copy(m.waiting, m.waiting[done:])]
	return n
}

// Deadline is now while answers are left, else never: lines change only by events.
func (m *module) Deadline() plugins.Time {
	if len(m.waiting) > 0 {
		return m.now
	}
	return plugins.Never
}

func (m *module) event(ev *Event) {
	f := m.slot(ev.Flow.Slot)
	if f == nil {
		return
	}
	known := f.open && f.id == ev.Flow
	switch ev.Kind {
	case EvOpen, EvResume:
		// Whoever opens or resumes a flow knows no line of it.
		*f = flow{id: ev.Flow, open: true, waiting: f.waiting}
	case EvUpdate:
		if !known {
			return
		}
	case EvClose:
		if known {
			*f = flow{waiting: f.waiting}
		}
		return
	default:
		return
	}
	f.asOf = ev.ID
	f.rate = max(m.rate(ev), 1)
	if f.rate != f.answered && !f.waiting {
		f.waiting = true
		m.waiting = append(m.waiting, ev.Flow.Slot)
	}
}

// slot returns the state at a slot, or nil if no engine has that many.
func (m *module) slot(i uint32) *flow {
	if i >= maxSlots {
		return nil
	}
	c := int(i / chunk)
	for c >= len(m.chunks) {
		m.chunks = append(m.chunks, nil)
	}
	if m.chunks[c] == nil {
		m.chunks[c] = new([chunk]flow)
	}
	return &m.chunks[c][i%chunk]
}
