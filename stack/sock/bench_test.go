package sock_test

import (
	"io"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// sendFunc writes size bytes, recvFunc reads them.
type (
	sendFunc func(c *sock.Conn, size int) error
	recvFunc func(c *sock.Conn, size int) error
)

const blockSize = 64 << 10

func writing() sendFunc {
	block := make([]byte, blockSize)
	return func(c *sock.Conn, size int) error {
		for size > 0 {
			n, err := c.Write(block[:min(size, len(block))])
			if size -= n; err != nil {
				return err
			}
		}
		return nil
	}
}

func reading() recvFunc {
	block := make([]byte, blockSize)
	return func(c *sock.Conn, size int) error {
		for size > 0 {
			n, err := c.Read(block[:min(size, len(block))])
			if size -= n; err != nil {
				return err
			}
		}
		return nil
	}
}

func reserving(c *sock.Conn, size int) error {
	for size > 0 {
		p, err := c.Reserve(min(size, blockSize))
		if err != nil {
			return err
		}
		p[0], p[len(p)-1] = 1, 2 // a program would fill it
		size -= len(p)
		if err := c.Commit(len(p)); err != nil {
			return err
		}
	}
	return nil
}

func taking() recvFunc {
	bufs := make([]sock.Buffer, 16)
	return func(c *sock.Conn, size int) error {
		for size > 0 {
			n, err := c.ReadBuffers(bufs)
			for i := range bufs[:n] {
				size -= len(bufs[i].Data)
				bufs[i].Release()
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// mover moves sizes over one connection, with two goroutines that stay.
type mover struct {
	send, recv chan int
	done       chan error
}

func newMover(c1, c2 *sock.Conn, s sendFunc, r recvFunc) *mover {
	m := &mover{make(chan int), make(chan int), make(chan error)}
	go func() {
		for n := range m.send {
			m.done <- s(c1, n)
		}
	}()
	go func() {
		for n := range m.recv {
			m.done <- r(c2, n)
		}
	}()
	return m
}

func (m *mover) move(t testing.TB, size int) {
	m.send <- size
	m.recv <- size
	for range 2 {
		if err := <-m.done; err != nil {
			t.Fatal(err)
		}
	}
}

func (m *mover) stop() { close(m.send); close(m.recv) }

var ways = []struct {
	name string
	send func() sendFunc
	recv func() recvFunc
}{
	{"Write-Read", writing, reading},
	{"Reserve-ReadBuffers", func() sendFunc { return reserving }, taking},
}

func skipUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("the race detector makes a sync.Pool, of which the channels of waits come, lose some of what is put back")
	}
}

// lossless keeps what is in flight below what the link holds: recovery may allocate.
var lossless = stack.Config{TCP: tcp.Config{RecvBuffer: 1 << 20}}

// Writes and reads allocate nothing, copying or not, and neither do the waits in them.
func TestAllocs(t *testing.T) {
	skipUnderRace(t)
	for _, w := range ways {
		for _, size := range []int{1, 1000, 1 << 20} {
			sa, sb := pair(t, lossless)
			c1, c2 := conns(t, sa, sb)
			m := newMover(c1, c2, w.send(), w.recv())
			for range 20 {
				m.move(t, 4<<20) // what is kept for later has its size then
			}
			if a := testing.AllocsPerRun(200, func() { m.move(t, size) }); a != 0 {
				t.Errorf("%s of %d bytes: %v allocations", w.name, size, a)
			}
			m.stop()
			c1.Close()
			c2.Close()
		}
	}
}

// io.Copy between two connections, and to and from others, allocates nothing beyond its start.
func TestCopyAllocs(t *testing.T) {
	skipUnderRace(t)
	sa, sb := pair(t, lossless)
	c1, c2 := conns(t, sa, sb)
	d1, d2 := conns(t, sa, sb)
	done := make(chan struct{})
	go func() { defer close(done); io.Copy(d1, c2); d1.CloseWrite() }()
	send, recv := writing(), reading()
	m := newMover(c1, d2, send, recv)
	for range 20 {
		m.move(t, 4<<20)
	}
	if a := testing.AllocsPerRun(100, func() { m.move(t, 1<<20) }); a != 0 {
		t.Errorf("%v allocations per MiB", a)
	}
	m.stop()
	c1.Close()
	<-done
	for _, c := range []*sock.Conn{c2, d1, d2} {
		c.Close()
	}
}

func BenchmarkTransfer(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			sa, sb := pair(b, stack.Config{})
			c1, c2 := conns(b, sa, sb)
			m := newMover(c1, c2, w.send(), w.recv())
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				m.move(b, 1<<20)
			}
			m.stop()
			c1.Close()
			c2.Close()
		})
	}
}

// BenchmarkZeroCopyGain moves the same bytes copied and in place, in turn, and reports how many times faster the latter is.
func BenchmarkZeroCopyGain(b *testing.B) {
	sa, sb := pair(b, stack.Config{})
	var m [2]*mover
	for i, w := range ways {
		c1, c2 := conns(b, sa, sb)
		defer c2.Close()
		defer c1.Close()
		m[i] = newMover(c1, c2, w.send(), w.recv())
		defer m[i].stop()
	}
	var took [2]time.Duration
	for b.Loop() {
		for i := range m {
			start := time.Now()
			m[i].move(b, 8<<20)
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(took[0])/float64(took[1]), "times-faster")
}

// BenchmarkAccept opens and closes connections that are accepted one by one, or as many as there are.
func BenchmarkAccept(b *testing.B) {
	for _, batch := range []int{1, 64} {
		b.Run(map[int]string{1: "one", 64: "batch"}[batch], func(b *testing.B) {
			sa, sb := pair(b, stack.Config{})
			ln, err := sock.Listen(sb, "tcp", ":80")
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				conns := make([]*sock.Conn, batch)
				for {
					n, err := ln.AcceptBatch(conns)
					if err != nil {
						return
					}
					for _, c := range conns[:n] {
						c.Close()
					}
				}
			}()
			d := sock.Dialer{Stack: sa}
			b.SetParallelism(32)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					c, err := d.Dial("tcp", "10.0.0.2:80")
					if err != nil {
						b.Error(err)
						return
					}
					c.(*sock.Conn).Abort() // and so leaves no TIME-WAIT
				}
			})
			ln.Close()
		})
	}
}
