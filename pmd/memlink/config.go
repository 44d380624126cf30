// Package memlink is a link in memory: two ports, each the other's peer, on the same or on different threads.
//
// Without impairments a frame crosses in a lock-free ring: the receiver gets the very buffer that the sender filled and frees it
// to the sender's pool. With impairments (rate, queue, delay, jitter, loss, duplication, reordering, corruption, ECN marking) a
// frame waits in a line ordered by release time, as in netem. All draws come from seeded generators and all arithmetic is in
// integers, so the same seed and the same calls give the same result on every machine.
package memlink

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/chance"
)

// PPB is a probability in parts per billion.
type PPB = chance.PPB

// Probabilities.
const (
	Percent = chance.Percent
	Always  = chance.Always
)

// Config describes a link. The zero value is a clean one with the defaults given below.
type Config struct {
	A, B   End
	MTU    int // 1500
	Queues int // 1: queue pairs of each port
	Ring   int // 1024: frames that one Poll can take; a power of two

	// Bufs is the number of buffers in each queue's pool. Frames on the link stay in the sender's buffers, so the default is
	// 4096 and what the paths hold at their rates, up to 131072.
	Bufs    int
	BufSize int // 2048, or more if the MTU needs it

	AtoB, BtoA Path

	// TSO is the most bytes of payload in a large frame, which the sending port cuts as a network card does, and whose checksums it
	// completes, in buffers of its own, as many as Bufs. 0: the ports have no pmd.TSO.
	TSO int

	// Seed feeds all random draws.
	Seed uint64

	// Dropped, if set, sees each frame that a path drops, for loss or for want of room in its queue, before it is freed; fromA says
	// which port sent it. It is called on the sender's thread and must not keep the frame.
	Dropped func(fromA bool, frame []byte)

	// Extra, if set, says what is added to a frame's delay behind the bottleneck of a path that has a rate or a delay, up to ExtraMost, so
	// that flows that share the path have round-trip times of their own. It is called on the sender's thread and must not keep the frame.
	Extra     func(frame []byte) time.Duration
	ExtraMost time.Duration

	// Now is the clock, called at most once per Poll, and only if a path has a rate, delay, jitter or reordering. Unless
	// Virtual is set it must be CLOCK_MONOTONIC.
	Now func() plugins.Time
	// Virtual says that Now is a virtual clock. The ports then have no wake descriptors; see Port.NextRelease.
	Virtual bool

	// Steer says at which queue of the receiving port a frame arrives, and its hash, as the RSS of a NIC does. Without it a
	// frame sent by queue i arrives at queue i. It is called on the sender's thread and must not keep the frame.
	Steer func(frame []byte) (hash uint32, queue int)
	// RSSKey and RSSTable are what Steer goes by, if it computes the Toeplitz hash: ports then have pmd.RSSHash and set
	// Buf.Hash of frames whose hash is not 0.
	RSSKey   []byte
	RSSTable []uint16
}

// End describes one port.
type End struct {
	Name string           // "a" or "b"
	MAC  net.HardwareAddr // 02:00:00:00:00:0a or :0b
}

// Path describes what happens to frames in one direction, in this order: loss, duplication, the bottleneck (queue, ECN marking,
// rate), corruption, delay. The zero value is a clean path.
type Path struct {
	// Rate is the bottleneck's rate in bits per second; 0 is infinite. Overhead is added to each frame's length for that
	// purpose; 24 accounts for Ethernet's preamble, FCS and gap.
	Rate     uint64
	Overhead int
	// Trace, in place of Rate, is a rate that changes with time.
	Trace *Trace
	// QueueBytes and QueueFrames bound what waits for the bottleneck, including the frame on its way into it. A frame for
	// which there is no room is dropped. 0 is no bound.
	QueueBytes, QueueFrames int
	// A frame that finds at least MarkBytes or MarkFrames in the queue has its ECT codepoint changed to CE (RFC 3168). 0 never
	// marks.
	MarkBytes, MarkFrames int

	// Delay is the propagation delay; each frame's differs from it by a uniform draw of up to ± Jitter. With KeepOrder no
	// frame overtakes another by jitter.
	Delay, Jitter time.Duration
	KeepOrder     bool

	// Hold makes the sending port keep its frames, as a NIC does that tells late what it has sent: each until Hold after the bottleneck
	// has served it. HoldEach makes it tell together, when so much time has passed since the last time, what it has sent meanwhile
	// (interrupt coalescing). Such a port has no pmd.Copies, and its ring has room for what it does not keep.
	Hold, HoldEach time.Duration

	Loss Loss

	// PolicerRate, in bits per second, and PolicerBurst, in bytes, are a token bucket before the bottleneck: a frame for which it has too
	// few tokens is dropped, and nothing waits. It is full at first. 0 is none.
	PolicerRate  uint64
	PolicerBurst int

	Duplicate PPB

	// Reorder delays a frame by another ReorderDelay, so that later ones overtake it. KeepOrder does not apply to it.
	Reorder      PPB
	ReorderDelay time.Duration

	// Corrupt inverts one bit of a frame, or a burst: CorruptBits (1 to 15; 0 is 1) is the longest burst, whose first and last
	// bits are inverted and those between at random. The Internet checksum detects all of these. The bits lie behind the first
	// CorruptFrom bytes (0 is 14, the Ethernet header).
	Corrupt     PPB
	CorruptBits int
	CorruptFrom int
}

// Loss says which frames are lost before they reach the bottleneck. The models add up.
type Loss struct {
	Random PPB      // each frame independently
	Frames []uint64 // by number; the first frame of a direction is 1

	// Burst is the probability that a frame and those after it, BurstLen in all, are lost.
	Burst    PPB
	BurstLen int

	Gilbert Gilbert
}

// Gilbert is the Gilbert-Elliott model: a chain with a good and a bad state, which loses frames with the probability of its
// state and then moves to the other state or not. The zero value is off.
type Gilbert struct {
	ToBad, ToGood PPB // transition probabilities per frame
	Good, Bad     PPB // loss probabilities in the two states
}

const (
	ethHeader = 14
	vlanTag   = 4
	maxBufs   = 1 << 17
)

// timed reports whether the path needs a clock.
func (p *Path) timed() bool {
	return p.Rate != 0 || p.Trace != nil || p.Delay != 0 || p.Jitter != 0 || p.Reorder != 0 || p.PolicerRate != 0 || p.holds()
}

// holds reports whether the sending port keeps its frames.
func (p *Path) holds() bool { return p.Hold != 0 || p.HoldEach != 0 }

// impaired reports whether frames cannot go straight through.
func (p *Path) impaired() bool {
	l := &p.Loss
	return p.timed() || p.Duplicate != 0 || p.Corrupt != 0 ||
		l.Random != 0 || len(l.Frames) != 0 || l.Burst != 0 || l.Gilbert != Gilbert{}
}

// inFlight estimates how many full frames the path holds.
func (p *Path) inFlight(mtu int, extra time.Duration) int {
	frame := uint64(mtu + ethHeader)
	bytes := uint64(p.QueueBytes)
	if longest := p.Delay + p.Jitter + extra; longest > 0 {
		rate := p.Rate
		if p.Trace != nil {
			rate = p.Trace.peak()
		}
		bytes += min(rate, 1e12) / 8 * uint64(longest.Milliseconds()+1) / 1000
	}
	return int(min(bytes/frame+uint64(p.QueueFrames), maxBufs))
}

func (c *Config) setDefaults() {
	def(&c.A.Name, "a")
	def(&c.B.Name, "b")
	if c.A.MAC == nil {
		c.A.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x0a}
	}
	if c.B.MAC == nil {
		c.B.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x0b}
	}
	def(&c.MTU, 1500)
	def(&c.Queues, 1)
	def(&c.Ring, 1024)
	def(&c.Bufs, min(max(4096, 2*c.Ring)+2*max(c.AtoB.inFlight(c.MTU, c.ExtraMost), c.BtoA.inFlight(c.MTU, c.ExtraMost)), maxBufs))
	def(&c.BufSize, max(pmd.DefaultBufSize, (pmd.Headroom+c.maxFrame()+63)&^63))
	c.AtoB.setDefaults()
	c.BtoA.setDefaults()
}

func (p *Path) setDefaults() {
	def(&p.CorruptBits, 1)
	def(&p.CorruptFrom, ethHeader)
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) maxFrame() int { return c.MTU + ethHeader + vlanTag }

// validate returns all that is wrong, each error naming its field.
func (c *Config) validate() error {
	var e errs
	e.check(c.MTU >= 68 && c.MTU <= 65535, "MTU: %d is not in 68 … 65535", c.MTU)
	e.check(c.Queues >= 1 && c.Queues <= 256, "Queues: %d is not in 1 … 256", c.Queues)
	e.check(c.Ring >= 1 && c.Ring&(c.Ring-1) == 0 && c.Ring <= 1<<20, "Ring: %d is not a power of two up to 2^20", c.Ring)
	e.check(c.Bufs >= 1, "Bufs: %d", c.Bufs)
	e.check(c.BufSize >= pmd.Headroom+c.maxFrame(), "BufSize: %d cannot hold an MTU of %d", c.BufSize, c.MTU)
	e.check(c.TSO >= 0 && c.TSO <= pmd.MaxLarge-pmd.MaxHeaders, "TSO: %d is not in 0 … %d", c.TSO, pmd.MaxLarge-pmd.MaxHeaders)
	e.check(len(c.A.MAC) == 6, "A.MAC: %v is not an Ethernet address", c.A.MAC)
	e.check(len(c.B.MAC) == 6, "B.MAC: %v is not an Ethernet address", c.B.MAC)
	e.check((c.RSSKey == nil) == (c.RSSTable == nil), "RSSTable: needs RSSKey, and RSSKey needs it")
	e.check(c.RSSKey == nil || c.Steer != nil, "RSSKey: needs Steer")
	e.check(c.RSSKey == nil || len(c.RSSKey) >= 40, "RSSKey: %d bytes, want at least 40", len(c.RSSKey))
	for i, q := range c.RSSTable {
		e.check(int(q) < c.Queues, "RSSTable[%d]: queue %d of %d", i, q, c.Queues)
	}
	e.check(!c.Virtual || c.Now != nil, "Now: a virtual clock is needed with Virtual")
	c.AtoB.validate("AtoB", c.Now != nil, &e)
	c.BtoA.validate("BtoA", c.Now != nil, &e)
	return errors.Join(e...)
}

func (p *Path) validate(name string, clock bool, e *errs) {
	e.check(clock || !p.timed(), "Now: a clock is needed for the rate, delay, jitter, reordering or hold of %s", name)
	e.check(p.Rate <= maxRate, "%s.Rate: %d is more than 10^15 bits per second", name, p.Rate)
	e.check(p.Rate == 0 || p.Trace == nil, "%s.Trace: not with Rate", name)
	if p.Trace != nil {
		p.Trace.validate(name, e)
	}
	e.check(p.PolicerRate <= maxRate, "%s.PolicerRate: %d is more than 10^15 bits per second", name, p.PolicerRate)
	e.check(p.PolicerBurst >= 0 && p.PolicerBurst <= 1<<30, "%s.PolicerBurst: %d is not in 0 … 2^30", name, p.PolicerBurst)
	e.check((p.PolicerRate == 0) == (p.PolicerBurst == 0), "%s.PolicerBurst: needs PolicerRate, and PolicerRate needs it", name)
	e.check(p.Overhead >= 0 && p.Overhead <= 1<<16, "%s.Overhead: %d", name, p.Overhead)
	for _, f := range []struct {
		name string
		v    int
	}{{"QueueBytes", p.QueueBytes}, {"QueueFrames", p.QueueFrames}, {"MarkBytes", p.MarkBytes}, {"MarkFrames", p.MarkFrames}} {
		e.check(f.v >= 0, "%s.%s: %d is negative", name, f.name, f.v)
		e.check(f.v == 0 || p.Rate != 0 || p.Trace != nil, "%s.%s: without Rate nothing queues", name, f.name)
	}
	e.check(p.Delay >= 0 && p.Delay <= time.Hour, "%s.Delay: %v is not in 0 … 1h", name, p.Delay)
	e.check(p.Hold >= 0 && p.Hold <= time.Second, "%s.Hold: %v is not in 0 … 1s", name, p.Hold)
	e.check(p.HoldEach >= 0 && p.HoldEach <= time.Second, "%s.HoldEach: %v is not in 0 … 1s", name, p.HoldEach)
	e.check(p.Jitter >= 0 && p.Jitter <= p.Delay, "%s.Jitter: %v is not in 0 … Delay (%v)", name, p.Jitter, p.Delay)
	e.check(p.ReorderDelay >= 0 && p.ReorderDelay <= time.Hour, "%s.ReorderDelay: %v is not in 0 … 1h", name, p.ReorderDelay)
	e.check(p.Reorder == 0 || p.ReorderDelay > 0, "%s.ReorderDelay: needed with Reorder", name)
	e.check(p.CorruptBits >= 1 && p.CorruptBits <= 15, "%s.CorruptBits: %d is not in 1 … 15", name, p.CorruptBits)
	e.check(p.CorruptFrom >= 0, "%s.CorruptFrom: %d is negative", name, p.CorruptFrom)
	l := &p.Loss
	e.check(l.Burst == 0 || l.BurstLen > 0, "%s.Loss.BurstLen: needed with Burst", name)
	e.check(l.BurstLen >= 0, "%s.Loss.BurstLen: %d is negative", name, l.BurstLen)
	for i, n := range l.Frames {
		e.check(n > 0, "%s.Loss.Frames[%d]: frames count from 1", name, i)
	}
	for _, f := range []struct {
		name string
		v    PPB
	}{
		{"Loss.Random", l.Random}, {"Loss.Burst", l.Burst}, {"Loss.Gilbert.ToBad", l.Gilbert.ToBad},
		{"Loss.Gilbert.ToGood", l.Gilbert.ToGood}, {"Loss.Gilbert.Good", l.Gilbert.Good}, {"Loss.Gilbert.Bad", l.Gilbert.Bad},
		{"Duplicate", p.Duplicate}, {"Reorder", p.Reorder}, {"Corrupt", p.Corrupt},
	} {
		e.check(f.v <= Always, "%s.%s: %d is more than %d parts per billion", name, f.name, f.v, Always)
	}
}

type errs []error

func (e *errs) check(ok bool, format string, args ...any) {
	if !ok {
		*e = append(*e, fmt.Errorf("memlink: "+format, args...))
	}
}
