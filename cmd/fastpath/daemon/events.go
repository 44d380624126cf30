package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// maxEvents is the number of events that are kept.
const maxEvents = 1024

// events keeps the last events, and tells who follows of new ones.
type events struct {
	mu      sync.Mutex
	seq     uint64
	list    []control.Event
	changed chan struct{} // closed by the next add
}

func newEvents() *events { return &events{changed: make(chan struct{})} }

// add adds an event. fields are names and values in turn.
func (e *events) add(kind, message string, fields ...any) {
	ev := control.Event{Kind: kind, Message: message, Fields: map[string]string{}}
	for i := 0; i+1 < len(fields); i += 2 {
		ev.Fields[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq++
	ev.Seq, ev.TimeUnixNS = e.seq, time.Now().UnixNano()
	if len(e.list) == maxEvents {
		e.list = e.list[:copy(e.list, e.list[1:])]
	}
	e.list = append(e.list, ev)
	close(e.changed)
	e.changed = make(chan struct{})
}

// after returns the events after seq, and a channel that is closed when there is a further one.
func (e *events) after(seq uint64) ([]control.Event, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := len(e.list)
	for i > 0 && e.list[i-1].Seq > seq {
		i--
	}
	return append([]control.Event(nil), e.list[i:]...), e.changed
}

// Events implements control.Handler.
func (d *Daemon) Events(ctx context.Context, r control.EventsRequest, emit func(control.Event) error) error {
	list, changed := d.events.after(0)
	if r.Last > 0 && len(list) > r.Last {
		list = list[len(list)-r.Last:]
	}
	var seq uint64
	for {
		for _, e := range list {
			if err := emit(e); err != nil {
				return err
			}
			seq = e.Seq
		}
		if !r.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		list, changed = d.events.after(seq)
	}
}
