package tcp

import (
	"fmt"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// maxRules bounds the rules of one kind.
const maxRules = 16

// rule gives new flows to another module than the current one.
type rule struct {
	sel   plugins.Selection
	index int
}

// forNew is the module that a new flow is meant for.
func (r *roster) forNew(t *Tuple) int {
	for i := range r.rules {
		if r.rules[i].sel.Match(t.LocalAddr(), t.RemoteAddr()) {
			return r.rules[i].index
		}
	}
	return r.current
}

// assign makes module i serve the new flows of sel. What is for all flows ends all rules; of others the youngest comes first.
func (r *roster) assign(sel plugins.Selection, i int) error {
	if sel.All() {
		r.current, r.rules = i, r.rules[:0]
		return nil
	}
	sel.NewOnly = false
	rules := []rule{{sel, i}}
	for _, o := range r.rules {
		if o.sel != sel {
			rules = append(rules, o)
		}
	}
	if len(rules) > maxRules {
		return fmt.Errorf("%d selections have modules of their own already: a swap of all flows ends them", maxRules)
	}
	r.rules = rules
	return nil
}

// serves is the module that serves the flows that are meant for module i: the fallback while that is late or dead.
func (e *Engine) serves(k plugins.Kind, i int) int {
	if r := e.roster(k); r.members[i].demoted {
		return r.fallback
	}
	return i
}

// Use makes module i serve the new flows that sel is for and, unless it says new ones only, the present ones. It returns how many flows
// are meant for another module now.
func (e *Engine) Use(k plugins.Kind, i int, sel plugins.Selection) (n int, err error) {
	if err := e.check(k, i); err != nil {
		return 0, err
	}
	if err := sel.Check(); err != nil {
		return 0, err
	}
	r := e.roster(k)
	r.remember(i)
	if err := r.assign(sel, i); err != nil || sel.NewOnly {
		return 0, err
	}
	for c := range e.selected(k, i, &sel) {
		r.last.flows = append(r.last.flows, moved{c.flow(), uint8(c.home.index(k))})
		e.give(c, k, i)
		n++
	}
	m := e.member(k, i)
	m.gap = handover{}
	if n > 0 && !m.demoted {
		m.gap.since = e.now
	}
	return n, nil
}

// Count is how many flows Use would move; i is -1 for a module that is not attached.
func (e *Engine) Count(k plugins.Kind, i int, sel plugins.Selection) (n int) {
	if sel.NewOnly || k >= plugins.NumKinds {
		return 0
	}
	for range e.selected(k, i, &sel) {
		n++
	}
	return n
}

// selected yields the flows of sel that are not meant for module i.
func (e *Engine) selected(k plugins.Kind, i int, sel *plugins.Selection) func(func(*Conn) bool) {
	return func(yield func(*Conn) bool) {
		for s := range e.slots {
			c := e.slots[s].conn
			if c == nil || !c.opened() || c.home.index(k) == i && int(c.mod[k]) == e.serves(k, i) || !sel.Match(c.Tuple.LocalAddr(), c.Tuple.RemoteAddr()) {
				continue
			}
			if !yield(c) {
				return
			}
		}
	}
}

// give makes module i the one that c is meant for.
func (e *Engine) give(c *Conn, k plugins.Kind, i int) {
	c.home[k] = uint8(i) + 1
	if to := e.serves(k, i); int(c.mod[k]) != to {
		e.rehome(c, k, to)
	}
}

// flee gives the flows that module i serves to the fallback. They stay meant for it.
func (e *Engine) flee(k plugins.Kind, i int) {
	for s := range e.slots {
		if c := e.slots[s].conn; c != nil && c.opened() && int(c.mod[k]) == i {
			e.rehome(c, k, e.roster(k).fallback)
		}
	}
}

// comeHome gives the flows that are meant for module i back to it.
func (e *Engine) comeHome(k plugins.Kind, i int) (n int) {
	for s := range e.slots {
		if c := e.slots[s].conn; c != nil && c.opened() && c.home.index(k) == i && int(c.mod[k]) != i {
			e.rehome(c, k, i)
			n++
		}
	}
	return n
}

// abandon gives the flows that module i serves, or that are meant for it, to the fallback for good, and ends its rules.
func (e *Engine) abandon(k plugins.Kind, i int) {
	r := e.roster(k)
	e.flee(k, i)
	for s := range e.slots {
		if c := e.slots[s].conn; c != nil && c.opened() && c.home.index(k) == i {
			c.home[k] = uint8(r.fallback) + 1
		}
	}
	rules := r.rules[:0]
	for _, o := range r.rules {
		if o.index != i {
			rules = append(rules, o)
		}
	}
	r.rules = rules
}

// Replace puts module m in the place of module i, and gives it the flows that are meant for that. nil leaves the place empty, and the
// flows to the fallback, until another Replace or Detach. Once it has returned the old module is not touched any more.
func (e *Engine) Replace(k plugins.Kind, i int, m any) (n int, err error) {
	if err := e.check(k, i); err != nil {
		return 0, err
	}
	r, mem := e.roster(k), e.member(k, i)
	if i == r.fallback {
		return 0, fmt.Errorf("%s module %d is the fallback", k, i)
	}
	was := mem.remote != nil
	mem.demoted = true
	e.flee(k, i)
	if err := e.kinds[k].replace(i, m); err != nil {
		return 0, err
	}
	switch is := mem.remote != nil; {
	case is && !was:
		e.remotes++
	case was && !is:
		e.remotes--
	}
	if mem.remote == nil || mem.remote.State() == plugins.Ready {
		mem.demoted = false
		if n = e.comeHome(k, i); n > 0 {
			mem.gap.since = e.now
		}
	}
	return n, nil
}
