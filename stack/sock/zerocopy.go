package sock

import (
	"io"
	"net"

	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// Buffer is a piece of received data, in the stream's own memory.
type Buffer struct {
	Data  []byte // to be read only; valid until Release
	chunk *mem.Chunk
	arena *mem.Arena
}

// Release gives the memory back. It may be called from any goroutine, and after the connection was closed.
func (b *Buffer) Release() {
	if b.chunk != nil {
		b.arena.Put(b.chunk)
		*b = Buffer{}
	}
}

// ReadBuffers waits for data and takes up to len(dst) pieces of it out of the stream without copying; it returns how many there were. Each
// must be released: until then its memory, at most 64 KiB for however little data, counts against the stack's budget, though not against
// the connection's receive window. Errors are those of Read.
func (c *Conn) ReadBuffers(dst []Buffer) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if len(dst) == 0 {
		return 0, c.open("read")
	}
	b, err := c.takeLocked(all)
	n := 0
	for ; err == nil; b, err = c.tryTake(all) {
		dst[n] = b
		if n++; n == len(dst) {
			return n, nil
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// all is more than a piece can have.
const all = 1 << 30

// take waits for data and takes a piece of at most limit bytes.
func (c *Conn) take(limit int64) (Buffer, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	return c.takeLocked(int(min(limit, all)))
}

func (c *Conn) takeLocked(limit int) (Buffer, error) {
	for armed := false; ; {
		b, err := c.tryTake(limit)
		if err != tcp.ErrWouldBlock {
			looked(armed, &c.c.Rd)
			return b, c.readError(err)
		}
		armed = await(c.c, armed, &c.c.Rd, &c.c.RdDeadline, &c.postedRd)
	}
}

func (c *Conn) tryTake(limit int) (b Buffer, err error) {
	if err = c.usable(&c.c.RdDeadline); err != nil {
		return b, err
	}
	shut := c.flags.has(rdShut) // before the stream: what came until then is read
	if b.Data, b.chunk, err = c.c.TryTake(limit); err == tcp.ErrWouldBlock && shut {
		err = io.EOF
	}
	b.arena = c.c.Arena()
	return b, err
}

// States of a reservation.
const (
	noRoom     uint32 = iota
	holdsRoom         // Reserve has returned, and wmu is locked
	closedOver        // the connection was closed meanwhile, and wmu unlocked
)

// room is what is reserved.
type room struct {
	chunk *mem.Chunk
	len   int
}

func (c *Conn) hold(chunk *mem.Chunk, n int) {
	if c.room == nil {
		c.room = new(room)
	}
	*c.room = room{chunk, n}
}

// Reserve waits until the send stream has room and returns a piece of its memory of 1 to n bytes, to be filled with what is to be sent.
// Commit must follow, whatever happens; other writers wait until then. Errors are those of Write.
//
// It saves the copy that Write makes, for data that is made or read into memory anyhow.
func (c *Conn) Reserve(n int) ([]byte, error) {
	c.wmu.Lock()
	for armed := false; ; {
		err := c.usable(&c.c.WrDeadline)
		var p []byte
		var chunk *mem.Chunk
		if err == nil {
			p, chunk, err = c.c.TryReserve(max(n, 1))
		}
		if err == tcp.ErrWouldBlock {
			armed = await(c.c, armed, &c.c.Wr, &c.c.WrDeadline, &c.postedWr)
			continue
		}
		looked(armed, &c.c.Wr)
		if err == nil {
			c.hold(chunk, len(p))
			c.reserved.Store(holdsRoom)
			// Close either saw this, or is seen here.
			if !c.flags.has(closed) || !c.reserved.CompareAndSwap(holdsRoom, noRoom) {
				return p, nil
			}
			c.c.Arena().Put(chunk)
			c.c.Commit(0)
			err = net.ErrClosed
		}
		c.wmu.Unlock()
		return nil, c.writeError(err)
	}
}

// Commit sends the first n bytes of what Reserve returned, which must not be touched any more; 0 gives all of it back. It fails with
// net.ErrClosed if the connection was closed since Reserve. Without a reservation, or beyond its length, it panics.
func (c *Conn) Commit(n int) error {
	if c.room == nil {
		panic("sock: Commit without Reserve")
	}
	if uint(n) > uint(c.room.len) {
		panic("sock: Commit of more than was reserved")
	}
	chunk := c.room.chunk
	*c.room = room{}
	if c.reserved.CompareAndSwap(holdsRoom, noRoom) {
		c.c.Commit(n)
		c.c.Arena().Put(chunk)
		c.wmu.Unlock()
		return nil
	}
	if !c.reserved.CompareAndSwap(closedOver, noRoom) {
		panic("sock: Commit without Reserve")
	}
	c.c.Arena().Put(chunk)
	return c.opError("write", net.ErrClosed)
}
