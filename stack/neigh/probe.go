package neigh

import (
	"math/rand/v2"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Times of address conflict detection (RFC 5227, 1.1).
const (
	probeWait    = time.Second
	probeNum     = 3
	probeMin     = time.Second
	probeMax     = 2 * time.Second
	announceWait = 2 * time.Second
)

// probe is the check of an address that is to become ours (RFC 5227, 2.1.1).
type probe struct {
	addr wire.Addr // zero: none
	sent int
	due  plugins.Time
	done func(conflict bool)
}

// Probe asks whether another host has the IPv4 address a: three requests without a sender address within four seconds at most, and two
// seconds more to wait. done is called once, from Input or Poll, unless another Probe or EndProbe comes first.
func (c *Cache) Probe(a wire.Addr, now plugins.Time, done func(conflict bool)) {
	c.probe = probe{addr: a, due: now + randTime(c.rng, 0, probeWait), done: done}
}

// EndProbe ends a check without a result.
func (c *Cache) EndProbe() { c.probe = probe{due: plugins.Never} }

func randTime(r *rand.Rand, from, to time.Duration) plugins.Time {
	return plugins.Time(from) + plugins.Time(r.Int64N(int64(to-from)+1))
}

// probed ends the check with a result.
func (c *Cache) probed(conflict bool) {
	done := c.probe.done
	c.EndProbe()
	done(conflict)
}

// heardProbed looks whether an ARP packet of another host shows that it has the address, or wants it too.
func (c *Cache) heardProbed(spa, tpa wire.Addr, isProbe bool) {
	a := c.probe.addr
	if a != (wire.Addr{}) && (spa == a || isProbe && tpa == a) {
		c.stats.Conflicts++
		c.probed(true)
	}
}

// pollProbe sends the next request of a check, if it is due, or ends it.
func (c *Cache) pollProbe(now plugins.Time, out []Output) (n int) {
	p := &c.probe
	if p.addr == (wire.Addr{}) || now < p.due || len(out) == 0 {
		return 0
	}
	if p.sent == probeNum {
		c.probed(false)
		return 0
	}
	c.stats.Requests++
	out[0] = Output{Dst: wire.Broadcast, ARP: wire.ARP{Op: wire.ARPRequest, SHA: c.cfg.MAC, TPA: p.addr.As4()}}
	p.sent++
	if p.sent == probeNum {
		p.due = now.Add(announceWait)
	} else {
		p.due = now + randTime(c.rng, probeMin, probeMax)
	}
	return 1
}
