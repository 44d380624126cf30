package udp

import (
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// errnoOf is the error of a datagram about which an ICMP error came, 0 if it is one of those that may pass: as Linux has it, only hard
// errors are told (icmp_err_convert; RFC 1122, 4.1.3.3 and 4.2.3.9).
func errnoOf(v4 bool, typ, code uint8) syscall.Errno {
	if !v4 {
		return errnoOf6(typ, code)
	}
	switch typ {
	case wire.ICMPUnreachable:
		if int(code) < len(unreachable4) {
			return unreachable4[code]
		}
	case wire.ICMPParamProblem:
		return syscall.EPROTO
	}
	return 0
}

// pathTime is how long a path MTU holds before the larger one is tried again (RFC 8201, 4: at least five minutes, ten recommended).
const pathTime = 10 * time.Minute

// minMTU4 is the least that every router of IPv4 forwards whole (RFC 791, 3.2).
const minMTU4 = 68

// TooBig takes what a router says about a datagram that was longer than its next link's MTU. Over IPv6 the endpoint's datagrams are cut to that
// from now on, whoever they are for, which costs little; what is below 1280 bytes is not believed (RFC 8201, 4). Over IPv4 routers cut
// themselves, but for what was to stay whole: then the application is told (RFC 8899, 4.6).
func (e *Engine) TooBig(local, remote wire.Addr, localPort, remotePort uint16, mtu uint32) {
	least := uint32(wire.MinMTU6)
	if remote.Is4() {
		least = minMTU4
	}
	mtu = max(mtu, least)
	for _, ep := range e.ports[localPort] {
		if !ep.local.IsZero() && ep.local != local || ep.remotePort != 0 && (ep.remotePort != remotePort || ep.remote != remote) || remote.Is4() && !ep.whole.Load() {
			continue
		}
		if e.now >= plugins.Time(ep.pathUntil.Load()) || mtu < ep.pathMTU.Load() {
			ep.pathMTU.Store(mtu)
			ep.pathUntil.Store(int64(e.now.Add(pathTime)))
		}
	}
}

// unreachable4 is by code of ICMPUnreachable; 0 is soft.
var unreachable4 = [16]syscall.Errno{
	2:  syscall.ENOPROTOOPT,
	3:  syscall.ECONNREFUSED,
	6:  syscall.ENETUNREACH,  // network unknown
	7:  syscall.EHOSTDOWN,    // host unknown
	8:  syscall.ENONET,       // source host isolated
	9:  syscall.ENETUNREACH,  // network prohibited
	10: syscall.EHOSTUNREACH, // host prohibited
	13: syscall.EHOSTUNREACH, // filtered
	14: syscall.EHOSTUNREACH, // precedence violation
	15: syscall.EHOSTUNREACH, // precedence cutoff
}

// Types of ICMPv6 errors (RFC 4443).
const (
	icmp6Unreachable  = 1
	icmp6ParamProblem = 4
)

func errnoOf6(typ, code uint8) syscall.Errno {
	switch typ {
	case icmp6Unreachable:
		switch code {
		case 1, 5, 6: // prohibited, source address failed a policy, route rejected
			return syscall.EACCES
		case 4:
			return syscall.ECONNREFUSED
		}
	case icmp6ParamProblem:
		return syscall.EPROTO
	}
	return 0
}
