package sock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// alarm is a deadline of a listener, for which no worker keeps a timer.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	gen   int
	rang  atomic.Bool
}

func (a *alarm) passed() bool { return a.rang.Load() }

// set moves the deadline to t, or away if t is zero, and has wake called now and then.
func (a *alarm) set(t time.Time, wake func()) {
	a.mu.Lock()
	if a.timer != nil {
		a.timer.Stop()
	}
	a.gen++
	gen := a.gen
	d := time.Until(t)
	a.rang.Store(!t.IsZero() && d <= 0)
	if !t.IsZero() && d > 0 {
		a.timer = time.AfterFunc(d, func() {
			a.mu.Lock()
			current := gen == a.gen
			if current {
				a.rang.Store(true)
			}
			a.mu.Unlock()
			if current {
				wake()
			}
		})
	}
	a.mu.Unlock()
	wake()
}

// withDeadline bounds ctx by the dialer's timeout and deadline.
func (d *Dialer) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	at := d.Deadline
	if d.Timeout != 0 { // less than 0 too, as in package net
		if t := time.Now().Add(d.Timeout); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if at.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, at)
}

// leastShare is what each of several addresses gets at least, if there is as much.
const leastShare = 2 * time.Second

// share bounds ctx so that the other addresses left get their part of the time, as in package net.
func share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || left < 2 {
		return ctx, func() {}
	}
	rest := time.Until(end)
	return context.WithTimeout(ctx, min(max(rest/time.Duration(left), leastShare), rest))
}
