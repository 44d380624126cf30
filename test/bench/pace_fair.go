package bench

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/udp"
	"github.com/fastpath-tcp/fastpath/test/sim"
)

// fairRate is the rate of the port that flows share, bit/s.
const fairRate = 1e9

// narrow makes two stacks whose port from A to B is slow and keeps its frames until they are sent, as a NIC does. Its ring holds ring frames.
func narrow(path memlink.Path, cfg tcp.Config) (*sim.World, error) {
	var c stack.Config
	c.TCP = cfg
	for k, name := range [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"} {
		c.Modules[k].Name = name
	}
	return sim.NewWorld(sim.WorldConfig{Link: memlink.Config{Ring: ring, AtoB: path, BtoA: memlink.Path{Rate: 10 * fairRate, Delay: path.Delay}}, A: c, B: c, Seed: 1})
}

// bulkFlow writes as much as it may, and its peer reads.
type bulkFlow struct {
	a, b *tcp.Conn
	got  uint64
}

func (f *bulkFlow) step(block []byte) {
	for f.a.WriteRoom() >= len(block) {
		if n, err := f.a.TryWrite(block); n == 0 || err != nil {
			break
		}
	}
	f.read()
}

// read takes what has come.
func (f *bulkFlow) read() {
	for p := f.b.Peek(); len(p) > 0; p = f.b.Peek() {
		f.got += uint64(len(p))
		f.b.Discard(len(p))
	}
}

// lightFlow asks small questions, one at a time.
type lightFlow struct {
	a, b    *tcp.Conn
	next    plugins.Time // when it asks again
	asked   plugins.Time // 0: it does not wait
	answers []int64      // how long each took, ns
}

// flood is a sender of datagrams that has always one to send, and its receiver.
type flood struct {
	a, b *udp.Endpoint
	got  uint64
}

// floodBytes is what a datagram of a flood carries: as much as fits.
const floodBytes = 1472

func (f *flood) step(to netip.AddrPort, buf []byte) error {
	for {
		if err := f.a.TryWrite(buf[:floodBytes], to); err == udp.ErrWouldBlock {
			break
		} else if err != nil {
			return err
		}
	}
	for {
		n, _, _, err := f.b.TryRead(buf)
		if err == udp.ErrWouldBlock {
			return nil
		} else if err != nil {
			return err
		}
		f.got += uint64(n)
	}
}

// ping asks small questions by datagrams, one at a time.
type ping struct {
	a, b    *udp.Endpoint
	next    plugins.Time // when it asks again
	asked   plugins.Time // 0: it does not wait
	answers []int64      // how long each took, ns
}

func (f *ping) step(now plugins.Time, to netip.AddrPort, buf []byte) error {
	if f.asked != 0 {
		switch _, _, _, err := f.a.TryRead(buf); err {
		case nil:
			f.answers = append(f.answers, int64(now-f.asked))
			f.asked, f.next = 0, now.Add(lightThink)
		case udp.ErrWouldBlock:
		default:
			return err
		}
	}
	if f.asked == 0 && now >= f.next {
		if err := f.a.TryWrite(buf[:lightBytes], to); err != nil {
			return err
		}
		f.asked = now
	}
	switch _, _, from, err := f.b.TryRead(buf); err {
	case nil:
		return f.b.TryWrite(buf[:lightBytes], from)
	case udp.ErrWouldBlock:
		return nil
	default:
		return err
	}
}

const (
	lightBytes = 200
	lightThink = 5 * time.Millisecond
)

func (f *lightFlow) step(now plugins.Time, buf []byte) error {
	if f.asked != 0 && f.a.Readable() >= lightBytes {
		if _, err := f.a.TryRead(buf); err != nil {
			return err
		}
		f.answers = append(f.answers, int64(now-f.asked))
		f.asked, f.next = 0, now.Add(lightThink)
	}
	if f.asked == 0 && now >= f.next {
		if n, err := f.a.TryWrite(buf); err != nil || n != len(buf) {
			return fmt.Errorf("bench: a request of %d bytes: %d, %w", len(buf), n, err)
		}
		f.asked = now
	}
	if f.b.Readable() >= lightBytes {
		if _, err := f.b.TryRead(buf); err != nil {
			return err
		}
		if n, err := f.b.TryWrite(buf); err != nil || n != len(buf) {
			return fmt.Errorf("bench: an answer of %d bytes: %d, %w", len(buf), n, err)
		}
	}
	return nil
}

// crowd are the flows that share a port: connections that send as much as they may, light ones, and the same by UDP.
type crowd struct{ bulks, lights, floods, pings int }

// fairResult is what flows got that shared a port.
type fairResult struct {
	p50, p99  float64   // of the light connections' requests, ns
	ping99    float64   // of the light datagrams' requests, ns
	bulkBPS   []float64 // of each bulk connection
	floodsBPS []float64 // of each flood
}

// street is what a crowd does, step by step.
type street struct {
	w      *sim.World
	bulk   []*bulkFlow
	light  []*lightFlow
	floods []*flood
	pings  []*ping
	block  []byte
	buf    []byte
}

// populate makes the flows.
func populate(w *sim.World, n crowd) (s *street, err error) {
	s = &street{w: w, block: make([]byte, 64<<10), buf: make([]byte, 2048)}
	for i := range n.lights {
		f := &lightFlow{}
		if f.a, f.b, err = w.Connect(uint16(2000 + i)); err != nil {
			return nil, err
		}
		s.light = append(s.light, f)
	}
	for i := range n.bulks {
		f := &bulkFlow{}
		if f.a, f.b, err = w.Connect(uint16(1000 + i)); err != nil {
			return nil, err
		}
		s.bulk = append(s.bulk, f)
	}
	for i := range n.floods {
		f := &flood{}
		if f.a, f.b, err = datagrams(w, uint16(3000+i)); err != nil {
			return nil, err
		}
		s.floods = append(s.floods, f)
	}
	for i := range n.pings {
		f := &ping{}
		if f.a, f.b, err = datagrams(w, uint16(4000+i)); err != nil {
			return nil, err
		}
		s.pings = append(s.pings, f)
	}
	now := w.Clock.Now()
	for i, f := range s.light { // not all at once
		f.next = now + plugins.Time(i)*plugins.Time(lightThink)/plugins.Time(n.lights)
	}
	for i, f := range s.pings {
		f.next = now + plugins.Time(i)*plugins.Time(lightThink)/plugins.Time(n.pings)
	}
	return s, nil
}

// datagrams makes a UDP endpoint on each side, of the same port.
func datagrams(w *sim.World, port uint16) (a, b *udp.Endpoint, err error) {
	if a, err = w.A.ListenUDP(netip.AddrPortFrom(sim.AddrA.Addr(), port), 0); err != nil {
		return nil, nil, err
	}
	b, err = w.B.ListenUDP(netip.AddrPortFrom(sim.AddrB.Addr(), port), 0)
	return a, b, err
}

// step lets applications do what they can, and the stacks run until limit at the latest.
func (s *street) step(limit plugins.Time) error {
	now := s.w.Clock.Now()
	for _, f := range s.bulk {
		f.step(s.block)
	}
	for _, f := range s.floods {
		if err := f.step(netip.AddrPortFrom(sim.AddrB.Addr(), f.b.Local().Port()), s.buf); err != nil {
			return err
		}
	}
	for _, f := range s.light {
		if err := f.step(now, s.buf[:lightBytes]); err != nil {
			return err
		}
		if f.asked == 0 {
			limit = min(limit, f.next)
		}
	}
	for _, f := range s.pings {
		if err := f.step(now, netip.AddrPortFrom(sim.AddrB.Addr(), f.b.Local().Port()), s.buf); err != nil {
			return err
		}
		if f.asked == 0 {
			limit = min(limit, f.next)
		}
	}
	s.w.Step(limit)
	return nil
}

// forget begins the measurement anew.
func (s *street) forget() {
	for _, f := range s.bulk {
		f.got = 0
	}
	for _, f := range s.floods {
		f.got = 0
	}
	for _, f := range s.light {
		f.answers = f.answers[:0]
	}
	for _, f := range s.pings {
		f.answers = f.answers[:0]
	}
}

// result is what was measured in d.
func (s *street) result(d time.Duration) (r fairResult, err error) {
	var light, pings []int64
	for _, f := range s.light {
		light = append(light, f.answers...)
	}
	for _, f := range s.pings {
		pings = append(pings, f.answers...)
	}
	if len(s.light) > 0 && len(light) == 0 || len(s.pings) > 0 && len(pings) == 0 {
		return r, errors.New("bench: no request was answered")
	}
	if slices.Sort(light); len(light) > 0 {
		r.p50, r.p99 = float64(light[len(light)/2]), float64(light[len(light)*99/100])
	}
	if slices.Sort(pings); len(pings) > 0 {
		r.ping99 = float64(pings[len(pings)*99/100])
	}
	for _, f := range s.bulk {
		r.bulkBPS = append(r.bulkBPS, float64(f.got)*8/d.Seconds())
	}
	for _, f := range s.floods {
		r.floodsBPS = append(r.floodsBPS, float64(f.got)*8/d.Seconds())
	}
	return r, nil
}

// fairPath is the port that flows share: it tells at once what it has sent.
var fairPath = memlink.Path{Rate: fairRate, Overhead: 24, Delay: 50 * time.Microsecond, Hold: time.Nanosecond}

// fair lets flows share a port, for d of virtual time after a start of the same length.
func fair(path memlink.Path, cfg tcp.Config, n crowd, d time.Duration) (r fairResult, err error) {
	cfg.NoDelay = true
	w, err := narrow(path, cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	s, err := populate(w, n)
	if err != nil {
		return r, err
	}
	middle := w.Clock.Now().Add(d)
	end := middle.Add(d)
	for w.Clock.Now() < middle {
		if err := s.step(middle); err != nil {
			return r, err
		}
	}
	for s.forget(); w.Clock.Now() < end; {
		if err := s.step(end); err != nil {
			return r, err
		}
	}
	return s.result(d)
}

// jain is Jain's index of fairness.
func jain(v []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(v)) * squares)
}

// leastJain is required of bulk flows.
const leastJain = 0.98

// fairness: small requests beside a greedy flow, and many bulk flows, on one port.
func (b *paceBench) fairness() error {
	lights, pings := 100, 10
	if err := b.step("%d light flows", lights); err != nil {
		return err
	}
	alone, err := fair(fairPath, tcp.Config{}, crowd{lights: lights}, b.Virtual)
	if err != nil {
		return err
	}
	quantum := float64(greedyQuantum) * 8 / fairRate * 1e9
	for _, c := range []struct {
		name string
		cfg  tcp.Config
		most float64
	}{{"", tcp.Config{}, alone.p99 + quantum}, {", FIFO and ring filled as far as they take it", tcp.Config{NoBacklogLimit: true}, 0}} {
		beside, err := fair(fairPath, c.cfg, crowd{bulks: 1, lights: lights}, b.Virtual)
		if err != nil {
			return err
		}
		b.add(report.PaceRow{Name: fmt.Sprintf("p99 of %d flows' requests beside a greedy one%s", lights, c.name), Virtual: true,
			Value: report.Summary("p99_ns", []float64{beside.p99}), AtMost: c.most, Figures: map[string]float64{"alone_p50_ns": alone.p50, "alone_p99_ns": alone.p99,
				"p50_ns": beside.p50, "greedy_bps": beside.bulkBPS[0], "quantum_ns": quantum}})
	}
	quiet, err := fair(fairPath, tcp.Config{}, crowd{lights: lights, pings: pings}, b.Virtual)
	if err != nil {
		return err
	}
	flooded, err := fair(fairPath, tcp.Config{}, crowd{bulks: 1, lights: lights, floods: 1, pings: pings}, b.Virtual)
	if err != nil {
		return err
	}
	b.add(report.PaceRow{Name: fmt.Sprintf("p99 of %d flows' requests beside a greedy one and a flood of datagrams", lights), Virtual: true,
		Value: report.Summary("p99_ns", []float64{flooded.p99}), AtMost: quiet.p99 + 2*quantum, Figures: map[string]float64{"alone_p99_ns": quiet.p99,
			"datagrams_alone_p99_ns": quiet.ping99, "datagrams_p99_ns": flooded.ping99, "greedy_bps": flooded.bulkBPS[0], "flood_bps": flooded.floodsBPS[0], "quantum_ns": quantum}})
	if err := b.step("100 bulk flows"); err != nil {
		return err
	}
	many, err := fair(fairPath, tcp.Config{}, crowd{bulks: 100}, 2*b.Virtual)
	if err != nil {
		return err
	}
	sum := 0.0
	for _, v := range many.bulkBPS {
		sum += v
	}
	b.add(report.PaceRow{Name: "Jain's index of 100 bulk flows", Virtual: true, Value: report.Summary("jain_index", []float64{jain(many.bulkBPS)}), AtLeast: leastJain,
		Figures: map[string]float64{"sum_bps": sum, "least_bps": slices.Min(many.bulkBPS), "most_bps": slices.Max(many.bulkBPS)}})
	return nil
}

// greedyQuantum is what the greedy flow may put before others: a turn of 16 segments.
const greedyQuantum = 16 * 1538
