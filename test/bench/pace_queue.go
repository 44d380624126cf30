package bench

import (
	"errors"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// What the slow port of the small queues' proof is: 100 Mbit/s with Ethernet's overhead, telling what it has sent 12 ms after it has.
const (
	slowRate  = 100e6
	slowHold  = 12 * time.Millisecond
	slowDelay = 50 * time.Microsecond
)

// slowPort is what one bulk flow reaches on a slow port that completes late, bit/s, in d of virtual time after half a second.
func slowPort(cfg tcp.Config, d time.Duration) (bps float64, waits uint64, err error) {
	w, err := narrow(memlink.Path{Rate: slowRate, Overhead: 24, Delay: slowDelay, Hold: slowHold}, cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f := &bulkFlow{}
	if f.a, f.b, err = w.Connect(80); err != nil {
		return 0, 0, err
	}
	block := make([]byte, 64<<10)
	run := func(d time.Duration) {
		for end := w.Clock.Now().Add(d); w.Clock.Now() < end; {
			f.step(block)
			w.Step(end)
		}
	}
	run(500 * time.Millisecond)
	f.got = 0
	run(d)
	return float64(f.got) * 8 / d.Seconds(), w.A.Stats()[0].TCP.SmallQueueWaits, nil
}

// smallQueues: a slow port that completes late, when a flow with one piece unacknowledged may send all the same, and when it may not (F5).
// The flow waits for the port as long as it takes, which ours otherwise does not.
func (b *paceBench) smallQueues() error {
	for _, c := range []struct {
		name     string
		cfg      tcp.Config
		founding float64
		least    float64
	}{
		{"sends if nothing is unacknowledged", tcp.Config{SmallQueues: tcp.SmallQueuesEmptyOnly, PortPatience: time.Second, NoBacklogLimit: true}, 80.7e6, 0},
		{"sends if nothing or one piece is", tcp.Config{PortPatience: time.Second, NoBacklogLimit: true}, 94.4e6, leastSlow},
		{"the same, and waits for 2 ms at the most", tcp.Config{NoBacklogLimit: true}, 94.4e6, leastSlow},
		{"the same, with a limit for all flows together", tcp.Config{}, 94.4e6, leastSlow},
	} {
		if err := b.step("%s", c.name); err != nil {
			return err
		}
		bps, waits, err := slowPort(c.cfg, b.Virtual)
		if err != nil {
			return err
		}
		b.add(report.PaceRow{Name: "100 Mbit/s, late completions: " + c.name, Virtual: true, Value: report.Summary("goodput_bps", []float64{bps}), Founding: c.founding,
			AtLeast: c.least, Figures: map[string]float64{"waits": float64(waits)}})
	}
	return nil
}

// leastSlow is what is left of 100 Mbit/s for payload: 1448 of 1538 bytes on the wire.
const leastSlow = 94e6

// The machine of the corking proof, in virtual time: one processor, on which a write costs writeCost and copying, and a segment segCost; its
// port tells what it has sent corkHold late.
const (
	writeCost = 100 * time.Nanosecond
	copyRate  = 20 // bytes per ns
	segCost   = 500 * time.Nanosecond
	corkRate  = 40e9
	corkHold  = 20 * time.Microsecond
)

// corkResult is one run of small writes.
type corkResult struct {
	bps      float64
	segBytes float64 // mean payload of a segment
	corked   uint64  // writes that waited to be joined
}

// smallWrites writes size bytes at a time, one write per turn, for d of virtual time.
func smallWrites(size int, nagle, cork bool, d time.Duration) (r corkResult, err error) {
	w, err := narrow(memlink.Path{Rate: corkRate, Overhead: 24, Delay: 10 * time.Microsecond, Hold: corkHold}, tcp.Config{NoDelay: !nagle, NoAutoCork: !cork})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f := &bulkFlow{}
	if f.a, f.b, err = w.Connect(80); err != nil {
		return r, err
	}
	block := make([]byte, size)
	frames, work := w.PortA.Stats().TxFrames, time.Duration(0) // sent, and what they and the writes cost that no time has passed for
	run := func(d time.Duration) {
		for end := w.Clock.Now().Add(d); w.Clock.Now() < end; {
			sent := w.PortA.Stats().TxFrames
			work += time.Duration(sent-frames) * segCost
			frames = sent
			if f.a.WriteRoom() >= size {
				if n, err := f.a.TryWrite(block); err == nil {
					work += writeCost + time.Duration(n/copyRate)
				}
			}
			f.read()
			now := w.Clock.Now()
			w.TurnTime = work + 1
			if work > 0 { // until that is done and the application writes again, and not until something else happens
				w.Step(min(end, now.Add(work)))
			} else {
				w.Step(end)
			}
			work -= min(work, w.Clock.Now().Sub(now))
		}
	}
	run(d / 4)
	before := w.A.Stats()[0].TCP
	f.got = 0
	run(d)
	after := w.A.Stats()[0].TCP
	r.bps, r.corked = float64(f.got)*8/d.Seconds(), after.AutoCorking-before.AutoCorking
	r.segBytes = float64(after.BytesOut-before.BytesOut) / float64(max(after.SegsOut-before.SegsOut, 1))
	return r, nil
}

// autocork: small writes on a busy port with automatic corking and without (F6), by large ones.
func (b *paceBench) autocork() error {
	large, err := smallWrites(64<<10, false, true, b.Virtual/20)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name        string
		nagle, cork bool
		founding    float64
		least       float64 // by what 64 KB writes reach
	}{{"Nagle", true, false, 2683e6, 0}, {"Nagle, automatic corking", true, true, 5472e6, leastCorked}, {"no delay", false, false, 1409e6, 0},
		{"no delay, automatic corking", false, true, 5455e6, leastCorked}} {
		if err := b.step("%s", c.name); err != nil {
			return err
		}
		r, err := smallWrites(500, c.nagle, c.cork, b.Virtual/20)
		if err != nil {
			return err
		}
		b.add(report.PaceRow{Name: "500-byte writes: " + c.name, Virtual: true, Value: report.Summary("goodput_bps", []float64{r.bps}), Founding: c.founding,
			AtLeast: c.least * large.bps,
			Figures: map[string]float64{"by_64kb_writes": r.bps / large.bps, "segment_bytes": r.segBytes, "corked": float64(r.corked)}})
	}
	return nil
}

// leastCorked is what small writes reach by large ones with automatic corking: a write costs something, too.
const leastCorked = 0.5
