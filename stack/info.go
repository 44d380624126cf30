package stack

import (
	"time"

	"github.com/fastpath-tcp/fastpath/stack/autoconf"
	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
)

// Histogram counts durations: bucket i holds those of at least 2^i and below 2^(i+1) nanoseconds.
type Histogram struct {
	Buckets [32]uint64
	Sum     time.Duration
	Max     time.Duration
}

func (h *Histogram) add(d time.Duration) {
	h.Buckets[log2(d)]++
	h.Sum += d
	h.Max = max(h.Max, d)
}

func log2(d time.Duration) int {
	n := 0
	for d > 1 && n < 31 {
		d >>= 1
		n++
	}
	return n
}

// WorkerStats are a worker's figures.
type WorkerStats struct {
	Index, Queue  int // Queue is -1 if the worker has none
	Core          int // -1 if the worker is not pinned
	Poll          Poll
	TCP           tcp.Stats
	UDP           udp.Stats
	L3            L3Stats
	Neigh         neigh.Stats
	Autoconf      autoconf.Stats // of the first worker
	Frag          frag.Stats
	Busy, Idle    uint64 // turns with and without work
	Parks         uint64 // times that it slept
	Parked        time.Duration
	Turn          Histogram // durations of one busy turn in sixteen
	Gap           Histogram // from one turn's end to the next one's start, sleeps left out: what applications and others took
	PoolFree      int       // buffers of the worker's pool that it does not hold; what the driver keeps is free too
	PoolLen       int       // buffers of the pool
	NotifierFull  uint64    // times that a spinning worker woke an application itself, because the notifier was behind
	FramesWaiting int       // frames in the FIFO
}

// Stats returns the figures of all workers, each taken at a loop boundary.
func (s *Stack) Stats() (all []WorkerStats) {
	s.each(func(w *Worker) {
		st := WorkerStats{
			Index: w.index, Queue: -1, Core: -1, TCP: w.engine.Stats, UDP: w.udp.Stats, L3: w.Stats, Neigh: w.neigh.Stats(), Frag: w.frags.Stats(),
			Busy: w.turns.busy, Idle: w.turns.idle, Parks: w.turns.parks, Parked: w.turns.parked, Turn: w.turns.turn, Gap: w.turns.gap,
			PoolFree: w.pool.NotHeld(), PoolLen: w.pool.Len(), FramesWaiting: w.fifo.Len(),
		}
		if w.auto != nil {
			st.Autoconf = w.auto.Stats()
		}
		if w.queue != nil {
			st.Queue = w.index
		}
		if w.spins {
			st.Core, st.Poll = w.core, Spin
			st.NotifierFull = w.notify.full.Load()
		}
		all = append(all, st)
	})
	return all
}

// Conns returns a snapshot of all connections but those in TIME-WAIT.
func (s *Stack) Conns() (all []tcp.Info) {
	s.each(func(w *Worker) {
		w.engine.Conns(func(c *tcp.Conn) {
			i := w.engine.Info(c)
			i.Worker = w.index
			all = append(all, i)
		})
		w.engine.HalfOpens(func(i tcp.Info) {
			i.Worker = w.index
			all = append(all, i)
		})
	})
	return all
}

// TimeWaits returns what is known of the connections in TIME-WAIT: their place, state, addresses and timer.
func (s *Stack) TimeWaits() (all []tcp.Info) {
	s.each(func(w *Worker) {
		w.engine.TimeWaits(func(i tcp.Info) {
			i.Worker = w.index
			all = append(all, i)
		})
	})
	return all
}

// Memory returns the figures of the memory budget.
func (s *Stack) Memory() mem.Stats { return s.budget.Stats() }

// AutoCork reports whether small writes of connections wait for others while the port is busy, unless they say otherwise.
func (s *Stack) AutoCork() bool { return !s.cfg.TCP.NoAutoCork }
