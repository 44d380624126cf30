package tcp

import "github.com/fastpath-tcp/fastpath/plugins"

// Choice names the modules that one connection is to have, by index plus one; 0 is the module that serves new flows.
type Choice [plugins.NumKinds]uint8

// Flow is the handle by which modules know the connection.
func (c *Conn) Flow() plugins.Flow { return c.flow() }

// Of reports whether c lives in e.
func (c *Conn) Of(e *Engine) bool { return c.eng == e }

// firstModules gives a connection the modules that it opens with.
func (e *Engine) firstModules(c *Conn) {
	c.mod = [plugins.NumKinds]uint8{plugins.Rtx: e.rtx.forNew(), plugins.Pace: e.pace.forNew(), plugins.Cong: e.cong.forNew()}
	for k, want := range c.choice {
		if i := int(want) - 1; want != 0 && e.check(plugins.Kind(k), i) == nil {
			c.mod[k] = uint8(i)
		}
	}
}

// Find returns the index of the module of kind k with the given name, or -1.
func (e *Engine) Find(k plugins.Kind, name string) int {
	for i, m := range e.kinds[k].base().members {
		if m != nil && m.name == name {
			return i
		}
	}
	return -1
}

// Give makes module i of kind k the owner of c, which is the engine's. One that is late or dead serves nobody: c then goes to the fallback.
func (e *Engine) Give(c *Conn, k plugins.Kind, i int) error {
	if err := e.check(k, i); err != nil {
		return err
	}
	r := e.kinds[k].base()
	if r.members[i].demoted {
		i = r.fallback
	}
	switch {
	case c.state == Closed || c.state.synchronized() && !c.isOpen:
		return Aborted
	case !c.isOpen:
		c.choice[k] = uint8(i) + 1
	case int(c.mod[k]) != i:
		e.rehome(c, k, i)
	}
	return nil
}
