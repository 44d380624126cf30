package bench

import (
	"fmt"
	"runtime"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// realSkip is how many pieces pass before a measurement in real time begins.
const realSkip = 5

// realPieces is how many pieces a run has at the least.
const realPieces = 60

// realRun is how long a run takes: d, or as long as it takes for enough pieces.
func realRun(rate uint64, d time.Duration) time.Duration {
	return max(d, time.Duration(float64(realPieces*pieceBytes)/float64(rate)*1e9))
}

// overPace bounds how many pieces a run can have.
func overPace(rate uint64, d time.Duration) int {
	return int(float64(rate)*d.Seconds()/float64(pieceBytes)) + 2*realSkip + 1000
}

// bareLoop is pacing without a stack: a thread that reads the clock without pause and lets pieces go, which are nothing. What it falls short
// of its rate is the machine's share. gaps are the times during which it did not run. work is done after each piece; its time is no gap.
func bareLoop(rate uint64, d time.Duration, work func()) (m *lineMeter, gaps loopGaps) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m = newLineMeter(rate, 50, pieceBytes, realSkip, overPace(rate, d))
	var clock stack.Monotonic
	var clk pace.Clock
	start := clock.Now()
	for now, last := start, start; now.Sub(start) < d; last = now {
		now = clock.Now()
		gaps.add(now.Sub(last))
		if clk.Depart(&m.line, now) <= now {
			clk.Sent(&m.line, now, pieceBytes)
			m.sent(now, pieceBytes)
			work()
			now = clock.Now()
		}
	}
	return m, gaps
}

// copying is the least work of a sender: each segment's payload is copied into a frame and summed, from a stream that is not in the cache.
// A bare loop with it tells what the machine's memory adds to its gaps.
func copying() (work func()) {
	stream, frames := make([]byte, 64<<20), make([]byte, 8<<20)
	const frame = 2048
	from, to := 0, 0
	return func() {
		for range pieceBytes / benchMSS {
			if from+benchMSS > len(stream) {
				from = 0
			}
			if to == len(frames) {
				to = 0
			}
			wire.SumCopy(frames[to:to+frame], stream[from:from+benchMSS], 0)
			from, to = from+benchMSS, to+frame
		}
	}
}

// loopGaps are the pauses of a loop that never waits.
type loopGaps struct {
	n         int // longer than 10 µs
	sum, most time.Duration
}

func (g *loopGaps) add(d time.Duration) {
	if d > 10*time.Microsecond {
		g.n++
		g.sum += d
		g.most = max(g.most, d)
	}
}

// realTime paces one connection over a sink for d, on a thread that runs the stack's turns without pause.
func realTime(open func(turnClock, func(plugins.Time, int)) (*sink, error), rate uint64, d time.Duration) (m *lineMeter, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m = newLineMeter(rate, 50, pieceBytes, realSkip, overPace(rate, d))
	clock := &loopClock{}
	clock.Now()
	s, err := open(clock, m.sent)
	if err != nil {
		return nil, err
	}
	p, err := newPacedSender(s, clock, func() {}, rate, 50)
	if err != nil {
		return nil, err
	}
	for start := clock.last(); clock.last().Sub(start) < d; {
		p.turn()
	}
	if m.pieces <= realSkip+1 {
		err = fmt.Errorf("bench: only %d pieces left in %v", m.pieces, d)
	}
	if e := p.close(); err == nil {
		err = e
	}
	return m, err
}
