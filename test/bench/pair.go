// Package bench measures the stack on work that can be compared with other stacks: two stacks of one process joined in memory, MTU 1500,
// no offloads, checksums computed and verified, payload copied in and out through net.Conn.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Options of a benchmark.
type Options struct {
	Size  int           // bytes per write or message
	Time  time.Duration // how long to run
	Count int           // connections, for cps and idle
	Flows int           // connections at once, for bulk and rr; default 1
	Spin  bool          // the server's worker is locked to the last core, with a notifier, instead of sharing the polling goroutine
	// Pollers is the number of polling goroutines of the two stacks: 1, which runs both in turn, or 2, as if each stack were a process
	// of its own. Bulk transfers are faster with 2 where there are two cores, request and response with 1. Default 1.
	Pollers int
	// Procs is GOMAXPROCS for the run; 0 leaves it. With 1, the polling goroutine and the applications run to completion on one
	// processor and no wake-up crosses to another, which is the fastest way to exchange small messages.
	Procs int
	// Link is the path of the writer's frames; the reader's have its delay and jitter. The zero value is a link that does nothing.
	Link    memlink.Path
	TCP     tcp.Config                           // of both stacks
	Modules [plugins.NumKinds]stack.ModuleConfig // default: btree, none (the peer stacks do not pace either), reno
	// Attach, if set, is called with both stacks before the work starts, to give them further modules.
	Attach func(a, b *stack.Stack) (cleanup func(), err error)
	// Look, if set, is called at the start and at the end of the measured time of Bulk.
	Look func(end bool)
}

// link is the link between the stacks. One that delays frames has room for what is on its way.
func (o *Options) link() memlink.Config {
	c := memlink.Config{Now: stack.Monotonic{}.Now, Ring: ring, AtoB: o.Link, BtoA: memlink.Path{Delay: o.Link.Delay, Jitter: o.Link.Jitter}}
	if o.Link.Delay > 0 {
		c.Ring = 4096
	}
	return c
}

// pair is two stacks joined in memory.
type pair struct {
	a, b  *stack.Stack
	arena *mem.Arena
	ln    *sock.Listener
	dial  *sock.Dialer
	undo  func()
	procs int // GOMAXPROCS as it was; 0: not changed
}

// spinProcs is the least GOMAXPROCS with a spinning worker: that, the poller of the adaptive one, and the applications.
const spinProcs = 3

const port = 80

// ring is how many frames the link holds each way: as many as a virtio queue. What waits in it must fit into the caches.
const ring = 256

func newPair(o Options) (_ *pair, err error) {
	o.setModules()
	pa, pb, err := memlink.New(o.link())
	if err != nil {
		return nil, err
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		return nil, err
	}
	p := &pair{arena: mem.NewArena(budget), undo: func() {}}
	if n := o.procs(); n > 0 {
		p.procs = runtime.GOMAXPROCS(n)
		defer func() {
			if err != nil {
				runtime.GOMAXPROCS(p.procs)
			}
		}()
	}
	cfg := func(i int) stack.Config {
		c := stack.Config{Arena: p.arena, TCP: o.TCP, Modules: o.Modules, Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24)}}
		if o.Pollers == 2 {
			c.Poller = new(stack.Poller)
		}
		if o.Spin && i == 1 { // one only: applications and the client's worker need a core, and this may be one of two
			c.Workers = []stack.WorkerConfig{{Poll: stack.Spin, Core: runtime.NumCPU() - 1}}
		}
		return c
	}
	ca, cb := cfg(0), cfg(1)
	ca.Port, cb.Port = pa, pb
	if p.a, err = stack.New(ca); err != nil {
		return nil, err
	}
	if p.b, err = stack.New(cb); err != nil {
		return nil, errors.Join(err, p.a.Close())
	}
	if o.Attach != nil {
		undo, err := o.Attach(p.a, p.b)
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.undo = undo
	}
	p.dial = &sock.Dialer{Stack: p.a}
	if p.ln, err = sock.ListenAddr(p.b, p.addr(), 1<<16); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *pair) addr() netip.AddrPort { return netip.AddrPortFrom(p.b.Addrs()[0].Addr(), port) }

func (p *pair) connect() (*sock.Conn, error) { return p.dial.DialAddr(context.Background(), p.addr()) }

// stats are the counters of both stacks.
func (p *pair) stats() (s tcp.Stats) {
	for _, st := range []*stack.Stack{p.a, p.b} {
		for _, w := range st.Stats() {
			s.Add(&w.TCP)
		}
	}
	return s
}

func (p *pair) close() error {
	if p.ln != nil {
		p.ln.Close() //nolint:errcheck // of a stack that lives
	}
	p.undo()
	err := errors.Join(p.a.Close(), p.b.Close())
	if p.procs > 0 {
		runtime.GOMAXPROCS(p.procs)
	}
	return err
}

// usage is what the process has used up.
type usage struct {
	cpu    time.Duration
	allocs uint64
	at     time.Time
}

func used() usage {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		panic(fmt.Sprintf("bench: getrusage: %v", err)) // cannot fail with these arguments
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), m.Mallocs, time.Now()}
}

// ranFor reads how long a thread has run.
func ranFor(schedstat string) time.Duration {
	b, err := os.ReadFile(schedstat)
	if err != nil { // it has ended
		return 0
	}
	var ns int64
	if _, err := fmt.Sscan(string(b), &ns); err != nil {
		return 0
	}
	return time.Duration(ns)
}

// procs is what GOMAXPROCS is set to; 0: left as it is. A spinning worker needs one processor for each polling goroutine, and one for the
// applications: otherwise these wait for a preemption.
func (o *Options) procs() int {
	if o.Spin {
		return max(runtime.GOMAXPROCS(0), spinProcs)
	}
	return o.Procs
}
