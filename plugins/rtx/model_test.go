package rtx

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// model is a scoreboard of packets of equal size, one entry each, that is kept by the module's own commands and by the peer's
// acknowledgements. It knows nothing of recovery rules: it checks that what a module says adds up.
type model struct {
	isn, una, nxt uint32 // in packets: una and nxt count from isn
	pkts          []packet
	delivered     uint64
	txid          uint32
	sacks         bool
}

type packet struct {
	sacked, lost, resent bool
	told                 bool // a CmdSacked covered it
	txid                 uint32
}

const psize = 100

func (o *model) seq(i uint32) uint32   { return o.isn + i*psize }
func (o *model) left() uint32          { return o.nxt - o.una }
func (o *model) at(i uint32) *packet   { return &o.pkts[i-o.una] }
func (o *model) index(s uint32) uint32 { return (s - o.isn) / psize }

func (o *model) send(n uint32) (start, end uint32) {
	start = o.seq(o.nxt)
	for range n {
		o.txid++
		o.pkts = append(o.pkts, packet{txid: o.txid})
	}
	o.nxt += n
	return start, o.seq(o.nxt)
}

func (o *model) resend(i, n uint32, probe bool) (start, end uint32) {
	for j := i; j < i+n; j++ {
		o.txid++
		if p := o.at(j); !p.sacked {
			p.txid = o.txid
			p.resent = p.resent || !probe || p.lost
		}
	}
	return o.seq(i), o.seq(i + n)
}

func (o *model) ack(una uint32) {
	for o.una < una {
		if !o.pkts[0].sacked {
			o.delivered += psize
		}
		o.pkts = o.pkts[1:]
		o.una++
	}
}

func (o *model) sack(r seq.Range) {
	for i := o.una; i < o.nxt; i++ {
		if p := o.at(i); !p.sacked && seq.AfterEq(o.seq(i), r.Start) && seq.BeforeEq(o.seq(i+1), r.End) {
			p.sacked, p.lost, p.resent = true, false, false
			o.delivered += psize
		}
	}
}

// command takes one command and reports what is wrong with it.
func (o *model) command(c *Command) error {
	r := c.Range()
	switch c.Kind {
	case CmdSacked:
		for i := o.index(r.Start); i < o.index(r.End); i++ {
			if i < o.una {
				continue // acknowledged later in the batch
			}
			p := o.at(i)
			if !p.sacked || p.told {
				return fmt.Errorf("packet %d is reported as SACKed: %+v", i, *p)
			}
			p.told = true
		}
	case CmdLost:
		if (r.End-r.Start)%psize != 0 || c.TxID == 0 || c.TxID > o.txid {
			return fmt.Errorf("bad range %v or transmission %d", r, c.TxID)
		}
		for i := max(o.index(r.Start), o.una); i < o.index(r.End); i++ {
			if p := o.at(i); !p.sacked && int32(p.txid-c.TxID) <= 0 {
				p.lost, p.resent = true, false
			}
		}
	case CmdNotLost:
		for i := range o.pkts {
			o.pkts[i].lost = false
		}
	case CmdReneged:
		for i := range o.pkts {
			o.pkts[i].sacked, o.pkts[i].told = false, false
		}
	case CmdStatus:
		return o.status(c)
	}
	return nil
}

func (o *model) status(c *Command) error {
	var sacked, lost, resent uint32
	for i := range o.pkts {
		p := &o.pkts[i]
		switch {
		case p.sacked:
			sacked += psize
			if !p.told {
				return fmt.Errorf("packet %d was not reported as SACKed", int(o.una)+i)
			}
		case p.lost && !p.resent:
			lost += psize
		case p.lost && p.resent:
			lost += psize
			resent += psize
		case p.resent:
			resent += psize
		}
	}
	inFlight := o.left()*psize - sacked - lost + resent
	if !o.sacks {
		sacked, inFlight = c.SackedOut, c.InFlight
	}
	if c.SackedOut != sacked || c.LostOut != lost || c.InFlight != inFlight {
		return fmt.Errorf("status: sacked %d lost %d in flight %d, want %d %d %d", c.SackedOut, c.LostOut, c.InFlight, sacked, lost, inFlight)
	}
	if o.sacks && c.Delivered != o.delivered {
		return fmt.Errorf("status: delivered %d, want %d", c.Delivered, o.delivered)
	}
	if idle := o.left() == 0; idle != (c.Timer == TimerNone) || idle != (c.TimerAt() == plugins.Never) {
		return fmt.Errorf("status: timer %d at %d with %d packets outstanding", c.Timer, c.TimerAt(), o.left())
	}
	if c.Flags&FlagRateValid != 0 && (c.Interval <= 0 || c.PriorDelivered >= c.Delivered || c.Interval < c.MinRTT) {
		return fmt.Errorf("status: bad rate sample %+v", c)
	}
	return nil
}

// pair drives two modules with the same events, compares their answers, and holds both against the model.
type pair struct {
	mods [2]*module
	o    model
	flow plugins.Flow
	id   uint64
	now  plugins.Time
	last Command // last Status
	room int
}

func newPair(a, b *module, isn uint32, flags uint8) *pair {
	p := &pair{mods: [2]*module{a, b}, flow: plugins.Flow{Slot: 1, Gen: 7}, now: 1e9, room: 64}
	p.o = model{isn: isn, sacks: flags&FlagNoSACK == 0}
	p.event(Event{Kind: EvOpen, Seq: isn, MSS: psize, Echo: p.now - 20*ms, Flags: flags})
	return p
}

func (p *pair) event(ev Event) error { return p.events([]Event{ev}) }

func (p *pair) events(evs []Event) error {
	for i := range evs {
		p.id++
		evs[i].ID, evs[i].Flow = p.id, p.flow
		if evs[i].Time == 0 {
			evs[i].Time = p.now
		}
	}
	in := evs
	var outs [2][64]Command
	for {
		var n [2]int
		for i, m := range p.mods {
			n[i] = m.Poll(p.now, in, outs[i][:p.room])
			if err := integrity(m); err != nil {
				return fmt.Errorf("module %d: %w", i, err)
			}
		}
		in = nil
		if n[0] != n[1] {
			return fmt.Errorf("%d answers against %d", n[0], n[1])
		}
		for i := range n[0] {
			a, b := &outs[0][i], &outs[1][i]
			if *a != *b {
				return fmt.Errorf("answers differ:\n%s", cmp.Diff(*a, *b))
			}
			if err := p.o.command(a); err != nil {
				return err
			}
			if a.Kind == CmdStatus {
				p.last = *a
			}
		}
		if n[0] < p.room {
			break
		}
	}
	for i, m := range p.mods {
		if m.Deadline() != plugins.Never {
			return fmt.Errorf("module %d still has answers", i)
		}
	}
	if closed := evs[len(evs)-1].Kind == EvClose; !closed && p.last.AsOf != p.id {
		return fmt.Errorf("the last status is of event %d, not of %d", p.last.AsOf, p.id)
	}
	return nil
}

// step draws one operation. Every choice comes from next, so that a fuzzer can drive it.
func (p *pair) step(next func(n int) int) error {
	o := &p.o
	switch op := next(16); {
	case op < 5 && o.left() < 3000:
		n := uint32(1 + next(5))
		s, e := o.send(n)
		ev := Event{Kind: EvSent, Seq: s, End: e, TxID: o.txid, MSS: psize}
		if next(10) == 0 {
			ev.Flags |= FlagAppLimited
		}
		return p.event(ev)
	case op < 7:
		p.now += plugins.Time(next(256)) * ms / 8
		return nil
	case o.left() == 0:
		return nil
	case op < 9: // send something again: lost packets if there are any
		i := o.una
		for i < o.nxt-1 && !(o.at(i).lost && !o.at(i).resent) {
			i++
		}
		if next(8) == 0 {
			i = o.una + uint32(next(int(o.left())))
		}
		n := 1 + uint32(next(int(min(4, o.nxt-i))))
		s, e := o.resend(i, n, false)
		return p.event(Event{Kind: EvSent, Flags: FlagRetrans, Seq: s, End: e, TxID: o.txid})
	case op == 9: // its timer
		p.now = max(p.now, p.last.TimerAt())
		kind := p.last.Timer
		if err := p.event(Event{Kind: EvTimer, Timer: kind}); err != nil || kind != TimerTLP || o.at(o.nxt-1).sacked {
			return err
		}
		s, e := o.resend(o.nxt-1, 1, true)
		return p.event(Event{Kind: EvSent, Flags: FlagRetrans | FlagProbe, Seq: s, End: e, TxID: o.txid})
	case op == 10 && next(8) == 0:
		return p.resume(next)
	case op == 10 && next(4) == 0: // a timer that is not due
		return p.event(Event{Kind: EvTimer, Timer: uint8(next(5))})
	}
	ev := p.acknowledgement(next)
	return p.event(ev)
}

// resume gives the flow to the modules anew, with the model's marks as the log.
func (p *pair) resume(next func(n int) int) error {
	o := &p.o
	evs := []Event{{Kind: EvClose}}
	if err := p.events(evs); err != nil {
		return err
	}
	p.flow.Gen++
	var flags uint8
	if !o.sacks {
		flags = FlagNoSACK
	}
	o.delivered = uint64(next(1000)) * psize
	evs = []Event{{
		Kind: EvResume, Seq: o.seq(o.una), End: o.seq(o.nxt), MSS: psize, Flags: flags, Delivered: o.delivered,
		Echo: 30 * ms, FirstSent: 20 * ms, DeliveredTime: 5 * ms,
	}}
	skip := uint32(0)
	if o.left() > 4 && next(3) == 0 {
		skip = uint32(next(4)) // acknowledged while the log is replayed
	}
	o.una += skip
	o.pkts = o.pkts[skip:]
	for i := o.una; i < o.nxt; i++ {
		k := o.at(i)
		k.lost = k.lost && !k.resent
		k.resent = false
		k.told = k.sacked
		ev := Event{Kind: EvLog, Seq: o.seq(i), End: o.seq(i + 1), TxID: k.txid, Time: p.now - 10*ms, FirstSent: p.now - 11*ms,
			DeliveredTime: p.now - 12*ms, Delivered: o.delivered / 2}
		if k.sacked {
			ev.Timer |= MarkSacked
		}
		if k.lost {
			ev.Timer |= MarkLost
		}
		if k.txid%3 == 0 {
			ev.Timer |= MarkRetrans
		}
		if i == o.nxt-1 {
			ev.Flags |= FlagLast
		}
		evs = append(evs, ev)
	}
	cut := next(len(evs))
	for i := range evs {
		p.id++
		evs[i].ID, evs[i].Flow = p.id, p.flow
		if evs[i].Time == 0 {
			evs[i].Time = p.now
		}
	}
	for _, m := range p.mods { // nothing is said before the log ends
		if n := m.Poll(p.now, evs[:cut], make([]Command, 1)); n != 0 || m.Deadline() != plugins.Never {
			return fmt.Errorf("%d answers within the replay of the log", n)
		}
		if err := integrity(m); err != nil {
			return fmt.Errorf("within the replay: %w", err)
		}
	}
	p.id -= uint64(len(evs) - cut)
	return p.events(evs[cut:])
}

// acknowledgement draws one: advancing or not, with blocks that a receiver could send or that are made up.
func (p *pair) acknowledgement(next func(n int) int) Event {
	o := &p.o
	una := o.una
	if next(3) == 0 {
		una += uint32(next(int(min(o.left(), 12)) + 1))
		for una < o.nxt && o.at(una).sacked && next(16) != 0 { // a receiver that does not renege acknowledges the run
			una++
		}
	}
	advanced := una != o.una
	ev := Event{Kind: EvAck, Seq: o.seq(una), End: o.seq(o.nxt), MSS: psize}
	o.ack(una)
	if o.sacks {
		ev.NSack = uint8(next(MaxSack + 1))
	}
	for i := range ev.NSack {
		if o.left() < 2 {
			ev.NSack = i
			break
		}
		a := 1 + uint32(next(int(o.left())-1))
		b := min(a+1+uint32(next(6)), o.left())
		r := seq.Range{Start: o.seq(o.una + a), End: o.seq(o.una + b)}
		switch next(16) {
		case 0:
			r.Start += uint32(next(psize)) // covers parts of packets
			r.End = seq.Max(r.Start+1, r.End-uint32(next(psize)))
		case 1:
			r.End = o.seq(o.nxt)
		}
		ev.Sack[i] = r
		o.sack(r)
	}
	if !advanced && next(2) == 0 {
		ev.Flags |= FlagDup
	}
	if next(3) == 0 {
		ev.Echo = p.now - plugins.Time(next(100))*ms
	}
	if next(6) == 0 {
		ev.DSack = seq.Range{Start: o.seq(o.una) - psize, End: o.seq(o.una)}
	}
	return ev
}

func TestModelRandom(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		isn := uint32(seed * 0x1234567)
		if seed%3 == 0 {
			isn = -uint32(rng.IntN(100 * psize)) // wraps soon
		}
		var flags uint8
		if seed%5 == 4 {
			flags = FlagNoSACK
		}
		p := newPair(list(), tree(int(seed%4)*3, []int{1, 2, 4, 64}[seed/4%4]), isn, flags)
		if seed%7 == 6 {
			p.room = 1
		}
		for i := range 4000 {
			if err := p.step(rng.IntN); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
	}
}

func FuzzModel(f *testing.F) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			v := int(data[0])
			data = data[1:]
			if n > 256 && len(data) > 0 {
				v |= int(data[0]) << 8
				data = data[1:]
			}
			return v % n
		}
		var flags uint8
		if next(5) == 0 {
			flags = FlagNoSACK
		}
		p := newPair(list(), tree(next(8), 1+next(5)), -uint32(next(65536)), flags)
		p.room = 1 + next(64)
		for len(data) > 0 {
			if err := p.step(next); err != nil {
				t.Fatal(err)
			}
		}
	})
}
