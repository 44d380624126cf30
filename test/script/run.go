package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
	"github.com/fastpath-tcp/fastpath/test/script/posix"
)

// Verdict is what a run says of a script.
type Verdict int

// Verdicts.
const (
	Pass Verdict = iota
	Fail
	Unsupported // the script wants what the stack or the runner does not have
	Broken      // the script cannot be read
)

func (v Verdict) String() string { return [...]string{"PASS", "FAIL", "UNSUPPORTED", "BROKEN"}[v] }

// Outcome is the result of a script.
type Outcome struct {
	Verdict  Verdict
	Line     int // of the statement at fault
	Text     string
	Warnings []string
}

// mismatch is a failure of the stack.
type mismatch struct{ text string }

func (m *mismatch) Error() string { return m.text }

func failf(format string, args ...any) error { return &mismatch{fmt.Sprintf(format, args...)} }

// runner runs one script. Times are in microseconds since its start.
type runner struct {
	set   *settings
	w     *posix.World
	event *lang.Event
	last  int64 // time of the event before, which relative times are counted from

	flows     []*flow
	cur       *flow // that packets without ports belong to
	listening uint16
	nextPort  uint16
	pending   []posix.Sent
	fds       map[int]int // script to live
	flowOf    map[int]*flow
	blocked   *blockedCall
	code      codeState
}

// RunFile runs the script in a file. override are options that go before those in the file.
func RunFile(name string, override []lang.Option) Outcome {
	src, err := os.ReadFile(name)
	if err != nil {
		return Outcome{Verdict: Broken, Text: err.Error()}
	}
	return Run(string(src), override)
}

// Run runs a script.
func Run(src string, override []lang.Option) (o Outcome) {
	set := newSettings()
	for _, op := range override {
		if op.Name == "define" {
			k, v, _ := strings.Cut(op.Value, "=")
			set.defines[k] = v
		}
	}
	sc, err := lang.Parse(src, set.defines)
	if err != nil {
		return outcome(err, 0)
	}
	given := map[string]bool{}
	for _, op := range override {
		given[op.Name] = true
	}
	for _, op := range sc.Options {
		if given[op.Name] {
			continue
		}
		if err := set.option(op.Name, op.Value); err != nil {
			return outcome(err, op.Line)
		}
	}
	for _, op := range override {
		if op.Name == "exact" {
			set.exact = true
		} else if err := set.option(op.Name, op.Value); err != nil {
			return outcome(err, 0)
		}
	}
	if err := set.finish(); err != nil {
		return Outcome{Verdict: Broken, Text: err.Error()}
	}
	r := &runner{set: set, fds: map[int]int{}, flowOf: map[int]*flow{}, nextPort: 50001}
	defer func() { o.Warnings = set.warnings }()
	return r.run(sc)
}

func outcome(err error, line int) Outcome {
	var e *lang.Error
	var m *mismatch
	switch {
	case errors.As(err, &m):
		return Outcome{Verdict: Fail, Line: line, Text: m.text}
	case errors.As(err, &e):
		if e.Line > 0 {
			line = e.Line
		}
		v := Broken
		if e.Unsupported {
			v = Unsupported
		}
		return Outcome{Verdict: v, Line: line, Text: e.Text}
	}
	return Outcome{Verdict: Broken, Line: line, Text: err.Error()}
}

func (r *runner) run(sc *lang.Script) (o Outcome) {
	events := sc.Events
	for len(events) > 0 && events[0].Command != "" { // before the stack starts
		if err := r.set.command(events[0].Command, false); err != nil {
			return outcome(err, events[0].Line)
		}
		events = events[1:]
	}
	if len(events) == 0 {
		return Outcome{Verdict: Broken, Line: 1, Text: "there is nothing to do: no packet, no call, no code"}
	}
	var err error
	r.w, err = posix.New(posix.Config{Addrs: []netip.Prefix{netip.PrefixFrom(r.set.local, r.set.prefix)}, Gateway: r.set.gateway, MTU: r.set.mtu, TCP: r.set.tcp, Cong: r.set.cong})
	if err != nil {
		return Outcome{Verdict: Broken, Text: err.Error()}
	}
	defer func() {
		if err := r.w.Close(); err != nil && o.Verdict == Pass {
			o = Outcome{Verdict: Fail, Text: "at the end: " + err.Error()}
		}
	}()
	for _, e := range events {
		r.event = e
		if err := r.one(e); err != nil {
			o := outcome(err, e.Line)
			if o.Verdict != Broken {
				o.Text = e.Text + "\n" + o.Text
			}
			return o
		}
	}
	if err := r.finish(); err != nil {
		return outcome(err, r.event.Line)
	}
	return Outcome{}
}

// finish waits for a call that blocks and, in an exact run, looks for packets that nobody expected.
func (r *runner) finish() error {
	if r.event == nil {
		return nil
	}
	if err := r.waitBlocked(); err != nil {
		return err
	}
	return r.nothingPending()
}

func (r *runner) now() int64 { return micros(r.w.Now()) }

func micros(t plugins.Time) int64 { return int64(t-posix.Start) / 1000 }

func at(us int64) plugins.Time { return posix.Start + plugins.Time(us)*1000 }

func seconds(us int64) string { return fmt.Sprintf("%d.%06d", us/1e6, us%1e6) }

// one does the event e.
func (r *runner) one(e *lang.Event) error {
	when := e.At
	if e.Kind == lang.Relative || e.Kind == lang.RelativeRange {
		when += r.last
	}
	if e.Packet != nil && !e.Packet.In {
		return r.expect(e, when)
	}
	if when < r.last {
		return &lang.Error{Line: e.Line, Text: "time goes backwards"}
	}
	if err := r.advance(when); err != nil {
		return err
	}
	r.last = when
	switch {
	case e.Packet != nil:
		if err := r.nothingPending(); err != nil {
			return err
		}
		return r.inject(e.Packet)
	case e.Call != nil:
		return r.call(e, when)
	case e.IsCode():
		return r.runCode(e.Code)
	}
	return r.set.command(e.Command, true)
}

// advance lets time pass until when.
func (r *runner) advance(when int64) error {
	r.w.Advance(at(when))
	r.collect()
	return r.checkBlocked()
}

// collect takes what the stack has sent.
func (r *runner) collect() {
	r.pending = append(r.pending, r.w.Take()...)
}

// nothingPending fails an exact run in which the stack has sent what the script did not expect.
func (r *runner) nothingPending() error {
	r.collect()
	if !r.set.exact || len(r.pending) == 0 {
		return nil
	}
	p := r.pending[0]
	return failf("the stack sent what was not expected\n  got:      %s %s", seconds(micros(p.At)), r.describe(p.Packet, nil))
}

// inject sends a packet to the stack.
func (r *runner) inject(p *lang.Packet) error {
	switch p.Proto {
	case lang.UDP:
		return unsupported("UDP packets")
	case lang.ICMP:
		return r.injectICMP(p)
	}
	f := r.flowForIn(p)
	s, err := f.toStack(p)
	if err != nil {
		return err
	}
	if p.Flags&wire.SYN != 0 && p.Flags&wire.RST == 0 {
		f.newSYN, f.lastSYN = s.seq != f.irs, s.seq
		if !f.knowIRS {
			f.irs, f.knowIRS = s.seq, true
		}
	}
	r.w.Inject(s.packet())
	r.collect()
	return r.checkBlocked()
}

// flowForIn is the flow that a packet to the stack belongs to: that of its ports, a new one after listen, or the present one.
func (r *runner) flowForIn(p *lang.Packet) *flow {
	if p.SrcPort != 0 {
		for _, f := range r.flows {
			if f.remotePort == p.SrcPort && f.localPort == p.DstPort {
				r.cur = f
				return f
			}
		}
		return r.newFlow(p.DstPort, p.SrcPort)
	}
	if r.listening != 0 || r.cur == nil {
		port := r.listening
		if port == 0 {
			port = r.set.bindPort
		}
		r.listening = 0
		r.nextPort++
		return r.newFlow(port, r.nextPort)
	}
	return r.cur
}

func (r *runner) newFlow(local, remote uint16) *flow {
	f := &flow{local: r.set.local, remote: r.set.remote, localPort: local, remotePort: remote}
	r.flows = append(r.flows, f)
	r.cur = f
	return f
}

// expect waits for a packet of the stack and compares it.
func (r *runner) expect(e *lang.Event, when int64) error {
	until, tol := when, int64(0)
	switch e.Kind {
	case lang.Any:
		until = r.now() + anyWait
	case lang.AbsoluteRange:
		until = e.Until
	case lang.RelativeRange:
		until = e.Until + r.last
	}
	if e.Kind != lang.Any {
		tol = max(r.set.tolUsecs, int64(r.set.tolPercent/100*float64(when-r.last)))
	}
	if e.Packet.Proto != lang.TCP {
		return unsupported("expecting UDP or ICMP packets")
	}
	var pieces []posix.Sent
	for done := 0; ; {
		p, ok := r.nextPacket(e, until+tol)
		if !ok && done > 0 {
			return r.differs(e, when, fmt.Sprintf("%d bytes of payload", done), pieces)
		}
		if !ok {
			return r.missing(e, when, until)
		}
		pieces = append(pieces, p)
		if got := micros(p.At); e.Kind != lang.Any && (got < when-tol || got > until+tol) {
			return failf("at another time\n  expected: %s %s\n  got:      %s", seconds(when), expected(e), r.describeAll(e, pieces))
		}
		n, more, why := r.match(e, p, done)
		if why != "" && done > 0 {
			why = fmt.Sprintf("%d bytes of payload, then %s", done, why)
		}
		if why != "" {
			return r.differs(e, when, why, pieces)
		}
		if done += n; !more {
			break
		}
	}
	if r.last = when; e.Kind >= lang.Any {
		r.last = micros(pieces[0].At)
	}
	return nil
}

// differs is the failure of an event for which the stack has sent other packets than are expected.
func (r *runner) differs(e *lang.Event, when int64, why string, got []posix.Sent) error {
	return failf("differs: %s\n  expected: %s %s\n  got:      %s", why, seconds(when), expected(e), r.describeAll(e, got))
}

// describeAll writes packets in the order in which they came, one per line: the first one may be the one at fault.
func (r *runner) describeAll(e *lang.Event, all []posix.Sent) string {
	lines := make([]string, len(all))
	for i, p := range all {
		lines[i] = seconds(micros(p.At)) + " " + r.describe(p.Packet, e.Packet)
	}
	return strings.Join(lines, "\n            ")
}

// anyWait is how long a packet whose time is * is waited for.
const anyWait = 4 * 3600 * 1e6

// nextPacket returns the next packet of the stack that belongs to the flow of the event, letting time pass until limit.
func (r *runner) nextPacket(e *lang.Event, limit int64) (posix.Sent, bool) {
	for {
		r.collect()
		for i, p := range r.pending {
			if !r.set.exact && !r.ours(p.Packet, e.Packet) {
				continue
			}
			if r.set.exact && !r.ours(p.Packet, e.Packet) && i+1 < len(r.pending) {
				continue // of another flow, and expected later
			}
			r.pending = append(r.pending[:i:i], r.pending[i+1:]...)
			return p, true
		}
		if r.now() >= limit {
			return posix.Sent{}, false
		}
		r.w.Step(at(limit))
		if err := r.checkBlocked(); err != nil {
			return posix.Sent{}, false
		}
	}
}

// ours reports whether a packet is of the flow that want is of.
func (r *runner) ours(p []byte, want *lang.Packet) bool {
	s, proto, err := parseSegment(p)
	if err != nil {
		return true // it is to be seen
	}
	if proto != protoTCP {
		return false
	}
	if want.SrcPort != 0 {
		return s.srcPort == want.SrcPort && s.dstPort == want.DstPort
	}
	return r.cur != nil && r.cur.is(s)
}

// match compares one segment with what is expected, of which done bytes have come already: why is how it differs, "" if it does not.
// more says that what is expected is not complete yet.
func (r *runner) match(e *lang.Event, p posix.Sent, done int) (n int, more bool, why string) {
	want := e.Packet
	live, proto, err := parseSegment(p.Packet)
	if err != nil {
		return 0, false, err.Error()
	}
	if proto != protoTCP {
		return 0, false, fmt.Sprintf("protocol %d", proto)
	}
	f := r.flowOfSegment(live)
	if f == nil {
		return 0, false, "addresses or ports"
	}
	if want.SrcPort != 0 {
		r.cur = f
	}
	want = r.withoutPush(want, live, done)
	s, opts, err := f.toScript(live, want)
	if err != nil {
		return 0, false, err.Error()
	}
	more = done+len(s.data) < want.Len && len(s.data) > 0
	return len(s.data), more, f.compare(&s, opts, want, done, more, r)
}

// withoutPush is want for a segment of which done bytes have come in packets before: scripts show what Linux hands to the port in one, and
// where that ends, which PSH tells, is a matter of offloads and pacing. An exact run compares it.
func (r *runner) withoutPush(want *lang.Packet, live *segment, done int) *lang.Packet {
	if done == 0 || r.set.exact {
		return want
	}
	w := *want
	w.Flags = w.Flags&^wire.PSH | live.flags&wire.PSH
	return &w
}

func (r *runner) flowOfSegment(s *segment) *flow {
	for i := len(r.flows) - 1; i >= 0; i-- {
		if r.flows[i].is(s) {
			return r.flows[i]
		}
	}
	return nil
}

// missing is the error for a packet that did not come. It looks some time ahead for what comes instead.
func (r *runner) missing(e *lang.Event, when, until int64) error {
	if r.blocked != nil {
		if err := r.checkBlocked(); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("no packet until %s\n  expected: %s %s", seconds(until), seconds(when), expected(e))
	for limit := r.now() + lookAhead; len(r.pending) == 0 && r.now() < limit; r.collect() {
		r.w.Step(at(limit))
	}
	if len(r.pending) > 0 {
		p := r.pending[0]
		return failf("%s\n  got:      %s %s", text, seconds(micros(p.At)), r.describe(p.Packet, e.Packet))
	}
	return failf("%s\n  got:      nothing", text)
}

const lookAhead = 200 * 1e6

// expected is the packet of an event as it was written.
func expected(e *lang.Event) string {
	_, text, _ := strings.Cut(e.Text, ">")
	return strings.TrimSpace(text)
}

// describe writes a packet of the stack as scripts do, as far as its flow is known.
func (r *runner) describe(p []byte, want *lang.Packet) string {
	live, proto, err := parseSegment(p)
	if err != nil {
		return fmt.Sprintf("%v: %x", err, p)
	}
	if proto != protoTCP {
		return fmt.Sprintf("protocol %d: %x", proto, p)
	}
	f := r.flowOfSegment(live)
	if f == nil {
		return fmt.Sprintf("%d > %d %s (live numbers)", live.srcPort, live.dstPort, live.describe(nil))
	}
	if want == nil {
		want = &lang.Packet{}
	}
	c := *f // learns nothing
	if len(f.ts) > 0 {
		c.ts = map[uint32]uint32{}
	}
	s, opts, err := c.toScript(live, want)
	if err != nil {
		return err.Error()
	}
	return s.describe(opts)
}
