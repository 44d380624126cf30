package udp

import (
	"syscall"

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
