package tcp

import (
	"errors"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/stream"
)

// ErrWouldBlock says that a call cannot go on now; wait on Rd or Wr and try again.
var ErrWouldBlock = errors.New("tcp: would block")

// Errno is why a connection ended.
type Errno uint32

// Reasons for the end of a connection.
const (
	OK          Errno = iota
	Reset             // the peer sent a reset (ECONNRESET)
	Refused           // the peer refused the connection (ECONNREFUSED)
	TimedOut          // no answer (ETIMEDOUT)
	Aborted           // aborted by this end (ECONNABORTED)
	Unreachable       // host or network unreachable (EHOSTUNREACH)
	PortInUse         // no free port or tuple in use (EADDRINUSE)
	NoMemory          // over the memory budget (ENOBUFS)
	Shutdown          // write after CloseWrite (EPIPE)
	NoRoute           // no route to the peer's network (ENETUNREACH)
	NotLocal          // no address of this host, or no source port is left (EADDRNOTAVAIL)
	NoProtocol        // the peer speaks no TCP (ENOPROTOOPT)
	Prohibited        // forbidden by a router or the peer's host (EACCES)
	BadPacket         // somebody could not read our packets (EPROTO)
)

var errnoNames = [...]string{"ok", "connection reset by peer", "connection refused", "connection timed out", "connection aborted", "no route to host", "address already in use", "no buffer space available", "broken pipe",
	"network is unreachable", "cannot assign requested address", "protocol not available", "permission denied", "protocol error"}

func (e Errno) Error() string { return errnoNames[e] }

// Bits of App.flags: what the worker tells the application, and what the application has said.
const (
	flagUp       uint32 = 1 << iota // established (or failed: look at errno)
	flagEOF                         // the peer's FIN was received and all data before it is in the stream
	flagDone                        // the engine has let go of the connection
	flagWrShut                      // the application will write no more
	flagClosed                      // the application has closed it
	flagDeferred                    // Fast Open: the SYN waits for the first write
)

// Bits of App.pend: what the application asks of the worker.
const (
	kickWrite    uint32 = 1 << iota // bytes were appended
	kickRead                        // bytes were taken out
	kickShut                        // CloseWrite
	kickClose                       // Close
	kickAbort                       // reset
	kickDeadline                    // a deadline moved
	kickOption                      // an option changed
	kickMemory                      // there was no memory to write to
	kickFlush                       // Flush
	kickTrim                        // a reservation was given back unused
)

// App is the application's half of a Conn. Its methods never block. One goroutine at a time may read and one may write; Close
// and Abort come last, when no other call is under way. Package sock adds blocking, locks and deadlines.
type App struct {
	snd stream.Send
	rcv stream.Recv

	Rd, Wr Waiter // woken when reading or writing may go on

	unreported uint32        // the reader's: bytes taken since the worker was last told
	readStep   atomic.Uint32 // how many make it worth telling

	mailNext *Conn
	pend     atomic.Uint32
	flags    atomic.Uint32
	errno    atomic.Uint32
	opts     atomic.Uint32
	sndLimit atomic.Uint64 // bytes that the send stream may hold

	// RdDeadline and WrDeadline are the times at which the worker wakes Rd and Wr at the latest; 0 means none. Set, then call
	// DeadlineChanged.
	RdDeadline, WrDeadline atomic.Int64
	tune                   atomic.Pointer[Tuning] // nil: nothing was set
}

// Option bits of a Conn.
const (
	OptNoDelay uint32 = 1 << iota
	OptCork
	OptKeepalive // off unless it is set (RFC 9293, MUST-24 and MUST-25)
	OptAutoCork  // a small write waits while the port is busy with what was sent before, so that more may join it
)

// Err is why the connection ended; OK while it lives or after an orderly end.
func (c *Conn) Err() Errno { return Errno(c.errno.Load()) }

// Up reports whether the handshake has ended, well or not (see Err).
func (c *Conn) Up() bool { return c.flags.Load()&flagUp != 0 }

// Done reports whether the engine has let go of the connection.
func (c *Conn) Done() bool { return c.flags.Load()&flagDone != 0 }

// TryRead copies received bytes to p. It returns io.EOF after the peer's FIN, an Errno if the connection broke, or ErrWouldBlock.
func (c *Conn) TryRead(p []byte) (int, error) {
	f := c.flags.Load() // before the stream: data precedes the flags that end it
	n := c.rcv.Read(p)
	if n > 0 {
		c.afterRead(n)
		return n, nil
	}
	err := c.readErr(f)
	if len(p) == 0 && err == ErrWouldBlock {
		err = nil
	}
	return 0, err
}

// Peek returns the next received bytes in place, or nil. They stay valid until Discard.
func (c *Conn) Peek() []byte { return c.rcv.Peek() }

// Discard drops the next n received bytes, which Peek returned.
func (c *Conn) Discard(n int) {
	c.rcv.Discard(n)
	c.afterRead(n)
}

// afterRead tells the worker that the window may open, once per eighth of the receive buffer: what is not reported then is too
// little to keep a window closed (RFC 9293, 3.8.6.2.2).
func (c *Conn) afterRead(n int) {
	c.unreported += uint32(n)
	if c.unreported >= c.readStep.Load() {
		c.unreported = 0
		c.kick(kickRead)
	}
}

// Readable is the number of bytes that TryRead can return now.
func (c *Conn) Readable() int { return int(c.rcv.Tail() - c.rcv.Head()) }

// TryWrite appends p to the send stream as far as it fits.
func (c *Conn) TryWrite(p []byte) (int, error) {
	if err := c.writeErr(c.flags.Load()); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	limit := min(c.sndLimit.Load(), c.eng.env.Budget.Share())
	n := c.snd.Append(p, limit)
	if n == 0 {
		if c.snd.Tail()-c.snd.Head() < limit {
			c.kick(kickMemory)
		}
		return 0, ErrWouldBlock
	}
	c.kick(kickWrite)
	return n, nil
}

// Unsent is the number of bytes written and not acknowledged by the peer.
func (c *Conn) Unsent() int { return int(c.snd.Tail() - c.snd.Head()) }

// WriteRoom is the number of bytes that TryWrite takes now, if there is memory for them.
func (c *Conn) WriteRoom() int { return max(int(c.sndLimit.Load())-c.Unsent(), 0) }

// CloseWrite ends this end's stream: a FIN follows the data.
func (c *Conn) CloseWrite() {
	if c.flags.Or(flagWrShut)&flagWrShut == 0 {
		c.kick(kickShut)
	}
}

// Close lets go of the connection. Data written is still delivered, then a FIN; if received data was not read, the peer gets a
// reset instead (RFC 9293, 3.10.4 and RFC 2525, 2.17).
func (c *Conn) Close() {
	c.end(kickClose)
}

// end closes the connection by leaving the worker a message, or, if the engine has let go of it already, frees what is left.
func (c *Conn) end(how uint32) {
	switch old := c.flags.Or(flagClosed | flagWrShut); {
	case old&flagClosed != 0:
	case old&flagDone != 0:
		c.snd.Reset()
		c.rcv.Reset()
	default:
		c.kick(how)
	}
}

// Abort resets the connection and drops all data.
func (c *Conn) Abort() {
	c.end(kickAbort)
}

// DeadlineChanged makes the worker look at RdDeadline and WrDeadline.
func (c *Conn) DeadlineChanged() { c.kick(kickDeadline) }

// appDeadline is the earliest deadline behind the given time. It counts whether or not a goroutine waits now: one that waits later
// does not tell the worker again.
func (c *Conn) appDeadline(behind plugins.Time) plugins.Time {
	at := plugins.Never
	for _, d := range [...]plugins.Time{Deadline(&c.RdDeadline), Deadline(&c.WrDeadline)} {
		if d > behind {
			at = min(at, d)
		}
	}
	return at
}

// Deadline returns the time kept in d, or plugins.Never.
func Deadline(d *atomic.Int64) plugins.Time {
	if v := d.Load(); v != 0 {
		return plugins.Time(v)
	}
	return plugins.Never
}

// SetOption sets or clears option bits. As in Linux, setting OptNoDelay alone sends what a cork holds back now.
func (c *Conn) SetOption(opt uint32, on bool) {
	if on {
		c.opts.Or(opt)
	} else {
		c.opts.And(^opt)
	}
	if on && opt == OptNoDelay {
		c.kick(kickOption | kickFlush)
		return
	}
	c.kick(kickOption)
}

// SetMaxRate limits the connection to rate payload bytes per second; 0 or plugins.Unlimited lifts the limit.
func (c *Conn) SetMaxRate(rate uint64) {
	if rate == plugins.Unlimited {
		rate = 0
	}
	c.Tune(func(t *Tuning) { t.MaxRate = rate })
}

// SetSendBuffer limits the bytes that the send stream holds, instead of the engine's own sizing.
func (c *Conn) SetSendBuffer(n int) {
	n = max(n, minSetBuffer)
	c.sndLimit.Store(uint64(n))
	c.Tune(func(t *Tuning) { t.SendBuffer = n })
}

// kick leaves the worker a message. It costs a lock-free push at most once per turn.
func (c *Conn) kick(bits uint32) {
	if c.pend.Or(bits) == 0 {
		c.eng.mail.push(c)
	}
}
