package tcp

import (
	"io"

	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// TryTake takes up to n received bytes that lie together out of the stream, in place. Their chunk stays until it is put back to Arena.
// Errors are TryRead's.
func (c *Conn) TryTake(n int) ([]byte, *mem.Chunk, error) {
	f := c.flags.Load() // before the stream: data precedes the flags that end it
	if p, ch := c.rcv.Take(n); p != nil {
		c.afterRead(len(p))
		return p, ch, nil
	}
	return nil, nil, c.readErr(f)
}

// readErr is the error of a read that finds no data.
func (c *Conn) readErr(f uint32) error {
	switch {
	case f&flagClosed != 0:
		return Aborted
	case f&flagEOF != 0:
		return io.EOF
	case f&flagDone != 0:
		if e := c.Err(); e != OK {
			return e
		}
		return io.EOF
	}
	if f&flagDeferred != 0 { // who reads before the first write wants the handshake
		c.kick(kickWrite)
	}
	return ErrWouldBlock
}

// TryReserve returns room for up to n bytes at the end of the send stream, to be filled before Commit; TryWrite and TryReserve must wait
// until then. The room's chunk stays until it is put back to Arena, even if the connection ends before. Errors are TryWrite's.
func (c *Conn) TryReserve(n int) ([]byte, *mem.Chunk, error) {
	if err := c.writeErr(c.flags.Load()); err != nil {
		return nil, nil, err
	}
	limit := c.sndLimit.Load()
	p, ch := c.snd.Reserve(n, limit)
	if p == nil {
		if c.snd.Tail()-c.snd.Head() < limit {
			c.kick(kickMemory)
		}
		return nil, nil, ErrWouldBlock
	}
	return p, ch, nil
}

// Commit appends the first n bytes of what TryReserve returned to the send stream.
func (c *Conn) Commit(n int) {
	c.snd.Commit(n)
	if n > 0 {
		c.kick(kickWrite)
	} else {
		c.kick(kickTrim)
	}
}

// writeErr is the error of a write, whatever it writes.
func (c *Conn) writeErr(f uint32) error {
	switch {
	case f&(flagDone|flagWrShut|flagClosed) != 0:
		if e := c.Err(); e != OK {
			return e
		}
		return Shutdown
	case f&flagUp == 0:
		return ErrWouldBlock
	}
	return nil
}

// Arena is where chunks that were taken or reserved are put back.
func (c *Conn) Arena() *mem.Arena { return c.eng.env.Arena }

// Flush sends what Nagle's algorithm or a cork holds back now; both hold again what is written later.
func (c *Conn) Flush() { c.kick(kickFlush) }

// PeerFinished reports whether the peer has ended its stream and all of it was received.
func (c *Conn) PeerFinished() bool { return c.flags.Load()&flagEOF != 0 }

// SendBuffer is how many bytes may be written ahead of the peer's acknowledgements now.
func (c *Conn) SendBuffer() int { return int(c.sndLimit.Load()) }
