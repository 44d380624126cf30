package stack

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// linkEvery is how often a worker that has something to do looks at the port's link; a sleeping one looks when it wakes, which it does
// within maxSleep.
const linkEvery = 100 * time.Millisecond

// checkLink notices that the link came back, and announces our addresses: switches and neighbours may have forgotten where we are, or
// there are others now.
func (w *Worker) checkLink() {
	if w.index != 0 {
		w.linkAt = plugins.Never
		return
	}
	w.linkAt = w.now.Add(linkEvery)
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
