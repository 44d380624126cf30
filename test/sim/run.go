package sim

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// listenPort is where the server of every flow listens.
const listenPort = 5001

// Options of a run that do not change its results.
type Options struct {
	Pcap     io.Writer                       // pcapng of all frames as host a sees them
	Progress func(done, total time.Duration) // called once per sample
	Sample   func(flow int, i *tcp.Info)     // called with each flow's figures, once per sample; must not keep them
	Undone   func(flow int, u Undo)          // called after each turn in which a flow's reduction was taken back; may be nil
	Stop     <-chan struct{}                 // ends the run with ErrStopped; may be nil
}

// Undo is a reduction that was taken back: the congestion window just before it and just after that, bytes.
type Undo struct{ Before, After int64 }

// ErrStopped is what Run returns when Options.Stop ended it.
var ErrStopped = errors.New("sim: stopped")

// Result is what came out of a run. The same scenario gives the same result on every machine.
type Result struct {
	Report report.Sim
	Points []report.Point // the time series, in the order of time
	Links  []LinkPoint
	Rounds uint64 // turns of both workers
}

// LinkPoint is a sample of the link's two directions: a to b, and b to a.
type LinkPoint struct {
	TimeNS     int64
	QueueBytes [2]int64 // that wait at the bottleneck
	Dropped    [2]int64 // frames, since the start, by loss and for want of room
}

// host is one end of the running scenario.
type host struct {
	name     string
	stack    *stack.Stack
	memory   *mem.Budget
	addr     netip.Addr
	peer     *host
	mods     map[string]uint8 // by kind, name and parameters: index
	seed     uint64
	external map[string]func(seed uint64) (any, error)
	slots    []*flow          // flows that began here, by the slot of their connection
	byPort   map[uint16]*flow // the same by their local port
	accept   *tcp.Listener
	note     func(now plugins.Time, kind, message string)
}

// runner is a running scenario.
type runner struct {
	s       *Scenario
	o       Options
	w       *World
	hosts   [2]*host
	flows   []*flow
	end     plugins.Time
	events  []Event // still to come
	res     *Result
	capture *trace.Capture
	pcap    *pcap.Writer
	cap     [2]struct { // what each direction's bottleneck could have carried
		bits  uint64
		rate  uint64
		trace *memlink.Trace
		at    plugins.Time
	}
}

// Run runs a scenario. An error means that the scenario could not be run; what went wrong with its flows is in the result.
func Run(s *Scenario, o Options) (*Result, error) {
	r := &runner{s: s, o: o, end: Start.Add(s.Duration.D()), events: s.Events, res: &Result{}}
	if err := r.build(); err != nil {
		return nil, err
	}
	err := r.loop()
	if err == nil {
		r.report()
	}
	// Closing resets what is left, and tells of buffers that leaked.
	return r.res, errors.Join(err, r.finishCapture(), r.w.Close())
}

func (r *runner) build() (err error) {
	s := r.s
	cfg := WorldConfig{
		Seed: s.Seed, A: s.Host.A.stack(), B: s.Host.B.stack(),
		Link: memlink.Config{MTU: s.MTU, AtoB: s.Link.AtoB.memlink(), BtoA: s.Link.BtoA.memlink(), Dropped: r.dropped},
	}
	for _, b := range []**mem.Budget{&cfg.A.Budget, &cfg.B.Budget} {
		if *b, err = mem.NewBudget(mem.Limits{}); err != nil {
			return err
		}
	}
	for i := range s.Flows {
		cfg.Link.ExtraMost = max(cfg.Link.ExtraMost, s.Flows[i].Delay.D())
	}
	if cfg.Link.ExtraMost > 0 {
		cfg.Link.Extra = r.extra
	}
	var traced *trace.Port
	if r.o.Pcap != nil {
		cfg.WrapPorts = func(p pmd.Port) pmd.Port {
			if traced != nil {
				return p
			}
			traced = trace.New(p, func() plugins.Time { return r.w.Clock.Now() })
			return traced
		}
	}
	if r.w, err = NewWorld(cfg); err != nil {
		return err
	}
	r.w.TurnTime = s.Turn.D()
	a := &host{name: "a", stack: r.w.A, addr: AddrA.Addr(), mods: map[string]uint8{}, byPort: map[uint16]*flow{}, seed: s.Seed, external: s.external}
	b := &host{name: "b", stack: r.w.B, addr: AddrB.Addr(), mods: map[string]uint8{}, byPort: map[uint16]*flow{}, seed: s.Seed + 1, external: s.external}
	a.peer, b.peer = b, a
	a.note, b.note = r.note, r.note
	a.memory, b.memory = cfg.A.Budget, cfg.B.Budget
	r.hosts = [2]*host{a, b}
	if err := r.prepare(); err != nil {
		return errors.Join(err, r.w.Close())
	}
	if traced != nil {
		if err := r.startCapture(traced); err != nil {
			return errors.Join(err, r.w.Close())
		}
	}
	return nil
}

// prepare makes listeners, modules and flows.
func (r *runner) prepare() (err error) {
	for i, m := range []conf.Size{r.s.Host.A.Memory, r.s.Host.B.Memory} {
		if err := r.hosts[i].limit(m); err != nil {
			return err
		}
	}
	for _, h := range r.hosts {
		if h.accept, err = h.stack.Listen(netip.AddrPortFrom(h.addr, listenPort), maxFlows); err != nil {
			return err
		}
	}
	for i, p := range []*Path{&r.s.Link.AtoB, &r.s.Link.BtoA} {
		r.cap[i].rate, r.cap[i].trace, r.cap[i].at = p.Rate.Bits(), p.trace, Start
	}
	for i := range r.s.Flows {
		c := &r.s.Flows[i]
		f := &flow{cfg: c, index: i, from: r.hosts[0], start: Start.Add(c.Start.D()), stop: Start.Add(c.Stop.D()),
			up: newContent(r.s.Seed, uint64(2*i)), down: newContent(r.s.Seed, uint64(2*i+1))}
		if c.From == "b" {
			f.from = r.hosts[1]
		}
		for k := range plugins.NumKinds {
			index, err := f.from.attach(k, c.use(k))
			if err != nil {
				return err
			}
			if !c.own[k] { // its host's: serves new flows until a swap
				if _, err := f.from.stack.Use(k, int(index), plugins.Selection{NewOnly: true}); err != nil {
					return err
				}
			}
		}
		r.flows = append(r.flows, f)
	}
	return nil
}

func (h *Host) stack() (c stack.Config) {
	for k := range plugins.NumKinds {
		u := h.use(k)
		c.Modules[k] = stack.ModuleConfig{Name: u.Use, Params: u.Params}
	}
	ecn := map[string]tcp.ECN{"": tcp.ECNDefault, "off": tcp.ECNOff, "passive": tcp.ECNPassive, "on": tcp.ECNOn, "accecn": tcp.ECNAccurate}
	c.TCP = tcp.Config{ECN: ecn[h.ECN], RecvBuffer: int(h.RecvBuffer), RecvStart: int(h.RecvStart), SendBuffer: int(h.SendBuffer), InitialWindow: h.InitialWindow, DelAck: h.DelAck.D(),
		NoSACK: h.NoSACK, NoTimestamps: h.NoTimestamps}
	return c
}

// attach gives the host's stack a module, once for each kind, name and set of parameters.
func (h *host) attach(k plugins.Kind, u *Use) (uint8, error) {
	key := fmt.Sprint(k, " ", u.Use, " ", u.Params) // fmt sorts maps
	if i, ok := h.mods[key]; ok {
		return i, nil
	}
	h.seed += 2
	m, err := h.make(k, u)
	if err != nil {
		return 0, err
	}
	if q, ok := m.(rtx.Module); ok && k == plugins.Rtx {
		m = &observer{q, h, h.note}
	}
	i, err := h.stack.Attach(k, u.Use, []any{m})
	if err != nil {
		return 0, err
	}
	h.mods[key] = uint8(i)
	return uint8(i), nil
}

// make makes an instance.
func (h *host) make(k plugins.Kind, u *Use) (any, error) {
	if open := h.external[u.Use]; k == plugins.Cong && open != nil {
		return open(h.seed)
	}
	e, ok := builtin.Find(k, u.Use)
	if !ok {
		return nil, fmt.Errorf("sim: no %v module %q", k, u.Use)
	}
	return e.New(u.Params, h.seed)
}

// choice is the modules that a flow names itself; for the others it gets those that serve the host's new flows.
func (h *host) choice(f *flow) (c tcp.Choice) {
	for k := range plugins.NumKinds {
		if f.cfg.own[k] {
			i, _ := h.attach(k, f.cfg.use(k)) // it is there already
			c[k] = i + 1
		}
	}
	return c
}

// watch makes the flow's connection known to the observers.
func (h *host) watch(f *flow) {
	slot := int(f.client.Flow().Slot)
	for len(h.slots) <= slot {
		h.slots = append(h.slots, nil)
	}
	h.slots[slot] = f
	h.byPort[f.client.Tuple.LocalPort] = f
}

func (h *host) flow(id plugins.Flow) *flow {
	if int(id.Slot) < len(h.slots) {
		if f := h.slots[id.Slot]; f != nil && f.client.Flow() == id {
			return f
		}
	}
	return nil
}

// info returns the figures of a connection, if it still exists.
func (h *host) info(c *tcp.Conn) (tcp.Info, bool) {
	local, remote := c.Tuple.LocalAddr(), c.Tuple.RemoteAddr()
	for _, i := range h.stack.Conns() {
		if i.Local == local && i.Remote == remote {
			return i, true
		}
	}
	return tcp.Info{}, false
}

// loop runs until all flows have ended, or until the scenario's end.
func (r *runner) loop() error {
	now := r.w.Clock.Now()
	nextSample := now
	for now < r.end {
		if now >= nextSample {
			r.sample(now)
			nextSample = now.Add(r.s.Sample.D())
			select {
			case <-r.o.Stop:
				return ErrStopped
			default:
			}
		}
		if err := r.applyEvents(now); err != nil {
			return err
		}
		limit := min(r.end, nextSample)
		if len(r.events) > 0 {
			limit = min(limit, Start.Add(r.events[0].At.D()))
		}
		done := true
		for _, f := range r.flows {
			f.step(now)
			limit = min(limit, f.wake(now))
			done = done && f.over()
		}
		if done {
			break
		}
		r.w.Step(limit)
		r.accepted()
		if r.o.Undone != nil {
			r.undone()
		}
		if r.capture != nil {
			if _, err := r.capture.Drain(r.pcap, -int64(Start)); err != nil {
				return err
			}
		}
		now = r.w.Clock.Now()
	}
	r.sample(now)
	return nil
}

// undone follows the windows of the flows from turn to turn.
func (r *runner) undone() {
	for _, f := range r.flows {
		s := &f.seen
		if !s.told { // then the window is what it was
			continue
		}
		i, ok := f.from.info(f.client)
		if !ok {
			continue
		}
		if s.entered {
			s.before = s.cwnd
		}
		s.cwnd = int64(i.Cwnd)
		if s.undone {
			r.o.Undone(f.index, Undo{s.before, s.cwnd})
		}
		s.told, s.entered, s.undone = false, false, false
	}
}

// accepted gives the servers' connections to their flows.
func (r *runner) accepted() {
	for _, h := range r.hosts {
		for {
			c, err := h.accept.TryAccept()
			if err != nil {
				break
			}
			for _, f := range r.flows {
				if f.from == h.peer && f.client != nil && f.client.Tuple.LocalPort == c.Tuple.RemotePort {
					f.server = c
				}
			}
		}
	}
}

func (r *runner) applyEvents(now plugins.Time) error {
	for len(r.events) > 0 && Start.Add(r.events[0].At.D()) <= now {
		e := &r.events[0]
		r.events = r.events[1:]
		if err := r.apply(e, now); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) apply(e *Event, now plugins.Time) error {
	switch {
	case e.Swap != "":
		return r.swap(e, now)
	case e.memory:
		limit := "no limit"
		if e.Memory > 0 {
			limit = e.Memory.String()
		}
		r.note(now, "memory", fmt.Sprintf("host %s: %s", r.host(e).name, limit))
		return r.host(e).limit(e.Memory)
	}
	for i, p := range []*Path{&e.aToB, &e.bToA} {
		if e.Path != "both" && e.Path != [...]string{"a_to_b", "b_to_a"}[i] {
			continue
		}
		if err := r.port(i).SetPath(p.memlink()); err != nil {
			return err
		}
		r.capacity(i, now)
		r.cap[i].rate, r.cap[i].trace = p.Rate.Bits(), p.trace
		rate := "unlimited"
		if p.Rate > 0 {
			rate = p.Rate.String()
		} else if p.trace != nil {
			rate = "of " + p.Trace
		}
		r.note(now, "path", fmt.Sprintf("%s: rate %s, delay %v", linkNames[i], rate, p.Delay))
	}
	return nil
}

func (r *runner) swap(e *Event, now plugins.Time) error {
	kind, name, _ := strings.Cut(e.Swap, " ")
	k, err := plugins.ParseKind(kind)
	if err != nil {
		return err
	}
	h := r.host(e)
	i, err := h.attach(k, &Use{Use: name, Params: e.Params})
	if err != nil {
		return err
	}
	rep, err := h.stack.Use(k, int(i), plugins.Selection{})
	if err != nil {
		return err
	}
	r.note(now, "swap", fmt.Sprintf("host %s: %v → %s, %d flows", h.name, k, name, rep.Flows))
	return nil
}

// host is the host of an event.
func (r *runner) host(e *Event) *host {
	if e.Host == "b" {
		return r.hosts[1]
	}
	return r.hosts[0]
}

// limit limits what the host's stack may use; 0 is no limit.
func (h *host) limit(n conf.Size) error {
	return h.memory.SetLimits(mem.Limits{Low: int64(n) / 2, Pressure: int64(n) / 4 * 3, High: int64(n)})
}

func (r *runner) note(now plugins.Time, kind, message string) {
	r.res.Report.Events = append(r.res.Report.Events, report.Event{TimeNS: int64(now.Sub(Start)), Kind: kind, Message: message})
}

func (r *runner) port(direction int) *memlink.Port {
	return [...]*memlink.Port{r.w.PortA, r.w.PortB}[direction]
}

func (r *runner) startCapture(p *trace.Port) (err error) {
	if r.pcap, err = pcap.NewWriter(r.o.Pcap, pcap.WriterConfig{Name: "a", Snap: r.s.MTU + 18}); err != nil {
		return err
	}
	r.capture, err = p.Start(trace.Options{})
	return err
}

func (r *runner) finishCapture() error {
	if r.capture == nil {
		return nil
	}
	return r.pcap.Finish(r.capture.Dropped())
}
