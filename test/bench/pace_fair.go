package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
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

// fairResult is what flows got that shared a port.
type fairResult struct {
	p50, p99 float64   // of the light flows' requests, ns
	bulkBPS  []float64 // of each bulk flow
}

// fairPath is the port that flows share: it tells at once what it has sent.
var fairPath = memlink.Path{Rate: fairRate, Overhead: 24, Delay: 50 * time.Microsecond, Hold: time.Nanosecond}

// fair lets bulk and light flows share a port, for d of virtual time after a start of the same length.
func fair(path memlink.Path, cfg tcp.Config, bulks, lights int, d time.Duration) (r fairResult, err error) {
	cfg.NoDelay = true
	w, err := narrow(path, cfg)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	bulk, light := make([]*bulkFlow, bulks), make([]*lightFlow, lights)
	for i := range light {
		f := &lightFlow{}
		if f.a, f.b, err = w.Connect(uint16(2000 + i)); err != nil {
			return r, err
		}
		light[i] = f
	}
	for i := range bulk {
		f := &bulkFlow{}
		if f.a, f.b, err = w.Connect(uint16(1000 + i)); err != nil {
			return r, err
		}
		bulk[i] = f
	}
	start := w.Clock.Now()
	for i, f := range light { // not all at once
		f.next = start + plugins.Time(i)*plugins.Time(lightThink)/plugins.Time(lights)
	}
	block, buf := make([]byte, 64<<10), make([]byte, lightBytes)
	middle, end := start.Add(d), start.Add(2*d)
	warm := false
	for now := start; now < end; now = w.Clock.Now() {
		if !warm && now >= middle {
			warm = true
			for _, f := range bulk {
				f.got = 0
			}
			for _, f := range light {
				f.answers = f.answers[:0]
			}
		}
		limit := end
		for _, f := range bulk {
			f.step(block)
		}
		for _, f := range light {
			if err := f.step(now, buf); err != nil {
				return r, err
			}
			if f.asked == 0 {
				limit = min(limit, f.next)
			}
		}
		w.Step(limit)
	}
	var all []int64
	for _, f := range light {
		all = append(all, f.answers...)
	}
	if lights > 0 && len(all) == 0 {
		return r, errors.New("bench: no request was answered")
	}
	if slices.Sort(all); len(all) > 0 {
		r.p50, r.p99 = float64(all[len(all)/2]), float64(all[len(all)*99/100])
	}
	for _, f := range bulk {
		r.bulkBPS = append(r.bulkBPS, float64(f.got)*8/d.Seconds())
	}
	return r, nil
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
	lights := 100
	if err := b.step("%d light flows", lights); err != nil {
		return err
	}
	alone, err := fair(fairPath, tcp.Config{}, 0, lights, b.Virtual)
	if err != nil {
		return err
	}
	quantum := float64(greedyQuantum) * 8 / fairRate * 1e9
	for _, c := range []struct {
		name string
		cfg  tcp.Config
		most float64
	}{{"", tcp.Config{}, alone.p99 + quantum}, {", FIFO and ring filled as far as they take it", tcp.Config{NoBacklogLimit: true}, 0}} {
		beside, err := fair(fairPath, c.cfg, 1, lights, b.Virtual)
		if err != nil {
			return err
		}
		b.add(report.PaceRow{Name: fmt.Sprintf("p99 of %d flows' requests beside a greedy one%s", lights, c.name), Virtual: true,
			Value: report.Summary("p99_ns", []float64{beside.p99}), AtMost: c.most, Figures: map[string]float64{"alone_p50_ns": alone.p50, "alone_p99_ns": alone.p99,
				"p50_ns": beside.p50, "greedy_bps": beside.bulkBPS[0], "quantum_ns": quantum}})
	}
	if err := b.step("100 bulk flows"); err != nil {
		return err
	}
	many, err := fair(fairPath, tcp.Config{}, 100, 0, 2*b.Virtual)
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
