package stack

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// linkEvery is how often a worker that has something to do looks at the port's link, and at memory that nobody needs any more; a sleeping
// one looks when it wakes, which it does within maxSleep.
const linkEvery = 100 * time.Millisecond

// lookAround has the arena give back what is not needed, and notices that the link came back: then it announces our addresses, since
// switches and neighbours may have forgotten where we are, or there are others now.
func (w *Worker) lookAround() {
	if w.index != 0 {
		w.linkAt = plugins.Never
		return
	}
	w.linkAt = w.now.Add(linkEvery)
	w.stack.arena.Age()
	up := w.stack.port.LinkUp()
	switch {
	case up && !w.linkUp:
		w.Stats.LinkUps++
		w.neigh.Announce(w.now)
	case !up && w.linkUp:
		w.Stats.LinkDowns++
	}
	w.linkUp = up
}
