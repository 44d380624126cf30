package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// How long a connection lasts without progress, and without an application.

// stallLimit is how long c may be without progress: what the application has set (RFC 5482, 3; RFC 9293, MUST-21), or R2 of
// RFC 9293, 3.8.3. One that
// nobody holds any more gets less.
func (e *Engine) stallLimit(c *Conn) time.Duration {
	d := or(c.Tuned().UserTimeout, or(e.adoptedTimeout(c), e.cfg.RetransTimeout))
	if c.orphan {
		d = min(d, e.cfg.OrphanTimeout)
	}
	return d
}

// stalled reports whether c has been without progress for too long.
func (e *Engine) stalled(c *Conn) bool {
	return c.stallSince != 0 && e.now.Sub(c.stallSince) >= e.stallLimit(c)
}

// giveUp ends a connection that gets no answers.
func (e *Engine) giveUp(c *Conn) {
	e.Stats.AbortOnTimeout++
	e.destroy(c, c.timedOut())
}

// stallEnd is when c's user timeout, or that of an orphan, ends, if it has begun: RTOs lie too far apart to be exact. Never for others.
func (e *Engine) stallEnd(c *Conn) plugins.Time {
	if c.stallSince != 0 && (c.orphan || c.Tuned().UserTimeout > 0 || e.adoptedTimeout(c) > 0) {
		return c.stallSince.Add(e.stallLimit(c))
	}
	return never
}

// finWait2 is how long c may be in FIN-WAIT-2 when nobody holds it any more.
func (e *Engine) finWait2(c *Conn) time.Duration { return or(c.Tuned().FinWait2, e.cfg.FinWait2) }

// adoptOrphan counts a connection that the application has closed and that is not over. It returns false if there are too many, or if
// memory is out: then the peer gets a reset.
func (e *Engine) adoptOrphan(c *Conn) bool {
	if e.Stats.Orphans >= uint64(e.cfg.MaxOrphans) || e.env.Budget.Level() == mem.Full {
		e.Stats.AbortOnMemory++
		e.reset(c)
		e.destroy(c, Aborted)
		return false
	}
	c.counted = true
	e.Stats.Orphans++
	return true
}

// or is v, or def if v is zero.
func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
