package tcp

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

// shadow is a congestion control or pacing module that gets all events of the others' flows, and whose answers are only looked at.
type shadow struct {
	kind      plugins.Kind
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

// StartShadow has module i of kind k, which serves no flow, see all events from now on; of present flows a Resume first. What a retransmit
// queue is told follows from what it has said itself: there is no shadow of one.
func (e *Engine) StartShadow(k plugins.Kind, i int) error {
	if k != plugins.Cong && k != plugins.Pace {
		return fmt.Errorf("there are no shadows of %v modules", k)
	}
	if err := e.check(k, i); err != nil {
		return err
	}
	if e.shadow != nil {
		return fmt.Errorf("another module is being watched already")
	}
	if n := e.member(k, i).flows; n > 0 {
		return fmt.Errorf("it serves %d flows already", n)
	}
	e.shadow = &shadow{kind: k, index: i}
	for n := range e.slots {
		c := e.slots[n].conn
		if c == nil || !c.opened() || c.resume[k] { // one whose Resume is due has that mirrored
			continue
		}
		e.event++
		if k == plugins.Cong {
			s := e.cong.push(uint8(i))
			e.fillSample(s, c, cong.KindResume)
			c.fillResume(s)
		} else {
			e.fillPace(e.pace.push(uint8(i)), c, pace.EvResume)
		}
		*e.shadow.at(c.slot) = shadowFlow{gen: c.gen, known: true}
	}
	return nil
}

// mirror copies this turn's events of a kind to the shadow.
func (e *Engine) mirror(k plugins.Kind) {
	switch {
	case e.shadow.kind != k:
	case k == plugins.Cong:
		mirror(e, &e.cong, func(s *cong.Sample) (plugins.Flow, bool, bool) {
			return s.Flow, s.Kind == cong.KindOpen || s.Kind == cong.KindResume, s.Kind == cong.KindClose
		})
	case k == plugins.Pace:
		mirror(e, &e.pace, func(v *pace.Event) (plugins.Flow, bool, bool) {
			return v.Flow, v.Kind == pace.EvOpen || v.Kind == pace.EvResume, v.Kind == pace.EvClose
		})
	}
}

func mirror[E, C any](e *Engine, k *kind[E, C], look func(*E) (flow plugins.Flow, opens, closes bool)) {
	sh := e.shadow
	for i, in := range k.insts {
		if in == nil || i == sh.index {
			continue
		}
		for j := range in.in {
			flow, opens, closes := look(&in.in[j])
			f := sh.at(flow.Slot)
			switch {
			case opens:
				*f = shadowFlow{gen: flow.Gen, known: true}
			case !f.known || f.gen != flow.Gen:
				continue
			case closes:
				f.known = false
				if c := e.conn(flow); c != nil && c.isOpen && int(c.mod[sh.kind]) == sh.index {
					continue // the flow has become its own
				}
			}
			*k.push(uint8(sh.index)) = in.in[j]
		}
	}
}

// observe keeps an answer of module index of kind k, if that is the shadow.
func (s *shadow) observe(k plugins.Kind, index int, flow plugins.Flow, cwnd uint32, rate uint64) {
	if k != s.kind || index != s.index {
		return
	}
	if f := s.at(flow.Slot); f.known && f.gen == flow.Gen {
		f.said, f.cwnd, f.rate = true, cwnd, rate
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
		if !f.known || c == nil || !c.isOpen || int(c.mod[sh.kind]) == sh.index {
			continue
		}
		if f.said {
			sf := plugins.ShadowFlow{Local: c.Tuple.LocalAddr(), Peer: c.Tuple.RemoteAddr(), Rate: c.rate, WouldRate: f.rate}
			if sh.kind == plugins.Cong {
				sf.Cwnd, sf.WouldCwnd = c.cwnd, min(max(f.cwnd, c.mss), maxWindow)
			} else {
				sf.Rate = c.line.Rate
			}
			dst = append(dst, sf)
		}
		if e.check(sh.kind, sh.index) != nil {
			continue
		}
		e.event++
		if sh.kind == plugins.Cong {
			*e.cong.push(uint8(sh.index)) = cong.Sample{Flow: flow, ID: e.event, Now: e.now, Kind: cong.KindClose}
		} else {
			*e.pace.push(uint8(sh.index)) = pace.Event{Flow: flow, ID: e.event, Time: e.now, Kind: pace.EvClose}
		}
	}
	return dst, sh.decisions
}
