package sock

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Options are what a connection begins with. Dialer.Control and ListenConfig.Control may change them; their zero fields mean the stack's
// settings.
type Options struct {
	NoDelay       bool // no Nagle's algorithm; true unless Control clears it, as in package net
	Cork          bool
	AutoCork      bool                // see Conn.SetAutoCork; true unless the stack's settings say otherwise
	KeepAlive     net.KeepAliveConfig // on unless the Dialer or ListenConfig say otherwise, as in package net
	ReadBuffer    int                 // bytes that may wait for the reader
	WriteBuffer   int                 // bytes that may wait for the peer's acknowledgement
	NotSentLowat  int                 // see Conn.SetNotSentLowat
	MaxPacingRate uint64              // payload bytes per second
	UserTimeout   time.Duration       // see Conn.SetUserTimeout; it holds for the handshake too
	AdvTimeout    time.Duration       // see Conn.SetAdvertisedTimeout
	TTL           uint8               // see Conn.SetTTL
	TOS           uint8               // see Conn.SetTOS
	ECN           tcp.ECN
	// FastOpen is Dialer.FastOpen. FastOpenQueue is how many connections to a listener may be open, and their first data read, before their
	// handshake is over (RFC 7413); less than 0: none.
	FastOpen      bool
	FastOpenQueue int
	// Congestion, Pacing and Recovery name modules; empty: the one that serves new connections.
	Congestion, Pacing, Recovery string
}

// newOptions are net's defaults, and the stack's where net has none.
func newOptions(st *stack.Stack, period time.Duration, keep net.KeepAliveConfig) *Options {
	if !keep.Enable && period >= 0 {
		keep = net.KeepAliveConfig{Enable: true, Idle: period}
	}
	return &Options{NoDelay: true, AutoCork: st.AutoCork(), KeepAlive: keep}
}

// setup is what the engine makes of them. Modules must be there.
func (o *Options) setup(st *stack.Stack) (*tcp.Setup, error) {
	s := &tcp.Setup{ECN: o.ECN, FastOpen: o.FastOpen, FastOpenQueue: o.FastOpenQueue}
	t := &tcp.Tuning{
		MaxRate: o.MaxPacingRate, RecvBuffer: o.ReadBuffer, SendBuffer: o.WriteBuffer, NotSentLowat: o.NotSentLowat, UserTimeout: o.UserTimeout,
		AdvTimeout: o.AdvTimeout, TTL: o.TTL, TOS: o.TOS,
	}
	for _, b := range []struct {
		on  bool
		bit uint32
	}{{o.NoDelay, tcp.OptNoDelay}, {o.Cork, tcp.OptCork}, {o.AutoCork, tcp.OptAutoCork}, {o.KeepAlive.Enable, tcp.OptKeepalive}} {
		if b.on {
			s.Options |= b.bit
		} else {
			s.NoOptions |= b.bit
		}
	}
	if o.KeepAlive.Enable {
		keepalive(t, o.KeepAlive)
	}
	if *t != (tcp.Tuning{}) {
		s.Tuning = shared(t)
	}
	for k, name := range [plugins.NumKinds]string{plugins.Cong: o.Congestion, plugins.Pace: o.Pacing, plugins.Rtx: o.Recovery} {
		if name == "" {
			continue
		}
		i, err := st.Module(plugins.Kind(k), name)
		if err != nil {
			return nil, err
		}
		s.Modules[k] = uint8(i) + 1
	}
	return s, nil
}

// lastTuning is what the last connection with settings began with: most of a program's connections begin alike.
var lastTuning atomic.Pointer[tcp.Tuning]

// shared returns t, or what connections that began alike have.
func shared(t *tcp.Tuning) *tcp.Tuning {
	if last := lastTuning.Load(); last != nil && *last == *t {
		return last
	}
	lastTuning.Store(t)
	return t
}

// Net's defaults of keepalive.
const (
	keepPeriod = 15 * time.Second
	keepCount  = 9
)

// keepalive sets t by net's rules: 0 means net's default, and less than 0 no change. Periods are whole seconds.
func keepalive(t *tcp.Tuning, k net.KeepAliveConfig) {
	period := func(p *time.Duration, d time.Duration) {
		switch {
		case d == 0:
			*p = keepPeriod
		case d > 0:
			*p = (d + time.Second - 1).Truncate(time.Second)
		}
	}
	period(&t.KeepIdle, k.Idle)
	period(&t.KeepEvery, k.Interval)
	switch {
	case k.Count == 0:
		t.KeepCount = keepCount
	case k.Count > 0:
		t.KeepCount = k.Count
	}
}

// set runs f, unless the connection is closed.
func (c *Conn) set(f func()) error {
	if c.flags.has(closed) {
		return c.opError("set", net.ErrClosed)
	}
	f()
	return nil
}

// SetLinger says what Close does with data that is not delivered yet: with 0 the connection is reset and the data lost; otherwise Close
// returns at once and the data is still delivered, however long that takes.
func (c *Conn) SetLinger(sec int) error {
	return c.set(func() {
		if sec == 0 {
			c.flags.set(abortive)
		} else {
			c.flags.clear(abortive)
		}
	})
}

// SetNoDelay turns Nagle's algorithm off (true, the default) or on. Turning it off also sends what a cork holds back.
func (c *Conn) SetNoDelay(on bool) error {
	return c.set(func() { c.c.SetOption(tcp.OptNoDelay, on) })
}

// SetCork makes small segments wait, for up to 200 ms, until they are full (TCP_CORK). Taking the cork out sends what waits.
func (c *Conn) SetCork(on bool) error { return c.set(func() { c.c.SetOption(tcp.OptCork, on) }) }

// SetAutoCork says whether a small write may wait, for up to 2 ms, until the port has sent what was written before, so that others join it
// (true, the default). It waits only while the port is busy.
func (c *Conn) SetAutoCork(on bool) error {
	return c.set(func() { c.c.SetOption(tcp.OptAutoCork, on) })
}

// Flush sends what Nagle's algorithm or a cork holds back now.
func (c *Conn) Flush() error { return c.set(c.c.Flush) }

// SetKeepAlive turns keepalive probes on or off. They are on by default, as in package net.
func (c *Conn) SetKeepAlive(on bool) error {
	return c.set(func() { c.c.SetOption(tcp.OptKeepalive, on) })
}

// SetKeepAlivePeriod sets the idle time before the first probe: 0 means 15 s, and less than 0 no change.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return c.set(func() {
		c.c.Tune(func(t *tcp.Tuning) { keepalive(t, net.KeepAliveConfig{Idle: d, Interval: -1, Count: -1}) })
	})
}

// SetKeepAliveConfig sets all of keepalive. Zero fields mean 15 s, 15 s and 9 probes; fields below 0 are left as they are.
func (c *Conn) SetKeepAliveConfig(k net.KeepAliveConfig) error {
	return c.set(func() {
		c.c.SetOption(tcp.OptKeepalive, k.Enable)
		c.c.Tune(func(t *tcp.Tuning) { keepalive(t, k) })
	})
}

// SetReadBuffer limits the bytes received and not read yet, at least 4096. A window that the peer was told of is not taken back.
func (c *Conn) SetReadBuffer(bytes int) error {
	if c.flags.has(closed) {
		return c.setError(net.ErrClosed)
	}
	c.c.Tune(func(t *tcp.Tuning) { t.RecvBuffer = max(bytes, 1) })
	return nil
}

// SetWriteBuffer limits the bytes written and not acknowledged yet, at least 4096; by default the limit follows the congestion window.
func (c *Conn) SetWriteBuffer(bytes int) error {
	if c.flags.has(closed) {
		return c.setError(net.ErrClosed)
	}
	c.c.SetSendBuffer(bytes)
	return nil
}

// SetNotSentLowat holds writers back while bytes or more have been written and not sent yet (TCP_NOTSENT_LOWAT), so that what is sent
// next is decided late; 0 lifts the limit.
func (c *Conn) SetNotSentLowat(bytes int) error {
	return c.set(func() { c.c.Tune(func(t *tcp.Tuning) { t.NotSentLowat = max(bytes, 0) }) })
}

// SetUserTimeout ends the connection with ETIMEDOUT when what was sent is not acknowledged for as long (TCP_USER_TIMEOUT, RFC 5482); 0
// means the stack's setting.
func (c *Conn) SetUserTimeout(d time.Duration) error {
	return c.set(func() { c.c.Tune(func(t *tcp.Tuning) { t.UserTimeout = max(d, 0) }) })
}

// SetAdvertisedTimeout makes the connection tell its peer a user timeout, and take up what the peer tells: the longer of both, within the
// stack's limits, unless SetUserTimeout has said what this end's is (RFC 5482). Less than 0 means that the option is neither sent nor
// read, and 0 the stack's setting, which is that if nothing else was configured.
func (c *Conn) SetAdvertisedTimeout(d time.Duration) error {
	return c.set(func() { c.c.Tune(func(t *tcp.Tuning) { t.AdvTimeout = d }) })
}

// SetTTL sets the TTL, or hop limit, of what the connection sends from now on (IP_TTL, IPV6_UNICAST_HOPS); 0 means 64.
func (c *Conn) SetTTL(ttl uint8) error {
	return c.set(func() { c.c.Tune(func(t *tcp.Tuning) { t.TTL = ttl }) })
}

// SetTOS sets the DiffServ field of what the connection sends from now on (IP_TOS, IPV6_TCLASS), in the upper six bits. The other two
// belong to ECN and do not count.
func (c *Conn) SetTOS(tos uint8) error {
	return c.set(func() { c.c.Tune(func(t *tcp.Tuning) { t.TOS = tos }) })
}

// SetMaxPacingRate limits the connection to rate payload bytes per second (SO_MAX_PACING_RATE); 0 lifts the limit.
func (c *Conn) SetMaxPacingRate(rate uint64) error {
	return c.set(func() { c.c.SetMaxRate(rate) })
}

// SetCongestion gives the connection to the congestion control of that name (TCP_CONGESTION), which is attached to the stack or linked
// in. Data goes on; the module begins with the window and the round-trip times that the connection has.
func (c *Conn) SetCongestion(name string) error { return c.setModule(plugins.Cong, name) }

// SetPacing is SetCongestion for the module that paces.
func (c *Conn) SetPacing(name string) error { return c.setModule(plugins.Pace, name) }

// SetRecovery is SetCongestion for the module that detects losses.
func (c *Conn) SetRecovery(name string) error { return c.setModule(plugins.Rtx, name) }

func (c *Conn) setModule(k plugins.Kind, name string) error {
	if c.flags.has(closed) {
		return c.opError("set", net.ErrClosed)
	}
	i, err := c.st.Module(k, name)
	if err == nil {
		err = c.st.Give(c.c, k, i)
	}
	if err != nil {
		return c.opError("set", sysError("setsockopt", fmt.Errorf("%v %s: %w", k, name, err)))
	}
	return nil
}

// Info returns the figures of the connection, those of `ss -tin`. It waits for the connection's worker: for reports, not for every read.
// It fails after Close.
func (c *Conn) Info() (tcp.Info, error) {
	if c.flags.has(closed) {
		return tcp.Info{}, c.opError("get", net.ErrClosed)
	}
	i, err := c.st.Info(c.c)
	if err != nil {
		return i, c.opError("get", err)
	}
	return i, nil
}
