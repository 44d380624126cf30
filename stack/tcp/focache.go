package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// cookieCache keeps what clients know of servers that do Fast Open (RFC 7413, 4.1.3.2). A server that has the same place as another
// takes it over.
type cookieCache struct{ at []server }

// server is a peer that has given a cookie.
type server struct {
	addr   wire.Addr
	cookie [wire.MaxCookie]byte
	n      uint8 // length of the cookie
	fails  uint8 // SYNs with data in a row that were not answered before they were sent again, without
	mss    uint16
	lostAt plugins.Time
}

const (
	numServers = 256
	// blockAfter is how many SYNs with data must get lost in a row before the path counts as a black hole for them, for blockFor, and
	// twice as long for each further one (as Linux does).
	blockAfter = 2
	blockFor   = time.Minute
)

func (s *cookieCache) place(a wire.Addr) *server {
	return &s.at[(uint(a[15])^uint(a[14])*7^uint(a[13])*31^uint(a[7])*127)%numServers]
}

// find returns what is known of a, or nil.
func (s *cookieCache) find(a wire.Addr) *server {
	if s.at == nil {
		return nil
	}
	if p := s.place(a); p.addr == a {
		return p
	}
	return nil
}

// store returns the place for a.
func (s *cookieCache) store(a wire.Addr) *server {
	if s.at == nil {
		s.at = make([]server, numServers)
	}
	p := s.place(a)
	if p.addr != a {
		*p = server{addr: a}
	}
	return p
}

// blocked reports whether SYNs with data should not be sent now.
func (p *server) blocked(now plugins.Time) bool {
	return p.fails >= blockAfter && now < p.lostAt.Add(blockFor<<min(p.fails-blockAfter, 10))
}

// answered notes whether a SYN with data was answered at once.
func (p *server) answered(ok bool, now plugins.Time) {
	if ok {
		p.fails = 0
		return
	}
	p.fails, p.lostAt = min(p.fails, 254)+1, now
}
