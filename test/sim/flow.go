package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// flow is a flow of a scenario while it runs: its two ends and the applications there.
type flow struct {
	cfg   *Flow
	index int
	from  *host
	start plugins.Time
	stop  plugins.Time
	ended plugins.Time // when the last byte was acknowledged, or the last response was there; 0: not yet
	err   error

	client, server *tcp.Conn
	clientClosed   bool
	serverClosed   bool
	serverEOF      bool
	shut           bool // the client has written its last byte

	up, down content // client to server, server to client

	// Request/response.
	asked, answered int // requests begun, responses complete
	askedAt         plugins.Time
	nextAsk         plugins.Time
	times           []int64 // ns from request to response

	drops int64
	seen  observed
	info  tcp.Info // the last
	maxC  int64    // largest cwnd
}

// content is a stream of bytes that the receiver knows beforehand: a block of random bytes, repeated. Its length is odd, so that a
// shift by a segment, or by a power of two, shows.
type content struct {
	block          []byte
	written, taken uint64
}

const blockLen = 1<<16 + 1

func newContent(seed, stream uint64) content {
	var key [32]byte
	for i := range 8 {
		key[i], key[8+i] = byte(seed>>(8*i)), byte(stream>>(8*i))
	}
	c := content{block: make([]byte, blockLen)}
	rand.NewChaCha8(key).Read(c.block) //nolint:errcheck // never fails
	return c
}

// write sends until upTo bytes have been written, or the connection takes no more.
func (c *content) write(to *tcp.Conn, upTo uint64) error {
	for c.written < upTo {
		part := c.block[c.written%blockLen:]
		if left := upTo - c.written; left < uint64(len(part)) {
			part = part[:left]
		}
		n, err := to.TryWrite(part)
		c.written += uint64(n)
		if err == tcp.ErrWouldBlock {
			return nil
		}
		if err != nil {
			return fmt.Errorf("write at byte %d: %w", c.written, err)
		}
	}
	return nil
}

// take reads what there is and compares it with what was sent. It returns io.EOF at the stream's end.
func (c *content) take(from *tcp.Conn) error {
	for {
		p := from.Peek()
		if len(p) == 0 {
			_, err := from.TryRead(nil)
			if err != nil && err != io.EOF {
				err = fmt.Errorf("read at byte %d: %w", c.taken, err)
			}
			return err
		}
		n := len(p)
		for len(p) > 0 {
			want := c.block[c.taken%blockLen:]
			want = want[:min(len(want), len(p))]
			if !bytes.Equal(p[:len(want)], want) {
				return fmt.Errorf("bytes %d to %d are not those sent", c.taken, c.taken+uint64(len(want)))
			}
			c.taken += uint64(len(want))
			p = p[len(want):]
		}
		from.Discard(n)
	}
}

// bounded reports whether the flow ends by itself before the simulation does.
func (f *flow) bounded(end plugins.Time) bool {
	return f.cfg.Bytes > 0 || f.cfg.Count > 0 || f.stop < end
}

// over reports whether nothing is left to do for the flow.
func (f *flow) over() bool { return f.err != nil || f.clientClosed && f.serverClosed }

// step lets both applications do what they can.
func (f *flow) step(now plugins.Time) {
	if f.over() || now < f.start {
		return
	}
	if err := f.run(now); err != nil {
		f.err = err
	}
}

func (f *flow) run(now plugins.Time) error {
	if f.client == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if !f.client.Up() {
		return nil
	}
	if e := f.client.Err(); e != tcp.OK {
		return fmt.Errorf("client: %w", e)
	}
	if err := f.clientStep(now); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if f.server == nil || f.serverClosed {
		return nil
	}
	if err := f.serverStep(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// open begins the connection, with the modules that the scenario gives the flow.
func (f *flow) open() (err error) {
	to := netip.AddrPortFrom(f.from.peer.addr, listenPort)
	if f.client, err = f.from.stack.ConnectWith(netip.AddrPort{}, to, f.from.choice(f)); err != nil {
		return err
	}
	f.client.SetOption(tcp.OptNoDelay, f.cfg.NoDelay)
	if f.cfg.MaxRate > 0 {
		f.client.SetMaxRate(uint64(f.cfg.MaxRate))
	}
	f.from.watch(f)
	return nil
}

func (f *flow) clientStep(now plugins.Time) error {
	if f.clientClosed {
		return nil
	}
	upTo, last := f.target(now)
	if err := f.up.write(f.client, upTo); err != nil {
		return err
	}
	if err := f.down.take(f.client); err == io.EOF {
		f.client.Close()
		f.clientClosed = true
		return nil
	} else if err != nil && !errors.Is(err, tcp.ErrWouldBlock) {
		return err
	}
	if f.cfg.Kind == ReqResp {
		f.responses(now)
	}
	if last && f.up.written == upTo && !f.shut {
		f.client.CloseWrite()
		f.shut = true
	}
	if f.shut && f.ended == 0 && f.client.Unsent() == 0 {
		f.ended = now
		f.snapshot()
	}
	return nil
}

func (f *flow) serverStep() error {
	err := f.up.take(f.server)
	if err != nil && err != io.EOF && !errors.Is(err, tcp.ErrWouldBlock) {
		return err
	}
	f.serverEOF = f.serverEOF || err == io.EOF
	if f.cfg.Kind == ReqResp {
		owed := f.up.taken / uint64(f.cfg.Request) * uint64(f.cfg.Response)
		if err := f.down.write(f.server, owed); err != nil {
			return err
		}
		if f.down.written < owed {
			return nil
		}
	}
	// The server closes when the client's end has been seen, while the client's connection still has its figures.
	if f.serverEOF && f.ended != 0 {
		f.server.Close()
		f.serverClosed = true
	}
	return nil
}

// target says how many bytes the client should have written by now, and whether these are all.
func (f *flow) target(now plugins.Time) (upTo uint64, last bool) {
	if f.cfg.Bytes > 0 {
		defer func() {
			if upTo >= uint64(f.cfg.Bytes) {
				upTo, last = uint64(f.cfg.Bytes), true
			}
		}()
	}
	if f.cfg.Kind == ReqResp {
		return f.request(now)
	}
	if now >= f.stop {
		return f.up.written, true
	}
	since := now.Sub(f.start)
	switch f.cfg.Kind {
	case OnOff:
		if since%(f.cfg.On.D()+f.cfg.Off.D()) >= f.cfg.On.D() {
			return f.up.written, false
		}
	case AppLimited:
		return uint64(since/f.interval()+1) * uint64(f.cfg.Write), false
	}
	return 1 << 62, false
}

// interval is the time between two messages of an application-limited flow.
func (f *flow) interval() time.Duration {
	return time.Duration(cong.MulDiv(uint64(f.cfg.Write), uint64(time.Second), uint64(f.cfg.Rate)))
}

// request begins the next request when the last response has been there for the time to think.
func (f *flow) request(now plugins.Time) (upTo uint64, last bool) {
	idle := f.asked == f.answered
	last = idle && (now >= f.stop || f.cfg.Count > 0 && f.answered >= f.cfg.Count ||
		f.cfg.Bytes > 0 && uint64(f.asked)*uint64(f.cfg.Request) >= uint64(f.cfg.Bytes))
	if idle && !last && now >= f.nextAsk {
		f.asked++
		f.askedAt = now
	}
	return uint64(f.asked) * uint64(f.cfg.Request), last
}

// responses notes a response that is complete.
func (f *flow) responses(now plugins.Time) {
	if f.asked > f.answered && f.down.taken >= uint64(f.asked)*uint64(f.cfg.Response) {
		f.answered++
		f.times = append(f.times, int64(now.Sub(f.askedAt)))
		f.nextAsk = now.Add(f.cfg.Think.D())
	}
}

// wake is the next time at which the flow's applications want to do something without an event.
func (f *flow) wake(now plugins.Time) plugins.Time {
	switch {
	case f.over():
		return plugins.Never
	case now < f.start:
		return f.start
	}
	at := plugins.Never
	if now < f.stop {
		at = f.stop
	}
	since := now.Sub(f.start)
	switch f.cfg.Kind {
	case OnOff:
		period := f.cfg.On.D() + f.cfg.Off.D()
		in := since % period
		next := period
		if in < f.cfg.On.D() {
			next = f.cfg.On.D()
		}
		at = min(at, now.Add(next-in))
	case AppLimited:
		at = min(at, f.start.Add((since/f.interval()+1)*f.interval()))
	case ReqResp:
		if f.asked == f.answered && f.nextAsk > now {
			at = min(at, f.nextAsk)
		}
	}
	return at
}

// snapshot keeps the client's figures.
func (f *flow) snapshot() {
	if i, ok := f.from.info(f.client); ok {
		f.info = i
		f.maxC = max(f.maxC, int64(i.Cwnd))
	}
}

// payload is what the applications have received.
func (f *flow) payload() uint64 { return f.up.taken + f.down.taken }
