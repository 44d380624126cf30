package tcp

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// shadow is a congestion control that gets all samples of the others' flows, and whose decisions are only looked at.
type shadow struct {
	index     int
	flows     []shadowFlow // by slot
	decisions uint64
}

type shadowFlow struct {
	gen   uint32
	known bool // it has had the flow's Open or Resume, and no Close
	said  bool
	cwnd  uint32
	rate  uint64
}

// at is what is known of a slot.
func (s *shadow) at(slot uint32) *shadowFlow {
	if int(slot) >= len(s.flows) {
		s.flows = append(s.flows, make([]shadowFlow, max(int(slot)+1-len(s.flows), len(s.flows), 64))...)
	}
	return &s.flows[slot]
}

// StartShadow has congestion control i, which serves no flow, see all samples from now on; of present flows a Resume first.
func (e *Engine) StartShadow(i int) error {
	if err := e.check(plugins.Cong, i); err != nil {
		return err
	}
	if e.shadow != nil {
		return fmt.Errorf("another module is being watched already")
	}
	if n := e.member(plugins.Cong, i).flows; n > 0 {
		return fmt.Errorf("it serves %d flows already", n)
	}
	e.shadow = &shadow{index: i}
	for n := range e.slots {
		if c := e.slots[n].conn; c != nil && c.opened() && !c.resume[plugins.Cong] { // one whose Resume is due has that mirrored
			e.event++
			s := e.cong.push(uint8(i))
			e.fillSample(s, c, cong.KindResume)
			c.fillResume(s)
			*e.shadow.at(c.slot) = shadowFlow{gen: c.gen, known: true}
		}
	}
	return nil
}

// mirror copies this turn's samples to the shadow.
func (e *Engine) mirror() {
	sh := e.shadow
	for i, in := range e.cong.insts {
		if in == nil || i == sh.index {
			continue
		}
		for j := range in.in {
			s := &in.in[j]
			f := sh.at(s.Flow.Slot)
			switch {
			case s.Kind == cong.KindOpen || s.Kind == cong.KindResume:
				*f = shadowFlow{gen: s.Flow.Gen, known: true}
			case !f.known || f.gen != s.Flow.Gen:
				continue
			case s.Kind == cong.KindClose:
				f.known = false
				if c := e.conn(s.Flow); c != nil && c.isOpen && int(c.mod[plugins.Cong]) == sh.index {
					continue // the flow has become its own
				}
			}
			*e.cong.push(uint8(sh.index)) = *s
		}
	}
}

// observe keeps a decision of the shadow.
func (s *shadow) observe(d *cong.Decision) {
	if f := s.at(d.Flow.Slot); f.known && f.gen == d.Flow.Gen {
		f.said, f.cwnd, f.rate = true, d.Cwnd, d.Rate
		s.decisions++
	}
}

// EndShadow ends what StartShadow began, and appends to dst what the module would have decided last for each flow that is still there.
func (e *Engine) EndShadow(dst []plugins.ShadowFlow) (_ []plugins.ShadowFlow, decisions uint64) {
	sh := e.shadow
	if sh == nil {
		return dst, 0
	}
	e.shadow = nil
	for slot := range sh.flows {
		f := &sh.flows[slot]
		flow := plugins.Flow{Slot: uint32(slot), Gen: f.gen}
		c := e.conn(flow)
		if !f.known || c == nil || !c.isOpen || int(c.mod[plugins.Cong]) == sh.index {
			continue
		}
		if f.said {
			dst = append(dst, plugins.ShadowFlow{Local: c.Tuple.LocalAddr(), Peer: c.Tuple.RemoteAddr(), Cwnd: c.cwnd, Rate: c.rate,
				WouldCwnd: min(max(f.cwnd, c.mss), maxWindow), WouldRate: f.rate})
		}
		if e.check(plugins.Cong, sh.index) == nil {
			e.event++
			*e.cong.push(uint8(sh.index)) = cong.Sample{Flow: flow, ID: e.event, Now: e.now, Kind: cong.KindClose}
		}
	}
	return dst, sh.decisions
}
