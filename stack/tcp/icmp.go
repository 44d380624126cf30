package tcp

import (
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// icmpError is what an ICMP error means: the reason that the application gets, and whether it ends an attempt to connect at once. Hard
// are those that say that there is nothing to connect to, or that it is forbidden (RFC 1122, 4.2.3.9; errors as Linux maps them).
type icmpError struct {
	why  Errno
	hard bool
}

// Errors by code of wire.ICMPUnreachable, and of wire.ICMP6Unreachable.
var (
	unreachable4 = [...]icmpError{
		0: {NoRoute, false}, 1: {Unreachable, false}, 2: {NoProtocol, true}, 3: {Refused, true}, 5: {NoRoute, false},
		6: {NoRoute, true}, 7: {Unreachable, true}, 8: {NoRoute, true}, 9: {NoRoute, true}, 10: {Unreachable, true},
		11: {NoRoute, false}, 12: {Unreachable, false}, 13: {Unreachable, true}, 14: {Unreachable, true}, 15: {Unreachable, true},
	}
	unreachable6 = [...]icmpError{
		0: {NoRoute, false}, 1: {Prohibited, true}, 2: {Unreachable, false}, 3: {Unreachable, false}, 4: {Refused, true},
		5: {Prohibited, true}, 6: {Prohibited, true},
	}
)

// meaning of an error about a packet to an address of the given family.
func meaning(is4 bool, typ, code uint8) icmpError {
	codes := unreachable6[:]
	if is4 {
		codes = unreachable4[:]
	}
	switch {
	case is4 && typ == wire.ICMPUnreachable, !is4 && typ == wire.ICMP6Unreachable:
		if int(code) < len(codes) {
			return codes[code]
		}
		return icmpError{Unreachable, false}
	case is4 && typ == wire.ICMPTimeExceeded, !is4 && typ == wire.ICMP6TimeExceeded:
		return icmpError{Unreachable, false} // RFC 1122, 4.2.3.9
	case is4 && typ == wire.ICMPParamProblem, !is4 && typ == wire.ICMP6ParamProblem:
		return icmpError{BadPacket, false}
	}
	return icmpError{} // source quench and others change nothing (RFC 6633; RFC 9293, MUST-55)
}

// ICMPError takes an ICMP error about a packet that we sent, which q quotes, to the connection that it is about (RFC 9293, MUST-54). It counts only if it quotes something that is in flight
// (RFC 5927, 4.1). Only attempts to connect are ended by it, and only by hard ones; an established connection takes all for soft (RFC
// 5927, 5.2; RFC 9293, MUST-56 of some of them): what the last one said is reported if it times out (RFC 1122, 4.2.3.9).
func (e *Engine) ICMPError(q *wire.Quote, typ, code uint8) {
	k := Tuple{Local: q.Src, Remote: q.Dst, LocalPort: q.SrcPort, RemotePort: q.DstPort}
	s := e.find(&k)
	if s == nil {
		return
	}
	is4 := k.Remote.Is4()
	tooBig := is4 && typ == wire.ICMPUnreachable && code == wire.ICMPFragNeeded || !is4 && typ == wire.ICMP6PacketTooBig
	err := meaning(is4, typ, code)
	if h := s.half; h != nil && q.Seq == h.iss && err.hard {
		e.Stats.AttemptFails++
		e.dropHalf(e.slotOf(&k))
	}
	c := s.conn
	if c == nil || !seq.AfterEq(q.Seq, c.sndUna) || !seq.Before(q.Seq, c.sndNxt) {
		return
	}
	switch {
	case tooBig:
		e.tooBig(c, q)
	case err.why == OK:
	case err.hard && !c.state.synchronized():
		e.Stats.AttemptFails++
		e.destroy(c, err.why)
	default:
		c.softErr = err.why
	}
}

// timedOut is why a connection ends that gets no answers any more.
func (c *Conn) timedOut() Errno {
	if c.softErr != OK {
		return c.softErr
	}
	return TimedOut
}
