package memlink

import "github.com/fastpath-tcp/fastpath/plugins"

// kept are the times at which a port that keeps its frames tells that they are sent, in the order in which it took them. The path's
// mutex guards it.
type kept struct {
	at   []plugins.Time // a ring; its length is a power of two
	head int
	n    int
	last plugins.Time // of the latest
}

// push adds a frame that the bottleneck has served at a time.
func (k *kept) push(served plugins.Time, cfg *Path) {
	at := max(served.Add(cfg.Hold), k.last)
	if each := cfg.HoldEach; each > 0 && at > k.last { // told with those before it, or when the interval since then has passed
		at = max(at, k.last.Add(each))
	}
	k.last = at
	if k.n == len(k.at) {
		bigger := make([]plugins.Time, max(64, 2*len(k.at)))
		for i := range k.n {
			bigger[i] = k.at[(k.head+i)&(len(k.at)-1)]
		}
		k.at, k.head = bigger, 0
	}
	k.at[(k.head+k.n)&(len(k.at)-1)] = at
	k.n++
}

// told drops what is told by now.
func (k *kept) told(now plugins.Time) {
	for k.n > 0 && k.at[k.head] <= now {
		k.head = (k.head + 1) & (len(k.at) - 1)
		k.n--
	}
}

// next is when the port tells next that frames are sent, or Never.
func (k *kept) next() plugins.Time {
	if k.n == 0 {
		return plugins.Never
	}
	return k.at[k.head]
}

// keptBy is how many frames of queue q the port still keeps.
func (p *path) keptBy(q *queue, now plugins.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.kept.told(now)
	return q.kept.n
}

// Uncompleted implements pmd.Completer.
func (q *queue) Uncompleted() int {
	if !q.port.holds {
		return 0
	}
	return q.outPath.keptBy(q, q.port.link.clock())
}

// nextSent is when the port tells next that frames of this queue are sent.
func (q *queue) nextSent() plugins.Time {
	if !q.port.holds {
		return plugins.Never
	}
	q.outPath.mu.Lock()
	defer q.outPath.mu.Unlock()
	return q.kept.next()
}
