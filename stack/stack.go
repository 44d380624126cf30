// Package stack is fastpath's TCP/IP stack over one port: workers, their loop, and what is shared between them.
//
// A Stack has one or more Workers. Each owns a queue of the port, or a share of another worker's, and the flows that steering gives
// it; it runs its own TCP engine, ARP cache and modules, and shares nothing. Package sock gives applications net.Conn, net.Listener
// and a dialer over a Stack.
//
// New starts the workers. With a Clock of its own a stack has none running: the caller calls Turn, and lets time pass until Deadline
// or until the port has frames, which makes every run the same.
package stack

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/autoconf"
	"github.com/fastpath-tcp/fastpath/stack/filter"
	"github.com/fastpath-tcp/fastpath/stack/frag"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/route"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Poll says how a worker runs.
type Poll uint8

const (
	// Adaptive shares a core with the applications: one goroutine runs all adaptive workers in turn, yields every turn, and sleeps when
	// idle.
	Adaptive Poll = iota
	// Spin locks the worker to a thread pinned to Core. It never sleeps.
	Spin
)

// WorkerConfig describes one worker.
type WorkerConfig struct {
	Poll Poll
	Core int // number of the CPU, with Spin
}

// ModuleConfig names a module that is linked in (see package builtin) and its parameters. The zero value is the kind's default: btree,
// edt, cubic.
type ModuleConfig struct {
	Name   string
	Params plugins.Params
}

var defaultModules = [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"}

// Config describes a stack.
type Config struct {
	Port    pmd.Port
	Addrs   []netip.Prefix // addresses of the interface with the length of their network; at least one without SLAAC and Dynamic
	Gateway netip.Addr     // default route of its family; none if not valid
	// IPv6: there is a link-local address if Addrs has an address of IPv6, or with SLAAC.
	Gateway6     netip.Addr // default route of IPv6, which may be link-local; none if not valid
	Dynamic      bool       // there may be no address yet: AddAddr or Readdress, which a DHCP client calls, give some
	SLAAC        bool       // follow router advertisements (RFC 4861, 6.3; RFC 4862)
	DADTransmits int        // how often an address is asked for before it is used; default 1, negative: used at once
	// Secret goes into the identifiers of link-local and SLAAC addresses (RFC 7217): with the same one they are the same after every
	// start. Default: made from Seed.
	Secret    []byte
	Workers   []WorkerConfig // default: one adaptive worker
	Modules   [plugins.NumKinds]ModuleConfig
	TCP       tcp.Config
	Exception *Exception    // way to the host's kernel; default: none
	Filter    *filter.Table // packet filter; default: none
	Frag      frag.Config   // limits of reassembly, per worker; its Budget is this stack's
	Budget    *mem.Budget   // memory limits; default: none
	Arena     *mem.Arena    // default: a new one on Budget; stacks of a process may share one
	Clock     Clock         // default: Monotonic. With another clock the caller runs Turn
	Poller    *Poller       // default: DefaultPoller
	Seed      uint64        // of keys and random draws; 0: random. Give it only to make a simulation repeatable
	Log       *slog.Logger
}

// Stack is a TCP/IP stack over one port.
type Stack struct {
	cfg      Config
	port     pmd.Port
	mac      wire.MAC
	mtu      int
	addr     addressing
	auto     *autoconf.Host              // the first worker's
	routes   atomic.Pointer[route.Table] // replaced as a whole; workers take it up at their next turn
	workers  []*Worker
	steer    *steering
	arena    *mem.Arena
	budget   *mem.Budget
	fragIDs  *frag.IDs
	except   *exception
	clock    Clock
	manual   bool
	realTime bool
	poller   *Poller
	log      *slog.Logger
	next     atomic.Uint32 // round robin for active opens
	udpPorts *udp.Ports

	mu     sync.Mutex // serialises changes of modules, and Close
	closed bool
}

// ErrClosed is the error of operations on a stack that was closed.
var ErrClosed = errors.New("stack: closed")

// New starts a stack on cfg.Port, which it owns from then on: Close closes it. After an error the port is still the caller's.
func New(cfg Config) (*Stack, error) {
	if cfg.Port == nil {
		return nil, errors.New("stack: Config.Port is nil")
	}
	info := cfg.Port.Info()
	if len(info.MAC) != 6 {
		return nil, fmt.Errorf("stack: port %s has no Ethernet address", info.Name)
	}
	if len(cfg.Workers) == 0 {
		cfg.Workers = []WorkerConfig{{}}
	}
	s := &Stack{cfg: cfg, port: cfg.Port, mac: wire.MAC(info.MAC), mtu: info.MTU, clock: cfg.Clock, poller: cfg.Poller, log: cfg.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.manual = s.clock != nil
	if s.clock == nil {
		s.clock = Monotonic{}
	}
	_, s.realTime = s.clock.(Monotonic)
	if s.poller == nil {
		s.poller = &DefaultPoller
	}
	if err := s.memory(); err != nil {
		return nil, err
	}
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	if err := s.addresses(seed); err != nil {
		return nil, err
	}
	if cfg.TCP.MTU == 0 || cfg.TCP.MTU > info.MTU {
		s.cfg.TCP.MTU = info.MTU
	}
	var err error
	if s.steer, err = newSteering(info, cfg.Port.NumQueues(), len(cfg.Workers)); err != nil {
		return nil, err
	}
	if err := s.makeWorkers(seed); err != nil {
		return nil, errors.Join(err, s.unmapHandPools())
	}
	if err := s.makeException(); err != nil {
		return nil, errors.Join(err, s.unmapHandPools())
	}
	if n, err := s.startWorkers(); err != nil {
		s.stopWorkers(s.workers[:n])
		return nil, errors.Join(err, s.unmapHandPools())
	}
	if s.except != nil && !s.manual {
		if err := s.except.start(); err != nil {
			s.stopWorkers(s.workers)
			return nil, errors.Join(err, s.unmapHandPools())
		}
	}
	return s, nil
}

func (s *Stack) memory() (err error) {
	s.budget, s.arena = s.cfg.Budget, s.cfg.Arena
	if s.arena != nil {
		s.budget = s.arena.Budget()
		return nil
	}
	if s.budget == nil {
		if s.budget, err = mem.NewBudget(mem.Limits{}); err != nil {
			return err
		}
	}
	s.arena = mem.NewArena(s.budget)
	return nil
}

// handPool is the pool of a worker without a queue.
const handPool = 4096

func (s *Stack) makeWorkers(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0x66617374))
	keys := tcp.NewKeys(rng)
	s.fragIDs = frag.NewIDs(drawKey(rng))
	low, high := s.cfg.TCP.Ports()
	s.udpPorts = udp.NewPorts(drawKey(rand.New(rand.NewPCG(seed, 0x756470))), low, high)
	now := s.clock.Now()
	for i, wc := range s.cfg.Workers {
		w := &Worker{index: i, stack: s, clock: s.clock, now: now, core: wc.Core, spins: wc.Poll == Spin, linkUp: true, done: make(chan struct{})}
		if i < s.port.NumQueues() {
			w.queue = s.port.Queue(i)
			w.pool, w.owner = w.queue.Pool(), w
		} else {
			var err error
			if w.pool, err = pmd.NewPool(fmt.Sprintf("%s worker %d", s.port.Info().Name, i), handPool, s.port.Queue(0).Pool().At(0).Cap()+pmd.Headroom); err != nil {
				return err
			}
			w.owner = s.workers[i%s.port.NumQueues()]
		}
		w.anyPool = s.port.Info().Caps&pmd.AnyPool != 0
		w.prompt = s.port.Info().Caps&pmd.Prompt != 0 && w.queue != nil
		if s.port.Info().Caps&pmd.Copies == 0 {
			w.keeper, _ = w.queue.(pmd.Completer)
		}
		w.fifo = pmd.NewFifo(fifoDepth)
		w.out = make([]chain, len(s.cfg.Workers))
		w.filter.Use(s.cfg.Filter)
		fc := s.cfg.Frag
		fc.Budget = s.budget
		w.frags = frag.New(fc)
		w.neigh = neigh.New(neigh.Config{MAC: s.mac, Seed: rng.Uint64()}, now)
		w.engine = tcp.New(s.cfg.TCP, tcp.Env{
			Pool: w.pool, Fifo: w.fifo, Caps: s.port.Info().Caps, Keeps: w.keeper != nil, MaxTSO: s.port.Info().MaxTSO, MAC: s.mac, Arena: s.arena, Budget: s.budget, Keys: keys,
			Seed: rng.Uint64(), Link: w, Mine: s.mine(i), Wake: w.wake, Kicked: w.kicked,
		}, now)
		if err := s.builtins(w, rng.Uint64()); err != nil {
			return err
		}
		if i == 0 {
			w.auto = s.auto
		}
		w.adopt(s.routes.Load())
		w.udp = udp.New(udp.Env{Arena: s.arena, Link: w, Wake: w.wake, Kicked: w.kicked}, now)
		s.workers = append(s.workers, w)
	}
	return nil
}

// drawKey draws a secret.
func drawKey(rng *rand.Rand) (k [32]byte) {
	for i := range k {
		k[i] = byte(rng.Uint32())
	}
	return k
}

// mine makes the test of whether a flow comes to worker i.
func (s *Stack) mine(i int) func(*tcp.Tuple) bool {
	if len(s.cfg.Workers) == 1 {
		return func(*tcp.Tuple) bool { return true }
	}
	return func(k *tcp.Tuple) bool { return s.steer.tuple(k) == i }
}

// builtins attaches the configured built-in modules: they have index 0 and are the fallbacks.
func (s *Stack) builtins(w *Worker, seed uint64) error {
	for k := range plugins.NumKinds {
		mc := s.cfg.Modules[k]
		if mc.Name == "" {
			mc.Name = defaultModules[k]
		}
		entry, ok := builtin.Find(k, mc.Name)
		if !ok {
			return fmt.Errorf("stack: no built-in %v module %q (there are %v)", k, mc.Name, builtin.Names(k))
		}
		m, err := entry.New(mc.Params, seed)
		if err != nil {
			return fmt.Errorf("stack: %v module %s: %w", k, mc.Name, err)
		}
		if _, err := w.engine.Attach(k, mc.Name, m); err != nil {
			return err
		}
	}
	return nil
}

// startWorkers returns how many it has started.
func (s *Stack) startWorkers() (int, error) {
	if s.manual {
		return 0, nil
	}
	for _, w := range s.workers { // before any runs: workers wake each other
		if !w.spins {
			w.wakeup = s.poller.wake
		}
	}
	for i, w := range s.workers {
		start := s.poller.add
		if w.spins {
			start = startSpinning
		}
		if err := start(w); err != nil {
			return i, err
		}
	}
	return len(s.workers), nil
}

// stopWorkers ends workers and waits for them.
func (s *Stack) stopWorkers(ws []*Worker) {
	for _, w := range ws {
		w.ctlMu.Lock()
		w.stopping.Store(true)
		w.ctlMu.Unlock()
		w.kicked()
		if s.manual {
			w.finish()
		}
	}
	for _, w := range ws {
		<-w.done
		switch {
		case s.manual:
		case w.spins:
			stopSpinning(w)
		default:
			s.poller.remove(w)
		}
	}
}

// unmapHandPools releases the pools of workers without a queue, which no port does.
func (s *Stack) unmapHandPools() error {
	var errs []error
	for _, w := range s.workers {
		if w.queue == nil {
			errs = append(errs, w.pool.Unmap())
		}
	}
	return errors.Join(errs...)
}

// Turn runs every worker's loop once, for a stack with its own Clock. It reports whether there was anything to do.
func (s *Stack) Turn() (busy bool) {
	for _, w := range s.workers {
		busy = w.turn() || busy
	}
	if s.except != nil {
		busy = s.except.pump(s.clock.Now()) || busy
	}
	return busy
}

// Deadline is the next time at which a stack with its own Clock wants a Turn without input.
func (s *Stack) Deadline() plugins.Time {
	at := plugins.Never
	for _, w := range s.workers {
		at = min(at, w.deadline())
	}
	return at
}

// Clock is the stack's clock.
func (s *Stack) Clock() Clock { return s.clock }

// Port is the port that the stack drives.
func (s *Stack) Port() pmd.Port { return s.port }

// Workers is the number of workers.
func (s *Stack) Workers() int { return len(s.workers) }

// Close resets all connections, stops the workers and closes the port. It returns a *pmd.LeakError if buffers are missing.
func (s *Stack) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.mu.Unlock()
	s.stopWorkers(s.workers)
	if s.except != nil {
		s.except.stop()
	}
	errs := []error{}
	for _, w := range s.workers { // what others handed to a worker that had ended
		for _, b := range []*pmd.Buf{w.inbox.take(), w.txbox.take()} {
			for b != nil {
				next := b.Next
				b.Free()
				b = next
			}
		}
	}
	for _, w := range s.workers {
		if w.queue == nil {
			if err := w.pool.CheckLeaks(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errors.Join(errs...), s.closeException(), s.port.Close(), s.unmapHandPools(), s.closeArena())
}

// closeArena unmaps the stack's own memory. If an application has not closed a connection yet, what it has not read stays.
func (s *Stack) closeArena() error {
	if s.cfg.Arena != nil {
		return nil
	}
	err := s.arena.Close()
	if leak := (*mem.LeakError)(nil); errors.As(err, &leak) {
		return nil
	}
	return err
}

// each runs f on every worker, one after the other, at a loop boundary.
func (s *Stack) each(f func(w *Worker)) (all bool) {
	all = true
	for _, w := range s.workers {
		if !w.do(func() { f(w) }) {
			all = false
		}
	}
	return all
}
