package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// Bounds of a scenario.
const (
	maxDuration  = 24 * time.Hour
	maxSamples   = 100_000
	maxFlows     = 128
	maxFlowDelay = 10 * time.Second
	maxBuffer    = 1 << 30 // the largest window is 2^30 (RFC 7323, 2.3)
)

// check finds what a scenario's types cannot say.
type check struct {
	s   *Scenario
	doc *conf.Document
}

func (c *check) bad(key, format string, args ...any) { c.doc.Errorf(key, format, args...) }

// within reports a value outside lo to hi.
func (c *check) within(key string, v, lo, hi int) {
	if v < lo || v > hi {
		c.bad(key, "%d is not within %d … %d", v, lo, hi)
	}
}

func (c *check) run() {
	s := c.s
	switch {
	case s.Duration == 0:
		c.bad("duration", "needed, more than 0")
	case s.Duration.D() > maxDuration:
		c.bad("duration", "%v is more than %v", s.Duration, maxDuration)
	case s.Duration/s.Sample > maxSamples:
		c.bad("sample", "%v gives more than %d samples in %v", s.Sample, maxSamples, s.Duration)
	}
	if s.Turn.D() > time.Second {
		c.bad("turn", "%v is more than 1s", s.Turn)
	}
	if s.Turn == 0 {
		c.bad("turn", "must be more than 0")
	}
	c.within("mtu", s.MTU, 576, 9000)
	c.host("host.a", &s.Host.A)
	c.host("host.b", &s.Host.B)
	c.path("link.a_to_b", &s.Link.AtoB)
	c.path("link.b_to_a", &s.Link.BtoA)
	if len(s.Flows) == 0 {
		c.bad("flow", "no flow")
	}
	c.flows()
	for i := range s.Events {
		c.event(fmt.Sprintf("event[%d]", s.Events[i].index), &s.Events[i])
	}
}

func (c *check) host(key string, h *Host) {
	c.use(key+".rtx", plugins.Rtx, &h.Rtx)
	c.use(key+".pace", plugins.Pace, &h.Pace)
	c.use(key+".cong", plugins.Cong, &h.Cong)
	for _, b := range []struct {
		name string
		v    conf.Size
	}{{"recv_buffer", h.RecvBuffer}, {"recv_start", h.RecvStart}, {"send_buffer", h.SendBuffer}} {
		if b.v != 0 {
			c.within(key+"."+b.name, int(b.v), 4096, maxBuffer)
		}
	}
	c.memory(key+".memory", h.Memory)
	c.within(key+".initial_window", h.InitialWindow, 0, 1000)
	if h.DelAck.D() > 500*time.Millisecond { // RFC 9293, 3.8.6.3
		c.bad(key+".delayed_ack", "%v is more than 500ms", h.DelAck)
	}
}

// use checks that a module is built in and accepts its parameters.
func (c *check) use(key string, k plugins.Kind, u *Use) {
	e, ok := builtin.Find(k, u.Use)
	if !ok {
		c.bad(key+".use", "no %v module %q (there are %s)", k, u.Use, strings.Join(builtin.Names(k), ", "))
		return
	}
	if _, err := e.New(u.Params, 1); err != nil {
		c.bad(key+".params", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (c *check) path(key string, p *Path) {
	// A key of a direction may stand in link.both.
	at := func(name string) string {
		if k := key + "." + name; c.doc.Has(k) || !c.doc.Has("link.both."+name) {
			return k
		}
		return "link.both." + name
	}
	c.within(at("overhead"), p.Overhead, 0, 1<<16)
	for _, f := range []struct {
		name string
		v    int
	}{{"queue", int(p.Queue)}, {"queue_frames", p.QueueFrames}, {"mark", int(p.Mark)}, {"mark_frames", p.MarkFrames}} {
		if f.v < 0 {
			c.bad(at(f.name), "%d is negative", f.v)
		}
		if f.v != 0 && p.Rate == 0 && p.Trace == "" {
			c.bad(at(f.name), "without a rate nothing queues")
		}
	}
	for _, f := range []struct {
		name string
		v    conf.Duration
	}{{"hold", p.Hold}, {"hold_each", p.HoldEach}} {
		if f.v.D() < 0 || f.v.D() > time.Second {
			c.bad(at(f.name), "%v is not within 0s … 1s", f.v)
		}
	}
	if p.Queue > 1<<32 {
		c.bad(at("queue"), "%v is more than 4GiB", p.Queue)
	}
	if p.Delay.D() > time.Hour {
		c.bad(at("delay"), "%v is more than 1h", p.Delay)
	}
	if p.Rate.Bits() > 1e15 {
		c.bad(at("rate"), "%v is more than 1000Tbit/s", p.Rate)
	}
	if p.Rate > 0 && p.Trace != "" {
		c.bad(at("trace"), "not with rate")
	}
	if p.Jitter > p.Delay {
		c.bad(at("jitter"), "%v is more than the delay of %v", p.Jitter, p.Delay)
	}
	if p.Policer.Rate.Bits() > 1e15 {
		c.bad(at("policer.rate"), "%v is more than 1000Tbit/s", p.Policer.Rate)
	}
	if p.Policer.Burst > 1<<30 {
		c.bad(at("policer.burst"), "%v is more than 1GiB", p.Policer.Burst)
	}
	if (p.Policer.Rate == 0) != (p.Policer.Burst == 0) {
		c.bad(at("policer"), "rate and burst are needed")
	}
	if p.Reorder.Chance > 0 && p.Reorder.By == 0 {
		c.bad(at("reorder"), "by is needed")
	}
	if p.Reorder.By.D() > time.Hour {
		c.bad(at("reorder.by"), "%v is more than 1h", p.Reorder.By)
	}
	c.within(at("corrupt.bits"), p.Corrupt.Bits, 0, 15)
	c.within(at("loss.burst_len"), p.Loss.BurstLen, 0, 1<<20)
	if p.Loss.Burst > 0 && p.Loss.BurstLen == 0 {
		c.bad(at("loss.burst"), "burst_len is needed")
	}
	for i, n := range p.Loss.Frames {
		if n == 0 {
			c.bad(at(fmt.Sprintf("loss.frames[%d]", i)), "frames count from 1")
		}
	}
}

func (c *check) flows() {
	if len(c.s.Flows) > maxFlows {
		c.bad("flow", "%d flows are more than %d", len(c.s.Flows), maxFlows)
	}
	names := map[string]bool{}
	for i := range c.s.Flows {
		f, key := &c.s.Flows[i], fmt.Sprintf("flow[%d]", i)
		if names[f.Name] {
			c.bad(key+".name", "a second flow %q", f.Name)
		}
		names[f.Name] = true
		if len(f.Name) > 64 || strings.ContainsFunc(f.Name, func(r rune) bool { return r < ' ' || r == ',' || r == '"' }) {
			c.bad(key+".name", "more than 64 bytes, a comma, a quote or a control character in a name")
		}
		c.use(key+".rtx", plugins.Rtx, &f.Rtx)
		c.use(key+".pace", plugins.Pace, &f.Pace)
		c.use(key+".cong", plugins.Cong, &f.Cong)
		if f.Delay.D() > maxFlowDelay {
			c.bad(key+".delay", "%v is more than %v", f.Delay, maxFlowDelay)
		}
		if f.Delay > 0 && (!impaired(&c.s.Link.AtoB) || !impaired(&c.s.Link.BtoA)) {
			c.bad(key+".delay", "the link needs a rate or a delay in both directions")
		}
		if f.Start >= f.Stop || f.Stop > c.s.Duration {
			c.bad(key+".start", "must lie before stop (%v), and that not after the end (%v)", f.Stop, c.s.Duration)
		}
		c.flow(key, f)
	}
}

// flow checks the keys that depend on the flow's kind.
func (c *check) flow(key string, f *Flow) {
	belongs := func(name string, set bool, kind string, needed bool) {
		switch k := key + "." + name; {
		case f.Kind == kind && needed && !set:
			c.bad(k, "needed with kind = %q, more than 0", kind)
		case f.Kind != kind && c.doc.Has(k):
			c.bad(k, "only with kind = %q", kind)
		}
	}
	if f.Kind == "" {
		c.bad(key+".kind", "needed: bulk, rr, onoff or app_limited")
		return
	}
	belongs("request", f.Request > 0, ReqResp, true)
	belongs("response", f.Response > 0, ReqResp, true)
	belongs("think", f.Think > 0, ReqResp, false)
	belongs("count", f.Count > 0, ReqResp, false)
	belongs("on", f.On > 0, OnOff, true)
	belongs("off", f.Off > 0, OnOff, true)
	belongs("rate", f.Rate > 0, AppLimited, true)
	belongs("write", f.Write > 0, AppLimited, true)
	c.within(key+".count", f.Count, 0, 1<<30)
	for _, b := range []struct {
		name string
		v    conf.Size
	}{{"request", f.Request}, {"response", f.Response}, {"write", f.Write}} {
		if b.v > 1<<30 {
			c.bad(key+"."+b.name, "%v is more than 1GiB", b.v)
		}
	}
	if f.Kind == AppLimited && f.Rate > 0 && time.Duration(uint64(f.Write)*uint64(time.Second)/uint64(f.Rate)) < time.Microsecond {
		c.bad(key+".write", "more than a write per microsecond")
	}
}

func (c *check) event(key string, e *Event) {
	if e.At > c.s.Duration {
		c.bad(key+".at", "%v lies after the end (%v)", e.At, c.s.Duration)
	}
	given := 0
	for _, is := range []bool{e.Swap != "", e.memory, c.doc.Has(key + ".set")} {
		if is {
			given++
		}
	}
	if given != 1 {
		c.bad(key, "one of swap = \"KIND MODULE\", memory or a table set is needed")
		return
	}
	if e.isPath() {
		c.setPath(key, e)
		return
	}
	if c.doc.Has(key + ".path") {
		c.bad(key+".path", "only with set")
	}
	if e.memory {
		c.memory(key+".memory", e.Memory)
		if c.doc.Has(key + ".params") {
			c.bad(key+".params", "only with swap")
		}
		return
	}
	kind, name, ok := strings.Cut(e.Swap, " ")
	k, err := plugins.ParseKind(kind)
	if !ok || err != nil {
		c.bad(key+".swap", "%q: write it as \"cong cdg\": the kind (rtx, pace, cong) and the module", e.Swap)
		return
	}
	c.use(key, k, &Use{Use: name, Params: e.Params})
}

// memory checks a limit of a host's memory.
func (c *check) memory(key string, v conf.Size) {
	if v != 0 && v < 64<<10 {
		c.bad(key, "%v is less than 64KiB", v)
	}
}

// setPath checks an event's change of a path as it will be when all events before it have been applied.
func (c *check) setPath(key string, e *Event) {
	for _, name := range []string{"host", "params"} {
		if c.doc.Has(key + "." + name) {
			c.bad(key+"."+name, "only with %s", map[string]string{"host": "swap or memory", "params": "swap"}[name])
		}
	}
	for _, d := range []struct {
		name string
		path *Path
	}{{"a_to_b", &c.s.Link.AtoB}, {"b_to_a", &c.s.Link.BtoA}} {
		if (e.Path == d.name || e.Path == "both") && !impaired(d.path) {
			c.bad(key+".path", "link.%s is clean from the start: it needs a rate, a delay or some other impairment to be changed later", d.name)
		}
		p := map[string]*Path{"a_to_b": &e.aToB, "b_to_a": &e.bToA}[d.name]
		c.path(key+".set", p)
		if (e.Path == d.name || e.Path == "both") && !holds(d.path) && holds(p) {
			c.bad(key+".set", "link.%s has neither hold nor hold_each from the start: they cannot be set later", d.name)
		}
	}
}

// holds reports whether the path's sending port keeps its frames.
func holds(p *Path) bool { return p.Hold != 0 || p.HoldEach != 0 }

// impaired reports whether frames of the path wait in a line, so that it can be changed.
func impaired(p *Path) bool {
	m := p.memlink()
	l := &m.Loss
	return holds(p) || m.Rate != 0 || p.Trace != "" || m.Delay != 0 || m.Jitter != 0 || m.Reorder != 0 || m.Duplicate != 0 || m.Corrupt != 0 || l.Random != 0 ||
		len(l.Frames) != 0 || l.Burst != 0 || l.Gilbert != memlink.Gilbert{}
}
