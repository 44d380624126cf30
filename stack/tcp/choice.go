package tcp

import "github.com/fastpath-tcp/fastpath/plugins"

// Choice names the modules that one connection is to have, by index plus one; 0 is the module that serves new flows.
type Choice [plugins.NumKinds]uint8

// Choose makes c open with the modules of ch, if they are attached then. It comes before c is established.
func (e *Engine) Choose(c *Conn, ch Choice) { c.choice = ch }

// Flow is the handle by which modules know the connection.
func (c *Conn) Flow() plugins.Flow { return c.flow() }

// firstModules gives a connection the modules that it opens with.
func (e *Engine) firstModules(c *Conn) {
	c.mod = [plugins.NumKinds]uint8{plugins.Rtx: e.rtx.forNew(), plugins.Pace: e.pace.forNew(), plugins.Cong: e.cong.forNew()}
	for k, want := range c.choice {
		if i := int(want) - 1; want != 0 && e.check(plugins.Kind(k), i) == nil {
			c.mod[k] = uint8(i)
		}
	}
}
