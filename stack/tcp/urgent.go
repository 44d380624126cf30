package tcp

import "github.com/fastpath-tcp/fastpath/stack/wire"

// Urgent data is delivered in line, however much there is (RFC 6093, 6; RFC 9293, MUST-30 and MUST-31). The application can learn from Info
// how much of it is left.

// announced notes the end of the urgent data that a segment announces: the pointer names the octet behind it (RFC 9293, 3.10.7.4, sixth).
// The end never moves back.
func (c *Conn) announced(t *wire.TCP) {
	if !c.state.canReceive() {
		return
	}
	ahead := int64(int32(t.Seq + uint32(t.Urgent) - c.rcvNxt))
	last := c.rcv.Head()
	if c.x != nil {
		last = max(last, c.x.urgent)
	}
	if end := int64(c.rcvOff) + ahead; end > 0 && uint64(end) > last {
		c.more().urgent = uint64(end)
	}
}

// urgentLeft is the number of bytes up to the end of the urgent data, those that have not come yet included (RFC 9293, MUST-33).
func (c *Conn) urgentLeft() uint64 {
	if c.x == nil {
		return 0
	}
	return c.x.urgent - min(c.rcv.Head(), c.x.urgent)
}
