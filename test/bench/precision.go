package bench

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// precise is one measurement in virtual time.
type precise struct {
	gbit   float64       // target, of payload
	credit int           // percent
	late   time.Duration // pieces leave late by 0 … twice this, evenly; 0: up to half of a piece's time
	pieces int
}

// bytesPerSec is the target in payload bytes per second.
func bytesPerSec(gbit float64) uint64 { return uint64(gbit * 1e9 / 8) }

// pieceBytes is what leaves at one departure time on a path as short as this: 64 KiB, in whole segments.
const pieceBytes = 64 << 10 / benchMSS * benchMSS

// benchMSS is the payload of a full segment without timestamps.
const benchMSS = 1460

// turnCost is what a turn takes in virtual time that has something to do.
const turnCost = 50 * time.Nanosecond

// precision sends pieces in virtual time, with the sender late as told, between two departures that are on time.
func precision(p precise) (*lineMeter, error) {
	rate := bytesPerSec(p.gbit)
	const skip = 100
	m := newLineMeter(rate, p.credit, pieceBytes, skip, p.pieces)
	clock := &virtualClock{now: 1e9}
	s, err := newMemSink(clock, m.sent)
	if err != nil {
		return nil, err
	}
	pace, err := newPacedSender(s, clock, func() { clock.now += 1e3 }, rate, p.credit)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	span := uint64(2 * p.late)
	if span == 0 {
		span = uint64(float64(pieceBytes) / float64(rate) * 1e9 / 2)
	}
	for idle := 0; m.pieces < skip+p.pieces; {
		if pace.turn() {
			clock.now = clock.now.Add(turnCost)
			idle = 0
			continue
		}
		if idle++; idle > 1000 {
			return nil, fmt.Errorf("bench: %v Gbit/s: the sender stops after %d pieces", p.gbit, m.pieces)
		}
		next := max(pace.stack.Deadline(), clock.now+1)
		if m.pieces > skip && m.pieces < skip+p.pieces-4 && next >= m.due() { // the last ones are on time again
			next += plugins.Time(rng.Uint64N(span))
		}
		clock.now = next
	}
	return m, pace.close()
}
