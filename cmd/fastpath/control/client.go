package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// maxResponse bounds a response line: a reply to OpSS with many connections is the longest.
const maxResponse = 256 << 20

// endTimeout is how long a stream may take to end after it was asked to.
const endTimeout = 5 * time.Second

// Client talks to a daemon. It is for one goroutine at a time.
type Client struct {
	c *net.UnixConn
	r *bufio.Reader
}

// Dial connects to the daemon whose control socket is at path.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("no daemon listens on %s: is `fastpath run` running, with this control socket?", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("no permission for %s: only the daemon's user and root may control it", path)
	case err != nil:
		return nil, err
	}
	return &Client{c.(*net.UnixConn), bufio.NewReaderSize(c, 64<<10)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.c.Close() }

// Call runs operation op with args (nil for none) and decodes its answer into reply. An error of the daemon is an *Error.
func (c *Client) Call(ctx context.Context, op string, args, reply any) error {
	return c.Stream(ctx, op, args, nil, reply)
}

// Stream is Call for a streaming operation; item gets each item's JSON, which is valid only until item returns. When ctx ends,
// the daemon is asked to end the stream, and reply is still filled in.
func (c *Client) Stream(ctx context.Context, op string, args any, item func(json.RawMessage) error, reply any) error {
	r := Request{V: Version, Op: op}
	if args != nil {
		var err error
		if r.Args, err = json.Marshal(args); err != nil {
			return err
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, err := c.c.Write(append(b, '\n')); err != nil && !errors.Is(err, unix.EPIPE) { // EPIPE: the reason may be there to read
		return c.failed(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() {
		if item != nil {
			_ = c.c.CloseWrite()
			_ = c.c.SetReadDeadline(time.Now().Add(endTimeout))
		} else {
			_ = c.c.SetDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	for {
		line, err := c.line()
		if err != nil {
			return c.failed(ctx, err)
		}
		var resp Response
		if err := json.Unmarshal(line, &resp); err != nil {
			return fmt.Errorf("bad answer of the daemon: %w", err)
		}
		switch {
		case resp.Error != nil:
			return resp.Error
		case resp.Item == nil:
			if reply == nil {
				return nil
			}
			return json.Unmarshal(resp.Data, reply)
		case item == nil:
			return errors.New("bad answer of the daemon: an item that was not asked for")
		}
		if err := item(resp.Item); err != nil {
			return err
		}
	}
}

func (c *Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return errors.New("the daemon closed the connection")
	}
	return err
}

// line reads a line of any length up to maxResponse.
func (c *Client) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(long) > maxResponse {
			return nil, fmt.Errorf("an answer is longer than %d bytes", maxResponse)
		}
		line, err = c.r.ReadSlice('\n')
		long = append(long, line...)
	}
	return long, err
}
