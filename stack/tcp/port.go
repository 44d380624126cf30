package tcp

import "time"

// portCounters is how many counters source ports are drawn from: connections to different destinations mostly use different ones, so that
// what one destination sees tells little about the others (RFC 6056, 3.3.4).
const portCounters = 1024

// choosePort picks a source port by the double hash of RFC 6056, 3.3.4, whose replies come to this worker. If none is free, one that a
// connection in TIME-WAIT holds will do, provided that timestamps tell the two apart (RFC 6191, 2).
func (e *Engine) choosePort(k *Tuple) bool {
	n := uint32(e.cfg.PortHigh-e.cfg.PortLow) + 1
	a, b, c, d, _ := k.words()
	offset := uint32(e.env.Keys.Port.siphash(a, b, c, d, uint64(k.RemotePort)))
	if e.ports == nil {
		e.ports = make([]uint32, portCounters)
		for i := range e.ports {
			e.ports[i] = e.rng.Uint32()
		}
	}
	counter := &e.ports[e.env.Keys.PortTable.siphash(a, b, c, d, uint64(k.RemotePort))%portCounters]
	for reuse := range 2 {
		for range n {
			k.LocalPort = e.cfg.PortLow + uint16((offset+*counter)%n)
			*counter++
			if e.env.Mine(k) && (e.find(k) == nil || reuse == 1 && e.reusable(k)) {
				return true
			}
		}
	}
	return false
}

// reuseAfter is how long a tuple has been in TIME-WAIT before we use it again (as Linux: the timestamp clock has moved by then, whatever
// its unit).
const reuseAfter = time.Second

// reusable reports whether the tuple, which is in the table, is in TIME-WAIT and may be used for a new connection.
func (e *Engine) reusable(k *Tuple) bool {
	slot := e.slotOf(k)
	tw := e.slots[slot].tw
	return tw != nil && tw.tsOK && e.wheel.At(slot).Sub(e.now) <= e.cfg.TimeWait-reuseAfter
}

// freeTuple makes room for a new connection of ours where one is in TIME-WAIT, and returns the initial sequence number of the new one: it
// lies above what the old one sent (RFC 6191, 2).
func (e *Engine) freeTuple(k *Tuple) (iss uint32) {
	slot := e.slotOf(k)
	iss = max(e.slots[slot].tw.sndNxt+65535+2, 1)
	e.dropTimeWait(slot)
	e.Stats.TimeWaitReuses++
	return iss
}
