// Package mem is the stack's memory off the Go heap: a budget for the whole process, and arenas of chunks for byte streams.
package mem

import (
	"fmt"
	"math"
	"sync/atomic"
)

// Level is how full a Budget is.
type Level uint32

// Levels of a Budget.
const (
	Normal   Level = iota
	Pressure       // buffers stop growing, then windows shrink
	Full           // new flows are refused; memory is given only while it stays below the high limit
)

func (l Level) String() string {
	switch l {
	case Normal:
		return "normal"
	case Pressure:
		return "pressure"
	}
	return "full"
}

// Limits of a Budget in bytes, rising. Zero High means no limits.
type Limits struct {
	Low      int64 // pressure ends below
	Pressure int64 // pressure begins above
	High     int64 // nothing is given above
}

// Check returns an error if the limits do not rise.
func (l Limits) Check() error {
	if l == (Limits{}) || 0 < l.Low && l.Low <= l.Pressure && l.Pressure <= l.High {
		return nil
	}
	return fmt.Errorf("mem: limits low %d, pressure %d, high %d do not rise", l.Low, l.Pressure, l.High)
}

// Budget counts the bytes in use of one process against limits. All methods may be called from any goroutine.
type Budget struct {
	used  atomic.Int64
	level atomic.Uint32
	_     [48]byte

	low, pressure, high, calm atomic.Int64 // calm: Full ends at or below

	mapped    atomic.Int64
	peak      atomic.Int64
	pressures atomic.Uint64
	fulls     atomic.Uint64
	refusals  atomic.Uint64
}

// NewBudget returns a budget with limits that pass Check.
func NewBudget(l Limits) (*Budget, error) {
	b := new(Budget)
	return b, b.SetLimits(l)
}

// SetLimits replaces the limits.
func (b *Budget) SetLimits(l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	if l.High == 0 {
		l = Limits{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	}
	b.low.Store(l.Low)
	b.pressure.Store(l.Pressure)
	b.high.Store(l.High)
	b.calm.Store(l.Pressure + (l.High-l.Pressure)/2)
	b.update(b.used.Load(), false)
	return nil
}

// crowded reports whether more is mapped than may be used without pressure.
func (b *Budget) crowded() bool { return b.mapped.Load() > b.pressure.Load() }

// Add takes n bytes even beyond the high limit.
func (b *Budget) Add(n int64) { b.update(b.used.Add(n), false) }

// Sub gives n bytes back.
func (b *Budget) Sub(n int64) { b.update(b.used.Add(-n), false) }

// TryAdd takes n bytes and reports true, or takes nothing if they would pass the high limit. A refusal makes the budget Full.
func (b *Budget) TryAdd(n int64) bool {
	used := b.used.Add(n)
	if used > b.high.Load() {
		b.refusals.Add(1)
		b.update(b.used.Add(-n), true)
		return false
	}
	b.update(used, false)
	return true
}

// update moves the level. It changes late in both directions: pressure begins above Pressure and ends below Low; Full begins
// with a refusal, or above High, and ends halfway between Pressure and High.
func (b *Budget) update(used int64, refused bool) {
	for p := b.peak.Load(); used > p && !b.peak.CompareAndSwap(p, used); p = b.peak.Load() {
	}
	for {
		old := Level(b.level.Load())
		l := old
		switch used := b.used.Load(); {
		case refused || used > b.high.Load():
			l = Full
		case old == Full && used > b.calm.Load():
		case used > b.pressure.Load(), old != Normal && used >= b.low.Load():
			l = Pressure
		default:
			l = Normal
		}
		if l == old {
			return
		}
		if b.level.CompareAndSwap(uint32(old), uint32(l)) {
			switch {
			case l == Full:
				b.fulls.Add(1)
			case l == Pressure && old == Normal:
				b.pressures.Add(1)
			}
			refused = false // look again: used may have changed meanwhile
		}
	}
}

// Used is the number of bytes in use.
func (b *Budget) Used() int64 { return b.used.Load() }

// Level is how full the budget is.
func (b *Budget) Level() Level { return Level(b.level.Load()) }

// shareOf is the part of what is left that one stream may hold under pressure.
const shareOf = 4096

// Share is how many bytes one stream may hold now. While memory is plenty there is no limit. Above Pressure it is a part of what is
// left, at least a small chunk: many streams that are not emptied get less and less, and do not take it all (as switches share their
// buffers: Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998). It is a size of chunks, so that none is taken for a part of it.
func (b *Budget) Share() uint64 {
	if b.Level() == Normal {
		return math.MaxUint64
	}
	left := (b.high.Load() - b.used.Load()) / shareOf
	switch {
	case left >= int64(classSize[Large]):
		return uint64(left)
	case left >= int64(classSize[Medium]):
		return uint64(classSize[Medium])
	}
	return uint64(classSize[Small])
}

// AddMapped counts n bytes as mapped, in use or not; n may be negative.
func (b *Budget) AddMapped(n int64) { b.mapped.Add(n) }

// Stats are a budget's figures.
type Stats struct {
	Limits
	Level     string
	Used      int64  // bytes
	Peak      int64  // largest Used
	Mapped    int64  // bytes mapped, in use or free
	Pressures uint64 // times that pressure began
	Fulls     uint64 // times that it became full
	Refusals  uint64 // requests refused
}

// Stats returns the figures.
func (b *Budget) Stats() Stats {
	return Stats{
		Limits: Limits{b.low.Load(), b.pressure.Load(), b.high.Load()},
		Level:  b.Level().String(), Used: b.used.Load(), Peak: b.peak.Load(), Mapped: b.mapped.Load(),
		Pressures: b.pressures.Load(), Fulls: b.fulls.Load(), Refusals: b.refusals.Load(),
	}
}
