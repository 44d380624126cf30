package main

import (
	"github.com/fastpath-tcp/fastpath/test/script/lang"
	"github.com/fastpath-tcp/fastpath/test/script/posix"
	"golang.org/x/sys/unix"
)

// symbols are the constants that calls may name.
var symbols = map[string]int{
	"AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "PF_INET": unix.AF_INET, "PF_INET6": unix.AF_INET6,
	"SOCK_STREAM": unix.SOCK_STREAM, "SOCK_DGRAM": unix.SOCK_DGRAM, "SOCK_NONBLOCK": unix.SOCK_NONBLOCK, "SOCK_CLOEXEC": unix.SOCK_CLOEXEC,
	"IPPROTO_IP": unix.IPPROTO_IP, "IPPROTO_IPV6": unix.IPPROTO_IPV6, "IPPROTO_TCP": unix.IPPROTO_TCP, "IPPROTO_UDP": unix.IPPROTO_UDP,
	"SOL_SOCKET": unix.SOL_SOCKET, "SOL_TCP": unix.IPPROTO_TCP, "SOL_IP": unix.IPPROTO_IP, "SOL_IPV6": unix.IPPROTO_IPV6,
	"SO_REUSEADDR": unix.SO_REUSEADDR, "SO_REUSEPORT": unix.SO_REUSEPORT, "SO_KEEPALIVE": unix.SO_KEEPALIVE, "SO_LINGER": unix.SO_LINGER,
	"SO_SNDBUF": unix.SO_SNDBUF, "SO_RCVBUF": unix.SO_RCVBUF, "SO_ERROR": unix.SO_ERROR, "SO_TYPE": unix.SO_TYPE, "SO_PROTOCOL": unix.SO_PROTOCOL,
	"SO_DOMAIN": unix.SO_DOMAIN, "SO_ACCEPTCONN": unix.SO_ACCEPTCONN, "SO_MAX_PACING_RATE": unix.SO_MAX_PACING_RATE,
	"SO_RCVTIMEO": unix.SO_RCVTIMEO, "SO_SNDTIMEO": unix.SO_SNDTIMEO, "SO_RCVLOWAT": unix.SO_RCVLOWAT, "SO_OOBINLINE": unix.SO_OOBINLINE,
	"SO_TIMESTAMPING": unix.SO_TIMESTAMPING, "SO_BUSY_POLL": unix.SO_BUSY_POLL, "SO_SNDBUFFORCE": unix.SO_SNDBUFFORCE,
	"SO_RCVBUFFORCE": unix.SO_RCVBUFFORCE, "SO_ZEROCOPY": unix.SO_ZEROCOPY,
	"TCP_NODELAY": unix.TCP_NODELAY, "TCP_MAXSEG": unix.TCP_MAXSEG, "TCP_CORK": unix.TCP_CORK, "TCP_KEEPIDLE": unix.TCP_KEEPIDLE,
	"TCP_KEEPINTVL": unix.TCP_KEEPINTVL, "TCP_KEEPCNT": unix.TCP_KEEPCNT, "TCP_SYNCNT": unix.TCP_SYNCNT, "TCP_LINGER2": unix.TCP_LINGER2,
	"TCP_DEFER_ACCEPT": unix.TCP_DEFER_ACCEPT, "TCP_WINDOW_CLAMP": unix.TCP_WINDOW_CLAMP, "TCP_INFO": unix.TCP_INFO, "TCP_QUICKACK": unix.TCP_QUICKACK,
	"TCP_CONGESTION": unix.TCP_CONGESTION, "TCP_USER_TIMEOUT": unix.TCP_USER_TIMEOUT, "TCP_FASTOPEN": unix.TCP_FASTOPEN,
	"TCP_FASTOPEN_CONNECT": unix.TCP_FASTOPEN_CONNECT, "TCP_NOTSENT_LOWAT": unix.TCP_NOTSENT_LOWAT, "TCP_INQ": unix.TCP_INQ,
	"TCP_MD5SIG": unix.TCP_MD5SIG, "TCP_TIMESTAMP": unix.TCP_TIMESTAMP, "TCP_CM_INQ": unix.TCP_CM_INQ, "TCP_REPAIR": unix.TCP_REPAIR,
	"IP_TOS": unix.IP_TOS, "IP_MTU_DISCOVER": unix.IP_MTU_DISCOVER, "IP_TTL": unix.IP_TTL, "IP_RECVERR": unix.IP_RECVERR, "IPV6_TCLASS": unix.IPV6_TCLASS,
	"IP_PMTUDISC_DONT": unix.IP_PMTUDISC_DONT, "IP_PMTUDISC_WANT": unix.IP_PMTUDISC_WANT, "IP_PMTUDISC_DO": unix.IP_PMTUDISC_DO,
	"F_GETFL": unix.F_GETFL, "F_SETFL": unix.F_SETFL, "F_GETFD": unix.F_GETFD, "F_SETFD": unix.F_SETFD, "FD_CLOEXEC": unix.FD_CLOEXEC,
	"O_RDWR": unix.O_RDWR, "O_RDONLY": unix.O_RDONLY, "O_WRONLY": unix.O_WRONLY, "O_NONBLOCK": unix.O_NONBLOCK,
	"SIOCINQ": unix.TIOCINQ, "FIONREAD": unix.TIOCINQ, "SIOCOUTQ": unix.TIOCOUTQ, "TIOCOUTQ": unix.TIOCOUTQ, "FIONBIO": posix.FIONBIO,
	"SHUT_RD": unix.SHUT_RD, "SHUT_WR": unix.SHUT_WR, "SHUT_RDWR": unix.SHUT_RDWR,
	"MSG_DONTWAIT": unix.MSG_DONTWAIT, "MSG_PEEK": unix.MSG_PEEK, "MSG_WAITALL": unix.MSG_WAITALL, "MSG_NOSIGNAL": unix.MSG_NOSIGNAL,
	"MSG_MORE": msgMore, "MSG_FASTOPEN": unix.MSG_FASTOPEN, "MSG_TRUNC": unix.MSG_TRUNC, "MSG_OOB": unix.MSG_OOB, "MSG_ERRQUEUE": unix.MSG_ERRQUEUE,
	"MSG_EOR": unix.MSG_EOR, "MSG_ZEROCOPY": unix.MSG_ZEROCOPY,
	"POLLIN": unix.POLLIN, "POLLOUT": unix.POLLOUT, "POLLERR": unix.POLLERR, "POLLHUP": unix.POLLHUP, "POLLRDHUP": unix.POLLRDHUP,
	"POLLPRI": unix.POLLPRI, "POLLNVAL": unix.POLLNVAL, "POLLRDNORM": unix.EPOLLRDNORM, "POLLWRNORM": unix.EPOLLWRNORM,
	"EPOLLIN": unix.EPOLLIN, "EPOLLOUT": unix.EPOLLOUT, "EPOLLERR": unix.EPOLLERR, "EPOLLHUP": unix.EPOLLHUP, "EPOLLRDHUP": unix.EPOLLRDHUP,
	"EPOLLET": unix.EPOLLET, "EPOLLONESHOT": unix.EPOLLONESHOT, "EPOLL_CTL_ADD": unix.EPOLL_CTL_ADD, "EPOLL_CTL_MOD": unix.EPOLL_CTL_MOD,
	"EPOLL_CTL_DEL": unix.EPOLL_CTL_DEL, "INADDR_ANY": 0,
}

const msgMore = 0x8000

// errnoByName is the number of an error, 0 if there is none of that name.
func errnoByName(name string) unix.Errno {
	for n := unix.Errno(1); n < 134; n++ {
		if unix.ErrnoName(n) == name {
			return n
		}
	}
	if name == "EWOULDBLOCK" {
		return unix.EAGAIN
	}
	return 0
}

// number is the value of an expression that stands for a number.
func number(e *lang.Expr) (int, error) {
	switch e.Kind {
	case lang.Int:
		return int(e.Int), nil
	case lang.Word:
		if v, ok := symbols[e.Text]; ok {
			return v, nil
		}
		return 0, unsupported("the constant %s", e.Text)
	case lang.Or:
		all := 0
		for i := range e.List {
			v, err := number(&e.List[i])
			if err != nil {
				return 0, err
			}
			all |= v
		}
		return all, nil
	case lang.Array:
		if len(e.List) == 1 {
			return number(&e.List[0])
		}
	}
	return 0, unsupported("%v where a number is wanted", e)
}
