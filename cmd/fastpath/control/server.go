package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of the server.
const (
	maxClients   = 32
	readTimeout  = 30 * time.Second // to send a whole request, from the last answer on
	writeTimeout = 10 * time.Second // to take what is written
	flushEvery   = 20 * time.Millisecond
	flushSize    = 32 << 10
)

// Server answers requests on a control socket.
type Server struct {
	sock    *socket
	handler Handler
	log     *slog.Logger
	allow   func(*unix.Ucred) bool

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.UnixConn]struct{}
}

// Listen takes the control socket at path. A daemon that listens there already gives an error that is ErrRunning.
func Listen(path string, h Handler, log *slog.Logger) (*Server, error) {
	sock, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	s := &Server{sock: sock, handler: h, log: log, allow: sameUser, conns: map[*net.UnixConn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve accepts clients until Close.
func (s *Server) Serve() error {
	for {
		c, err := s.sock.AcceptUnix()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
				s.log.Warn("control socket: accept", "err", err)
				select {
				case <-time.After(100 * time.Millisecond):
					continue
				case <-s.ctx.Done():
					return nil
				}
			}
			return err
		}
		s.mu.Lock()
		full := len(s.conns) >= maxClients
		closed := s.ctx.Err() != nil
		if !full && !closed {
			s.conns[c] = struct{}{}
			s.wg.Add(1)
		}
		s.mu.Unlock()
		switch {
		case closed:
			c.Close()
			return nil
		case full:
			// The answer fits into the socket's buffer, so that this does not block.
			newConn(s, c).reply(nil, &Error{CodeBusy, fmt.Sprintf("%d clients are connected already", maxClients)})
			c.Close()
		default:
			go s.serve(c)
		}
	}
}

// Close ends all requests, disconnects all clients and removes the socket.
func (s *Server) Close() error {
	s.cancel()
	err := s.sock.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *Server) serve(c *net.UnixConn) {
	defer s.wg.Done()
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	k := newConn(s, c)
	cred, err := peer(c)
	if err != nil {
		s.log.Warn("control socket: credentials of the client", "err", err)
		return
	}
	if !s.allow(cred) {
		s.log.Warn("control socket: denied", "uid", cred.Uid, "pid", cred.Pid)
		k.reply(nil, &Error{CodeDenied, fmt.Sprintf("user %d may not control this daemon", cred.Uid)})
		return
	}
	for s.ctx.Err() == nil && k.one() {
	}
}

// conn is one client.
type conn struct {
	s *Server
	c *net.UnixConn
	r *bufio.Reader

	mu sync.Mutex // of w: a stream's flusher writes too
	w  *bufio.Writer
}

func newConn(s *Server, c *net.UnixConn) *conn {
	return &conn{s: s, c: c, r: bufio.NewReaderSize(c, MaxRequest), w: bufio.NewWriterSize(deadlineWriter{c}, flushSize+4096)}
}

// deadlineWriter gives each write its own time.
type deadlineWriter struct{ c net.Conn }

func (d deadlineWriter) Write(b []byte) (int, error) {
	if err := d.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return d.c.Write(b)
}

// one reads and answers one request; it reports whether another may follow.
func (k *conn) one() bool {
	if err := k.c.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return false
	}
	line, err := k.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		k.reply(nil, badRequest("the request is longer than %d bytes", MaxRequest))
		return false
	case err != nil && !(errors.Is(err, io.EOF) && len(line) > 0): // the last line may lack its end
		return false
	}
	op, args, err := ParseRequest(line)
	if err != nil {
		return k.reply(nil, err)
	}
	return k.do(op, args)
}

func (k *conn) do(op string, args any) bool {
	ctx, h := k.s.ctx, k.s.handler
	switch op {
	case OpInfo:
		return k.reply(h.Info(ctx))
	case OpModules:
		return k.reply(h.Modules(ctx))
	case OpStat:
		return k.reply(h.Stat(ctx))
	case OpSS:
		return k.reply(h.SS(ctx, *args.(*SSRequest)))
	case OpSwap:
		return k.reply(h.Swap(ctx, *args.(*SwapRequest)))
	case OpSet:
		return k.reply(h.Set(ctx, *args.(*SetRequest)))
	case OpFilter:
		return k.reply(h.Filter(ctx, *args.(*FilterRequest)))
	case OpEvents:
		return k.stream(func(ctx context.Context) (any, error) {
			return struct{}{}, h.Events(ctx, *args.(*EventsRequest), func(e Event) error { return k.item(e) })
		})
	case OpCapture:
		return k.stream(func(ctx context.Context) (any, error) {
			return h.Capture(ctx, *args.(*CaptureRequest), func(f Frame) error { return k.item(f) })
		})
	}
	panic("control: ParseRequest let " + op + " through")
}

// reply sends the last line of an answer.
func (k *conn) reply(data any, err error) bool {
	var r Response
	if err != nil {
		r.Error = asError(err)
	} else if r.Data, err = json.Marshal(data); err != nil {
		r = Response{Error: asError(err)}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.line(r) == nil && k.w.Flush() == nil
}

// item sends one item of a stream. It may stay in the buffer until the next flush.
func (k *conn) item(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.line(Response{Item: data}); err != nil {
		return err
	}
	if k.w.Buffered() >= flushSize {
		return k.w.Flush()
	}
	return nil
}

// line writes r and a newline to the buffer.
func (k *conn) line(r Response) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := k.w.Write(b); err != nil {
		return err
	}
	return k.w.WriteByte('\n')
}

// stream runs a streaming operation, which ends early when the client closes its sending side. It is the last of its connection.
func (k *conn) stream(run func(context.Context) (any, error)) bool {
	ctx, cancel := context.WithCancel(k.s.ctx)
	var wg sync.WaitGroup
	_ = k.c.SetReadDeadline(time.Time{})
	wg.Go(func() { // watches for the client's end
		_, _ = k.r.ReadByte() // anything but an end is against the protocol, and ends the stream as well
		cancel()
	})
	wg.Go(func() {
		t := time.NewTicker(flushEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				k.mu.Lock()
				err := k.w.Flush()
				k.mu.Unlock()
				if err != nil {
					cancel()
				}
			}
		}
	})
	data, err := run(ctx)
	if err != nil && ctx.Err() != nil && k.s.ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = nil // the client asked for the end
	}
	k.reply(data, err)
	cancel()
	_ = k.c.SetReadDeadline(time.Unix(1, 0)) // ends the watcher
	wg.Wait()
	return false
}
