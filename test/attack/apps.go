package attack

import (
	"encoding/binary"
	"io"
	"net/netip"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// Serve starts the victim's server: who sends 4 bytes gets as many bytes of content as they say, big-endian, and then the end of the
// stream. It never stops a slow client, as careless servers do not.
func (n *Net) Serve(backlog int) *Server {
	l, err := n.Victim.Listen(netip.AddrPortFrom(VictimAddr, Port), backlog)
	if err != nil {
		n.T.Fatal(err)
	}
	s := &Server{l: l, now: n.Clock.Now}
	n.Each(s.step)
	n.T.Cleanup(func() {
		for _, c := range s.conns {
			c.c.Close()
		}
	})
	return s
}

// Server is the victim's application.
type Server struct {
	l     *tcp.Listener
	now   func() plugins.Time
	conns []*served
	// Keep, if set, makes it leave a connection alone that has been accepted: it neither reads nor writes.
	Keep func(*tcp.Conn) bool
	Held []*tcp.Conn // what Keep kept
	buf  [16 << 10]byte
}

type served struct {
	c          *tcp.Conn
	got        int
	want       int
	sent       int
	request    [4]byte
	shut, gone bool
	pause      time.Duration // while nothing can be written
	next       plugins.Time
}

func (s *Server) step() {
	for {
		c, err := s.l.TryAccept()
		if err != nil {
			break
		}
		if s.Keep != nil && s.Keep(c) {
			s.Held = append(s.Held, c)
			continue
		}
		s.conns = append(s.conns, &served{c: c})
	}
	keep := s.conns[:0]
	for _, c := range s.conns {
		if s.now() >= c.next {
			s.tryServe(c)
		}
		if c.gone {
			c.c.Close()
		} else {
			keep = append(keep, c)
		}
	}
	clear(s.conns[len(keep):])
	s.conns = keep
}

// tryServe serves a client, and leaves one that takes nothing alone for a while.
func (s *Server) tryServe(c *served) {
	before := c.sent
	if s.serve(c); c.sent > before && c.pause > 0 {
		c.pause = 0
		s.serve(c)
	}
	if c.sent > before || c.sent == c.want {
		c.pause = 0
	} else if c.pause = min(max(2*c.pause, time.Millisecond), 64*time.Millisecond); c.pause > 2*time.Millisecond {
		c.next = s.now().Add(c.pause)
	}
}

// Conns is how many connections the server has.
func (s *Server) Conns() int { return len(s.conns) }

func (s *Server) serve(c *served) {
	for c.got < 4 {
		k, err := c.c.TryRead(c.request[c.got:])
		if c.got += k; err != nil {
			c.gone = err != tcp.ErrWouldBlock
			return
		}
		c.want = int(binary.BigEndian.Uint32(c.request[:]))
	}
	for c.sent < c.want {
		b := s.buf[:min(len(s.buf), c.want-c.sent)]
		if c.pause > 0 { // try with little
			b = b[:min(len(b), 64)]
		}
		tcptest.Fill(b, uint64(c.sent))
		k, err := c.c.TryWrite(b)
		if c.sent += k; err != nil {
			c.gone = err != tcp.ErrWouldBlock
			return
		}
	}
	if !c.shut {
		c.shut = true
		c.c.CloseWrite()
	}
	if _, err := c.c.TryRead(c.request[:]); err != tcp.ErrWouldBlock {
		c.gone = true
	}
}

// Honest is a client that asks the victim's server, again and again, each time on a new connection.
type Honest struct {
	n       *Net
	size    int
	c       *tcp.Conn
	asked   bool
	got     int
	began   plugins.Time
	pauseTo plugins.Time
	Stop    bool // no further request
	// Done counts the answers that were complete, Failed the connections that ended otherwise; Slowest is the longest answer.
	Done, Failed int
	Slowest      time.Duration
	buf          [16 << 10]byte
}

// between is the honest client's pause.
const between = 20 * time.Millisecond

// Ask starts an honest client that wants size bytes each time.
func (n *Net) Ask(size int) *Honest {
	h := &Honest{n: n, size: size}
	n.Each(h.step)
	n.T.Cleanup(func() {
		if h.c != nil {
			h.c.Close()
		}
	})
	return h
}

func (h *Honest) step() {
	now := h.n.Clock.now
	if h.c == nil {
		if now < h.pauseTo || h.Stop {
			return
		}
		c, err := h.n.Client.Connect(netip.AddrPort{}, netip.AddrPortFrom(VictimAddr, Port))
		if err != nil {
			h.n.T.Fatalf("connect: %v", err)
		}
		h.c, h.asked, h.got, h.began = c, false, 0, now
	}
	if !h.asked {
		if h.c.Done() {
			h.end(false)
			return
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(h.size))
		if k, err := h.c.TryWrite(b[:]); err == tcp.ErrWouldBlock {
			return
		} else if k != 4 {
			h.end(false)
			return
		}
		h.asked = true
	}
	for {
		k, err := h.c.TryRead(h.buf[:])
		for i, b := range h.buf[:k] {
			if b != tcptest.Byte(uint64(h.got+i)) {
				h.n.T.Fatalf("byte %d of the honest client's answer is wrong", h.got+i)
			}
		}
		h.got += k
		switch {
		case err == tcp.ErrWouldBlock:
			return
		case err != nil:
			h.end(err == io.EOF && h.got == h.size)
			return
		}
	}
}

func (h *Honest) end(ok bool) {
	now := h.n.Clock.now
	if ok {
		h.Done++
		h.Slowest = max(h.Slowest, now.Sub(h.began))
	} else {
		h.Failed++
		h.n.T.Logf("the honest client's connection ended with %v after %d of %d bytes", h.c.Err(), h.got, h.size)
	}
	h.c.Close()
	h.c, h.pauseTo = nil, now.Add(between)
}

// Idle reports whether no request is under way.
func (h *Honest) Idle() bool { return h.c == nil }

// Want fails the test unless at least done requests have succeeded so far, none failed, and each took at most slowest.
func (h *Honest) Want(done int, slowest time.Duration) {
	h.n.T.Helper()
	if h.c != nil {
		h.Slowest = max(h.Slowest, h.n.Clock.now.Sub(h.began)) // the one under way
	}
	h.n.T.Logf("honest client: %d answers, %d failures, the slowest took %v", h.Done, h.Failed, h.Slowest)
	if h.Done < done || h.Failed > 0 || h.Slowest > slowest {
		h.n.T.Errorf("want at least %d answers, no failure, and at most %v", done, slowest)
	}
}

// Chat is a connection between the honest client and the victim on which both ends say something every 10 ms, of which every byte is
// checked.
type Chat struct {
	n      *Net
	ends   [2]chatEnd // the client's and the victim's
	next   plugins.Time
	closed bool
}

type chatEnd struct {
	c           *tcp.Conn
	wrote, read int
}

// line is how much an end says at once, and chatEvery how often.
const (
	line      = 300
	chatEvery = 10 * time.Millisecond
	chatPort  = 7
)

// Chat opens a chat, which goes on until the end of the test.
func (n *Net) Chat() *Chat {
	n.T.Helper()
	l, err := n.Victim.Listen(netip.AddrPortFrom(VictimAddr, chatPort), 4)
	if err != nil {
		n.T.Fatal(err)
	}
	c := &Chat{n: n}
	if c.ends[0].c, err = n.Client.Connect(netip.AddrPort{}, netip.AddrPortFrom(VictimAddr, chatPort)); err != nil {
		n.T.Fatal(err)
	}
	if !n.Run(5*time.Second, func() bool { c.ends[1].c, _ = l.TryAccept(); return c.ends[1].c != nil }) {
		n.T.Fatal("the chat's connection does not open")
	}
	n.Each(c.step)
	n.T.Cleanup(c.Close)
	return c
}

// Close closes both ends. It may be called again.
func (c *Chat) Close() {
	c.closed = true
	for _, e := range c.ends {
		e.c.Close()
	}
}

// ClientAddr is the client's end of the chat.
func (c *Chat) ClientAddr() netip.AddrPort { return c.ends[0].c.Tuple.LocalAddr() }

// Victim is the victim's end of the chat.
func (c *Chat) Victim() *tcp.Conn { return c.ends[1].c }

func (c *Chat) step() {
	if c.closed {
		return
	}
	talk := c.n.Clock.now >= c.next
	if talk {
		c.next = c.n.Clock.now.Add(chatEvery)
	}
	for i := range c.ends {
		e := &c.ends[i]
		if talk {
			k, err := e.c.TryWrite(Content(e.wrote, line))
			if err != nil && err != tcp.ErrWouldBlock {
				c.n.T.Fatalf("end %d of the chat: %v after %d bytes", i, err, e.wrote)
			}
			e.wrote += k
		}
		var buf [4 * line]byte
		k, err := e.c.TryRead(buf[:])
		if err != nil && err != tcp.ErrWouldBlock {
			c.n.T.Fatalf("end %d of the chat: %v after %d bytes", i, err, e.read)
		}
		for j, b := range buf[:k] {
			if b != tcptest.Byte(uint64(e.read+j)) {
				c.n.T.Fatalf("byte %d of the chat at end %d is wrong", e.read+j, i)
			}
		}
		e.read += k
	}
}

// Want fails the test unless both ends have said and heard something for d, and are at most a second behind.
func (c *Chat) Want(d time.Duration) {
	c.n.T.Helper()
	want := int(d/chatEvery)*line*9/10 - 100*line
	for i := range c.ends {
		if got := c.ends[i].read; got < want || got < c.ends[1-i].wrote-100*line {
			c.n.T.Errorf("end %d of the chat has heard %d bytes of %d, want %d", i, got, c.ends[1-i].wrote, want)
		}
	}
}
