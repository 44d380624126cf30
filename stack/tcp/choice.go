package tcp

import "github.com/fastpath-tcp/fastpath/plugins"

// Choice names the modules that one connection is to have, by index plus one; 0, before it is open, is the one that new flows get.
type Choice [plugins.NumKinds]uint8

// index is the module of kind k, or -1.
func (c *Choice) index(k plugins.Kind) int { return int(c[k]) - 1 }

// Flow is the handle by which modules know the connection.
func (c *Conn) Flow() plugins.Flow { return c.flow() }

// Of reports whether c lives in e.
func (c *Conn) Of(e *Engine) bool { return c.eng == e }

// firstModules gives a connection the modules that it opens with.
func (e *Engine) firstModules(c *Conn) {
	for k := range plugins.NumKinds {
		i := c.home.index(k)
		if i < 0 || e.check(k, i) != nil {
			i = e.roster(k).forNew(&c.Tuple)
		}
		c.home[k], c.mod[k] = uint8(i)+1, uint8(e.serves(k, i))
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
	switch {
	case c.state == Closed || c.state.synchronized() && !c.isOpen:
		return Aborted
	case !c.isOpen:
		c.home[k] = uint8(i) + 1
	default:
		e.give(c, k, i)
	}
	return nil
}
