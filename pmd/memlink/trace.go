package memlink

import (
	"math/bits"
	"sort"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Trace is a rate that changes with time: Steps, or Opportunities. Paths may share one; it must not change while they have it.
type Trace struct {
	Start plugins.Time // the times below count from here

	// Steps are ordered by At, the first of which is 0. The last one's rate, which is not 0, holds for ever.
	Steps []Step

	// Opportunities are the times, in ascending order, at which the bottleneck takes up to OpportunityBytes out of its queue; what it
	// does not find there is lost to it. With the last one, which is later than 0, they begin anew. Mahimahi's traces are such.
	Opportunities []time.Duration
}

// Step is a rate from a time on, in bits per second.
type Step struct {
	At   time.Duration
	Rate uint64
}

// OpportunityBytes is what an opportunity carries: a packet of 1500 bytes in its Ethernet header.
const OpportunityBytes = 1514

// maxRate bounds rates, in bits per second.
const maxRate = 1e15

func (t *Trace) validate(name string, e *errs) {
	e.check((len(t.Steps) == 0) != (len(t.Opportunities) == 0), "%s.Trace: either Steps or Opportunities are needed", name)
	last := time.Duration(-1)
	for i, s := range t.Steps {
		e.check(s.At > last && (i > 0 || s.At == 0), "%s.Trace.Steps[%d]: times ascend from 0", name, i)
		e.check(s.Rate <= maxRate, "%s.Trace.Steps[%d]: %d is more than 10^15 bits per second", name, i, s.Rate)
		e.check(s.Rate > 0 || i < len(t.Steps)-1, "%s.Trace.Steps[%d]: the last rate holds for ever, and is 0", name, i)
		last = s.At
	}
	last = 0
	for i, at := range t.Opportunities {
		e.check(at >= last, "%s.Trace.Opportunities[%d]: times ascend", name, i)
		last = at
	}
	e.check(len(t.Opportunities) == 0 || last > 0 && last <= time.Hour, "%s.Trace.Opportunities: the last time is not in 1ns … 1h", name)
}

// peak is the highest rate, over 100 ms where that are opportunities.
func (t *Trace) peak() (rate uint64) {
	for _, s := range t.Steps {
		rate = max(rate, s.Rate)
	}
	first := 0
	for i, at := range t.Opportunities {
		for at-t.Opportunities[first] >= 100*time.Millisecond {
			first++
		}
		rate = max(rate, uint64(i-first+1)*OpportunityBytes*8*10)
	}
	return rate
}

// Bits is how much the bottleneck can serve from one time to another, which may lie 5 h apart at the highest rate.
func (t *Trace) Bits(from, to plugins.Time) uint64 {
	a, b := max(from.Sub(t.Start), 0), max(to.Sub(t.Start), 0)
	if len(t.Opportunities) > 0 {
		return (t.count(b) - t.count(a)) * OpportunityBytes * 8
	}
	sum := uint64(0)
	for i, s := range t.Steps {
		end := b
		if i+1 < len(t.Steps) {
			end = min(end, t.Steps[i+1].At)
		}
		if begin := max(a, s.At); begin < end {
			sec, ns := uint64((end-begin)/time.Second), uint64((end-begin)%time.Second)
			hi, lo := bits.Mul64(ns, s.Rate)
			part, _ := bits.Div64(hi, lo, uint64(time.Second))
			sum += sec*s.Rate + part
		}
	}
	return sum
}

// count is the number of opportunities before d.
func (t *Trace) count(d time.Duration) uint64 {
	n := len(t.Opportunities)
	period := t.Opportunities[n-1]
	in := sort.Search(n, func(i int) bool { return t.Opportunities[i] >= d%period })
	return uint64(d/period)*uint64(n) + uint64(in)
}

// schedule is how far a bottleneck is in its trace.
type schedule struct {
	*Trace
	i     int   // in Steps or Opportunities
	cycle int64 // times that the opportunities have begun anew
	left  int   // bytes of this opportunity
}

// follow makes the schedule that of t, which may be nil.
func (s *schedule) follow(t *Trace) {
	if s.Trace != t {
		*s = schedule{Trace: t, left: OpportunityBytes}
	}
}

// work serves an amount of work, in bits·ns/s, from busy on, which does not lie before what the last call returned. It says when that is
// done, and what is left over to less than a ns.
func (s *schedule) work(busy plugins.Time, work uint64) (at plugins.Time, rest uint64) {
	for {
		rate, end := s.Steps[s.i].Rate, plugins.Never
		if s.i+1 < len(s.Steps) {
			end = s.Start.Add(s.Steps[s.i+1].At)
		}
		if busy < end && rate > 0 {
			hi, most := bits.Mul64(uint64(end-busy), rate)
			if hi != 0 || work <= most {
				return busy.Add(time.Duration(work / rate)), work % rate
			}
			work -= most
		}
		busy = max(busy, end)
		s.i++
	}
}

// take serves n bytes by opportunities that do not lie before from, and says which is the last that they need.
func (s *schedule) take(from plugins.Time, n int) plugins.Time {
	if s.at() < from {
		s.seek(from)
	}
	for n > s.left {
		n -= s.left
		if s.i++; s.i == len(s.Opportunities) {
			s.i, s.cycle = 0, s.cycle+1
		}
		s.left = OpportunityBytes
	}
	s.left -= n
	return s.at()
}

// at is the time of the present opportunity.
func (s *schedule) at() plugins.Time {
	period := s.Opportunities[len(s.Opportunities)-1]
	return s.Start.Add(time.Duration(s.cycle)*period + s.Opportunities[s.i])
}

// seek goes to the first opportunity that does not lie before from.
func (s *schedule) seek(from plugins.Time) {
	n := len(s.Opportunities)
	period := s.Opportunities[n-1]
	d := from.Sub(s.Start)
	in := d % period
	s.cycle = int64(d / period)
	if in == 0 && d > 0 { // the last of a period, before the first of the next
		s.cycle, in = s.cycle-1, period
	}
	s.i = sort.Search(n, func(i int) bool { return s.Opportunities[i] >= in })
	s.left = OpportunityBytes
}
