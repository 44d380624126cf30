package tcp

import (
	"fmt"
	"slices"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// lastUse is what the last Use of a kind has changed: what Undo goes by.
type lastUse struct {
	to      int
	current int
	rules   []rule
	flows   []moved
}

// moved is a flow that Use has moved, and the module that it was meant for before.
type moved struct {
	flow plugins.Flow
	from uint8
}

func (r *roster) remember(i int) {
	r.last = &lastUse{to: i, current: r.current, rules: slices.Clone(r.rules)}
}

// forget puts the fallback in the place of module i, which is detached: its index may be another's soon.
func (l *lastUse) forget(i, fallback int) {
	if l == nil {
		return
	}
	if l.to == i {
		*l = lastUse{to: -1}
		return
	}
	if l.current == i {
		l.current = fallback
	}
	l.rules = slices.DeleteFunc(l.rules, func(r rule) bool { return r.index == i })
	for j := range l.flows {
		if int(l.flows[j].from) == i {
			l.flows[j].from = uint8(fallback)
		}
	}
}

// Undo takes back the last Use, if that was for module i: its flows go where they were meant to be before, and flows that have opened at
// module i since to where they would have opened.
func (e *Engine) Undo(k plugins.Kind, i int) (n int, err error) {
	if err := e.check(k, i); err != nil {
		return 0, err
	}
	r := e.roster(k)
	last := r.last
	if last == nil || last.to != i {
		return 0, fmt.Errorf("the last swap of %v was not to module %d", k, i)
	}
	r.current, r.rules, r.last = last.current, last.rules, nil
	for _, m := range last.flows {
		if c := e.conn(m.flow); c != nil && c.opened() && c.home.index(k) == i {
			e.give(c, k, int(m.from))
			n++
		}
	}
	for s := range e.slots {
		if c := e.slots[s].conn; c != nil && c.opened() && c.home.index(k) == i {
			if to := r.forNew(&c.Tuple); to != i {
				e.give(c, k, to)
				n++
			}
		}
	}
	return n, nil
}

// Measure appends to dst how far each flow of sel has come, and its round-trip time.
func (e *Engine) Measure(sel plugins.Selection, dst []plugins.FlowMeasure) []plugins.FlowMeasure {
	for s := range e.slots {
		if c := e.slots[s].conn; c != nil && c.opened() && sel.Match(c.Tuple.LocalAddr(), c.Tuple.RemoteAddr()) {
			dst = append(dst, plugins.FlowMeasure{Flow: c.flow(), Delivered: c.stat.delivered, SRTT: c.stat.srtt})
		}
	}
	return dst
}
