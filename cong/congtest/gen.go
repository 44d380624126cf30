package congtest

import (
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/cong/internal/rng"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// generator makes the samples of one flow, in an order and with values that an engine could send: rates from 1 kbit/s to
// 100 Gbit/s, RTTs from 10 µs to 1 s, with losses, timeouts, marks, undo, idle times and changes of the segment size.
type generator struct {
	rand      rng.Rand
	flow      plugins.Flow
	id        uint64
	now       plugins.Time
	mss       uint32
	rate      uint64
	base      time.Duration
	srtt      time.Duration
	ca        uint8
	inFlight  uint32
	delivered uint64
	sndNxt    uint32
	dec       cong.Decision // last answer
	queue     []cong.Sample // to be sent before anything new
	wild      bool          // any bits in the samples' figures
}

func newGenerator(seed uint64, flow plugins.Flow) *generator {
	g := &generator{rand: rng.New(seed, flow), flow: flow}
	g.now = plugins.Time(1 + g.rand.N(1<<30))
	g.mss = g.segment()
	g.rate = 125 << g.rand.N(27) // 125 B/s … 8.4 GB/s
	g.rate += g.rate * uint64(g.rand.N(50)) / 100
	g.base = 10 * time.Microsecond << g.rand.N(17) // 10 µs … 0.66 s
	g.base += g.base * time.Duration(g.rand.N(50)) / 100
	g.srtt = g.base
	g.delivered = g.rand.Uint64() >> (1 + g.rand.N(63))
	g.sndNxt = g.rand.Uint32()
	g.dec = cong.Decision{Cwnd: 10 * g.mss, Ssthresh: cong.InfiniteSsthresh}
	return g
}

func (g *generator) segment() uint32 {
	return [...]uint32{88, 536, 1220, 1448, 8948, 65483}[g.rand.N(6)]
}

func (g *generator) chance(percent uint32) bool { return g.rand.N(100) < percent }

// upTo returns a number from 0 to n.
func (g *generator) upTo(n uint32) uint32 {
	return uint32(uint64(g.rand.Uint32()) * (uint64(n) + 1) >> 32)
}

// open returns the first sample: a new flow, or at times a live one.
func (g *generator) open() cong.Sample {
	if g.chance(80) {
		in := g.sample(cong.KindOpen)
		if g.chance(30) { // no RTT from the handshake
			in.SRTT, in.MinRTT = 0, 0
		}
		return in
	}
	return g.resume()
}

func (g *generator) resume() cong.Sample {
	g.ca = uint8(g.rand.N(5))
	g.dec.Cwnd = min(g.mss+g.upTo(1000*g.mss), 1<<30)
	if g.chance(60) {
		g.dec.Ssthresh = min(2*g.mss+g.upTo(1000*g.mss), 1<<30)
	}
	g.inFlight = g.upTo(g.dec.Cwnd)
	in := g.sample(cong.KindResume)
	g.rateSample(&in, g.upTo(g.dec.Cwnd))
	return in
}

// sample fills in what every sample tells.
func (g *generator) sample(kind uint8) cong.Sample {
	g.id++
	return cong.Sample{
		Flow: g.flow, ID: g.id, Now: g.now, Kind: kind, CA: g.ca, Flags: cong.FlagPaced, MSS: g.mss,
		InFlight: g.inFlight, PriorInFlight: g.inFlight, Cwnd: g.dec.Cwnd, Ssthresh: g.dec.Ssthresh,
		Delivered: g.delivered, SRTT: g.srtt, MinRTT: g.base, SndNxt: g.sndNxt,
	}
}

// next returns the next sample.
func (g *generator) next() cong.Sample {
	if len(g.queue) == 0 {
		switch p := g.rand.N(100); {
		case p < 2:
			g.idle()
		case p < 4:
			g.timeout()
		case p < 5:
			g.mss = g.segment()
			g.ack()
		default:
			g.ack()
		}
	}
	in := g.queue[0]
	g.queue = g.queue[1:]
	if g.wild {
		g.scramble(&in)
	}
	return in
}

func (g *generator) idle() {
	g.now += plugins.Time(g.rand.Uint64() >> (30 + g.rand.N(20))) // up to 17 s
	g.inFlight = 0
	if g.ca != cong.CALoss {
		g.ca = cong.CAOpen
	}
	in := g.sample(cong.KindRestart)
	in.Flags |= cong.FlagAppLimited
	g.queue = append(g.queue, in)
}

func (g *generator) timeout() {
	g.now += plugins.Time(g.srtt) + plugins.Time(200*time.Millisecond)
	g.lost(g.inFlight)
	in := g.sample(cong.KindTimeout)
	in.Lost = g.inFlight
	in.CA = cong.CALoss
	if g.ca != cong.CALoss {
		in.Flags |= cong.FlagEnter
	}
	g.ca, g.inFlight = cong.CALoss, 0
	g.queue = append(g.queue, in)
}

// lost reports n bytes in two ranges.
func (g *generator) lost(n uint32) {
	for _, part := range [...]uint32{n / 3, n - n/3} {
		if part > 0 {
			in := g.sample(cong.KindLost)
			in.Lost = part
			g.rateSample(&in, part)
			in.Flags &^= cong.FlagRateValid
			g.queue = append(g.queue, in)
		}
	}
}

func (g *generator) ack() {
	// Between two samples the engine fills the window, or the application does not.
	if room := g.dec.Cwnd - min(g.dec.Cwnd, g.inFlight); g.chance(90) {
		g.inFlight += room
		g.sndNxt += room
	} else {
		g.inFlight += g.upTo(room)
	}
	prior := g.inFlight
	acked := min(g.mss*(1+g.upTo(8)), prior)
	if g.chance(20) {
		acked = g.upTo(prior)
	}
	var lost uint32
	if g.chance(8) {
		lost = min(g.mss*(1+g.upTo(3)), prior-acked)
	}
	g.now += plugins.Time(g.rand.Uint64() % uint64(g.srtt))
	if lost > 0 {
		g.lost(lost)
	}
	g.inFlight = prior - acked - lost
	g.delivered += uint64(acked)
	in := g.sample(cong.KindAck)
	in.Acked, in.Lost, in.PriorInFlight = acked, lost, prior
	g.transition(&in)
	if acked > 0 {
		g.rateSample(&in, acked)
		g.rtt(&in)
	}
	if g.chance(90) {
		in.Flags |= cong.FlagCwndLimited
	}
	g.queue = append(g.queue, in)
}

func (g *generator) transition(in *cong.Sample) {
	switch {
	case in.Lost > 0 && g.ca < cong.CARecovery:
		g.ca = cong.CARecovery
		in.Flags |= cong.FlagEnter
	case g.ca < cong.CACWR && (g.chance(2) || g.dec.Flags&cong.EnterCWR != 0):
		g.ca = cong.CACWR
		in.Flags |= cong.FlagEnter
		if g.dec.Flags&cong.EnterCWR == 0 {
			in.Flags |= cong.FlagECE
			in.Marked = in.Acked
		}
	case g.ca >= cong.CACWR && g.chance(15):
		g.ca = cong.CAOpen
		in.Flags |= cong.FlagExit
		if g.chance(10) {
			in.Flags |= cong.FlagUndo
		}
	case g.ca < cong.CACWR && g.chance(10):
		g.ca ^= cong.CADisorder
	}
	if g.ca != cong.CAOpen && g.chance(70) {
		in.Flags |= cong.FlagSacked
	}
	in.CA = g.ca
}

func (g *generator) rateSample(in *cong.Sample, acked uint32) {
	n := min(uint64(acked)+uint64(g.upTo(in.PriorInFlight)), in.Delivered)
	in.PriorDelivered = in.Delivered - n
	in.Interval = time.Duration(cong.MulDiv(n, uint64(time.Second), g.rate))
	in.Interval = max(in.Interval/2+time.Duration(g.rand.Uint64()%uint64(in.Interval+1)), g.base)
	in.SendTime = g.now - plugins.Time(g.srtt)
	in.TxInFlight = in.PriorInFlight
	in.LostSinceSend = in.Lost
	if g.chance(95) {
		in.Flags |= cong.FlagRateValid
	}
	if g.chance(10) {
		in.Flags |= cong.FlagAppLimited
	}
}

func (g *generator) rtt(in *cong.Sample) {
	if g.chance(10) {
		return
	}
	in.Flags |= cong.FlagRTTValid
	in.RTT = g.base + time.Duration(g.rand.Uint64()%uint64(1+3*g.base*time.Duration(g.rand.N(2))))
	g.srtt += (in.RTT - g.srtt) / 8
	in.SRTT = g.srtt
	if g.chance(20) {
		in.Flags |= cong.FlagAckDelayed
	}
}

// scramble gives figures that no engine would send, of all magnitudes.
func (g *generator) scramble(in *cong.Sample) {
	random := func() uint64 { return g.rand.Uint64() >> g.rand.N(64) }
	for _, p := range [...]*uint32{&in.Acked, &in.Lost, &in.Marked, &in.LostSinceSend, &in.InFlight, &in.PriorInFlight,
		&in.TxInFlight, &in.Cwnd, &in.Ssthresh, &in.SndNxt, &in.MSS} {
		if g.chance(30) {
			*p = uint32(random())
		}
	}
	for _, p := range [...]*uint64{&in.Delivered, &in.PriorDelivered} {
		if g.chance(30) {
			*p = random()
		}
	}
	for _, p := range [...]*time.Duration{&in.Interval, &in.RTT, &in.SRTT, &in.MinRTT} {
		if g.chance(30) {
			*p = time.Duration(random())
		}
	}
	for _, p := range [...]*plugins.Time{&in.Now, &in.SendTime} {
		if g.chance(30) {
			*p = plugins.Time(random())
		}
	}
	if g.chance(30) {
		in.Flags = uint16(random())
	}
	if g.chance(30) {
		in.CA = uint8(g.rand.N(5))
	}
}
