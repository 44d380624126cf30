package tcp

import (
	"time"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// The user timeout option (RFC 5482), of connections that are to advertise a timeout: the others neither send nor read it (ENABLED).

// userTimeout is what such a connection keeps.
type userTimeout struct {
	adv    time.Duration // what it advertises (ADV_UTO)
	remote time.Duration // what the peer has advertised last (REMOTE_UTO); 0: nothing
	due    bool          // the next segment with room for the option has it
}

// userTimeout is nil for connections without the option.
func (c *Conn) userTimeout() *userTimeout {
	if c.x == nil {
		return nil
	}
	return c.x.timeout
}

// advertised is the timeout that connections with these settings advertise; 0: they do not use the option.
func (e *Engine) advertised(set *Tuning) time.Duration {
	if set.AdvTimeout != 0 {
		return max(set.AdvTimeout, 0)
	}
	return e.cfg.AdvTimeout
}

// tuneUserTimeout takes up what c is to advertise. A new value goes with the next segment; the first one with the SYN and with the first
// segment that is none (RFC 5482, 3).
func (e *Engine) tuneUserTimeout(c *Conn) {
	adv := e.advertised(c.Tuned())
	switch u := c.userTimeout(); {
	case adv == 0 && u == nil:
	case adv == 0:
		c.x.timeout = nil
	case u == nil:
		c.more().timeout = &userTimeout{adv: adv, due: true}
	case u.adv != adv:
		u.adv, u.due = adv, true
	}
}

// offerUserTimeout adds the option to those of a SYN or SYN-ACK, unless Fast Open's is there: its cookie may take all the room, and what
// follows the handshake tells the timeout again.
func offerUserTimeout(o *wire.Options, adv time.Duration) {
	if adv > 0 && o.Set&wire.OptFastOpen == 0 {
		o.Set |= wire.OptUserTimeout
		o.UserTimeout = wire.UserTimeout(adv)
	}
}

// output adds the option to a segment with n bytes of payload, if it has room there.
func (u *userTimeout) output(c *Conn, n uint32, opts []byte) []byte {
	if c.optionRoom(n, len(opts)) >= wire.UserTimeoutLen {
		u.due = false
		return wire.PutUserTimeout(opts, wire.UserTimeout(u.adv))
	}
	return opts
}

// peerUserTimeout takes up what the peer advertises.
func (e *Engine) peerUserTimeout(c *Conn, o uint16) {
	if u, d := c.userTimeout(), wire.UserTimeoutOf(o); u != nil && d != 0 {
		u.remote = d
		e.Stats.UserTimeouts++
	}
}

// adoptedTimeout is the user timeout that both ends' advertisements give (RFC 5482, 3.1): the longer one, within limits, the lower of
// which lies above the retransmission timeout. It is 0 if there is none, or if the application has set its own, which the peer cannot
// change (CHANGEABLE).
func (e *Engine) adoptedTimeout(c *Conn) time.Duration {
	u := c.userTimeout()
	if u == nil || u.remote == 0 || c.Tuned().UserTimeout != 0 {
		return 0
	}
	return min(max(u.adv, u.remote, e.cfg.MinUserTimeout, c.rto()+time.Second), e.cfg.MaxUserTimeout)
}
