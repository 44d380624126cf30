package sock

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// copyPiece is how much ReadFrom reads at once: a large chunk.
const copyPiece = 64 << 10

var pieces = sync.Pool{New: func() any { return new([copyPiece]byte) }}

// ReadFrom sends what r has until it ends; io.Copy uses it. Another Conn's data is not copied on its way, and files and memory are read
// into the stream's memory; for other readers there is a buffer that is used again.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	if src, limit := ours(r); src != nil {
		n, err = src.writeTo(c, limit)
		if l, ok := r.(*io.LimitedReader); ok {
			l.N -= n
		}
	} else if direct(r) {
		n, err = c.readInto(r)
	} else {
		buf := pieces.Get().(*[copyPiece]byte)
		n, err = copyPieces(c, r, buf[:])
		pieces.Put(buf)
	}
	if err != nil {
		err = c.opError("readfrom", err)
	}
	return n, err
}

// ours returns the Conn that r reads from, and how much of it at most, or nil.
func ours(r io.Reader) (*Conn, int64) {
	switch r := r.(type) {
	case *Conn:
		return r, 1<<63 - 1
	case *io.LimitedReader:
		if c, ok := r.R.(*Conn); ok {
			return c, r.N
		}
	}
	return nil, 0
}

// direct reports whether r can be read while the connection is kept from other writers: it neither blocks nor uses the connection.
func direct(r io.Reader) bool {
	switch r := r.(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return true
	case *io.LimitedReader:
		return direct(r.R)
	case *os.File:
		s, err := r.Stat()
		return err == nil && s.Mode().IsRegular()
	}
	return false
}

// readInto reads into the send stream.
func (c *Conn) readInto(r io.Reader) (n int64, err error) {
	for {
		p, err := c.Reserve(copyPiece)
		if err != nil {
			return n, err
		}
		k, err := r.Read(p)
		n += int64(max(k, 0))
		if e := c.Commit(k); e != nil {
			return n - int64(k), e
		}
		switch err {
		case nil:
		case io.EOF:
			return n, nil
		default:
			return n, err
		}
	}
}

func copyPieces(w io.Writer, r io.Reader, buf []byte) (n int64, err error) {
	for {
		k, err := r.Read(buf)
		if k > 0 {
			done, e := w.Write(buf[:k])
			n += int64(done)
			if e != nil {
				return n, e
			}
		}
		switch err {
		case nil:
		case io.EOF:
			return n, nil
		default:
			return n, err
		}
	}
}

// WriteTo writes what is received to w, without copying it first, until the peer ends; io.Copy uses it.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	if n, err = c.writeTo(w, 1<<63-1); err != nil {
		err = c.opError("writeto", err)
	}
	return n, err
}

func (c *Conn) writeTo(w io.Writer, limit int64) (n int64, err error) {
	for limit > 0 {
		b, err := c.take(limit)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		k, err := w.Write(b.Data)
		whole := k == len(b.Data)
		b.Release()
		n += int64(max(k, 0))
		limit -= int64(max(k, 0))
		if err == nil && !whole {
			err = io.ErrShortWrite
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
