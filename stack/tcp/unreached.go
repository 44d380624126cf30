package tcp

import "github.com/fastpath-tcp/fastpath/stack/wire"

// HostUnreachable tells connections that wait for a link address that it was asked for in vain: failed says for which destinations.
// Opening ones end, as the sender of a packet is to be told (RFC 4861, 7.2.2; RFC 1122, 2.3.2.2); others go on trying, and report it if
// they time out.
func (e *Engine) HostUnreachable(failed func(dst wire.Addr) bool) {
	for _, c := range e.waiting {
		if c.state == Closed || !failed(c.Tuple.Remote) {
			continue
		}
		c.softErr = Unreachable
		if c.state == SynSent {
			e.Stats.AttemptFails++
			e.destroy(c, Unreachable)
		}
	}
}
