package tcp

import (
	"github.com/fastpath-tcp/fastpath/stack/seq"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ICMPError takes an ICMP or ICMPv6 error about a segment that we sent. It counts only if it quotes something that is in flight (RFC 5927, 4.1).
// An established connection is never ended by it: the error is reported if the connection times out (RFC 1122, 4.2.3.9).
func (e *Engine) ICMPError(k *Tuple, sq uint32, typ, code uint8) {
	s := e.find(k)
	if s == nil || s.conn == nil {
		return
	}
	c := s.conn
	if !seq.AfterEq(sq, c.sndUna) || !seq.Before(sq, c.sndNxt) {
		return
	}
	why := Unreachable
	hard := isHard(k, typ, code)
	if hard {
		why = Refused
	}
	c.softErr = why
	if hard && c.state == SynSent {
		e.Stats.AttemptFails++
		e.destroy(c, why)
	}
}

// isHard reports whether an error says that nobody listens: no such protocol or port (RFC 1122, 4.2.3.9; RFC 4443, 3.1 and 3.4).
func isHard(k *Tuple, typ, code uint8) bool {
	if k.Remote.Is4() {
		return typ == wire.ICMPUnreachable && (code == wire.ICMPPortUnreachable || code == wire.ICMPProtoUnreachable)
	}
	return typ == wire.ICMP6Unreachable && code == wire.ICMP6PortUnreachable || typ == wire.ICMP6ParamProblem && code == wire.ICMP6UnknownNext
}
