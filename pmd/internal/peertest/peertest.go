// Package peertest has what the tests of drivers share: real kernels as peers, on both sides of a pair of ports.
package peertest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"golang.org/x/sys/unix"
)

// NS makes a namespace for the length of the test, which is skipped without root.
func NS(t testing.TB) *netns.NS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	n, err := netns.New("pmd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Veth makes a veth pair for the length of the test.
func Veth(t testing.TB, a, b netns.End, mtu int) *netns.Pair {
	t.Helper()
	p, err := netns.Veth(a, b, mtu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Close closes ports and wants no error.
func Close(t testing.TB, ps ...pmd.Port) {
	t.Helper()
	for _, p := range ps {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Send has a queue take a frame.
func Send(t testing.TB, q pmd.Queue, b *pmd.Buf) {
	t.Helper()
	tx := []*pmd.Buf{b}
	Until(t, "send a frame", func() bool { n, _ := q.Poll(tx, nil); return n == 1 })
}

// Recv waits for the next frame and returns its bytes and flags.
func Recv(t testing.TB, q pmd.Queue) (string, uint16) {
	t.Helper()
	rx := make([]*pmd.Buf, 1)
	Until(t, "receive a frame", func() bool { _, n := q.Poll(nil, rx); return n == 1 })
	s, f := string(rx[0].Bytes()), rx[0].Flags
	q.Pool().Put(rx[0])
	return s, f
}

// Frame makes a frame in a buffer of q from its parts.
func Frame(t testing.TB, q pmd.Queue, parts ...[]byte) *pmd.Buf {
	t.Helper()
	b := q.Pool().Get()
	if b == nil {
		t.Fatal(pmd.ErrNoBuffers)
	}
	for _, p := range parts {
		if !b.Append(p) {
			t.Fatalf("a frame of more than %d bytes", b.Cap())
		}
	}
	return b
}

// Forwarder moves frames between queue 0 of two ports on a goroutine, in the buffers in which they came.
type Forwarder struct {
	a, b pmd.Port
	stop atomic.Bool
	done sync.WaitGroup
	// Partial counts frames with RxPartial, whose checksum the port that sends them completes. Long counts those above 1514 bytes.
	Partial, Long atomic.Uint64
}

// Forward starts a Forwarder.
func Forward(a, b pmd.Port) *Forwarder {
	x := &Forwarder{a: a, b: b}
	x.done.Go(x.run)
	return x
}

// Stop ends it.
func (x *Forwarder) Stop() {
	x.stop.Store(true)
	x.done.Wait()
}

func (x *Forwarder) run() {
	type way struct {
		from, to pmd.Queue
		wait     []*pmd.Buf
	}
	a, b := x.a.Queue(0), x.b.Queue(0)
	ways := []*way{{from: a, to: b}, {from: b, to: a}}
	rx := make([]*pmd.Buf, 64)
	fds := []unix.PollFd{{Fd: int32(a.WakeFD()), Events: unix.POLLIN}, {Fd: int32(b.WakeFD()), Events: unix.POLLIN}}
	for !x.stop.Load() {
		idle := true
		for _, w := range ways {
			n, _ := w.to.Poll(w.wait, nil)
			w.wait = append(w.wait[:0], w.wait[n:]...)
			if len(w.wait) > 0 {
				idle = false
				continue
			}
			_, n = w.from.Poll(nil, rx)
			for _, f := range rx[:n] {
				x.inspect(f)
				w.wait = append(w.wait, f)
				idle = false
			}
		}
		if idle {
			_, _ = unix.Poll(fds, 10)
		}
	}
	for _, w := range ways {
		pmd.FreeAll(w.wait)
	}
}

// inspect has an unfinished checksum completed on the way out.
func (x *Forwarder) inspect(f *pmd.Buf) {
	if f.Len() > 1514 {
		x.Long.Add(1)
	}
	if f.Flags&pmd.RxPartial != 0 {
		x.Partial.Add(1)
		f.Flags, f.L2Len, f.L3Len = pmd.TxTCPCsum, 14, 20
	}
}

// Transfer sends n bytes through the kernels' TCP and compares hashes.
func Transfer(t testing.TB, from, to *netns.NS, addr string, n int) {
	t.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) { l, err = net.Listen("tcp4", addr+":0"); return }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		h := sha256.New()
		k, err := io.Copy(h, c)
		got <- fmt.Sprintf("%d bytes, %x, %v", k, h.Sum(nil), err)
	}()
	var c net.Conn
	if err := from.Do(func() (err error) { c, err = net.Dial("tcp4", l.Addr().String()); return }); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	r := io.LimitReader(rand.NewChaCha8([32]byte{1}), int64(n))
	if _, err := io.Copy(io.MultiWriter(c, h), r); err != nil {
		t.Error(err)
	}
	c.Close()
	if want, g := fmt.Sprintf("%d bytes, %x, <nil>", n, h.Sum(nil)), <-got; g != want {
		t.Errorf("received %s\nsent     %s", g, want)
	}
}

// Bulk sends n bytes through the kernels' TCP.
func Bulk(b *testing.B, from, to *netns.NS, addr string, n int64) {
	b.Helper()
	var l net.Listener
	if err := to.Do(func() (err error) { l, err = net.Listen("tcp4", addr+":0"); return }); err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	got := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		defer c.Close()
		k, p := int64(0), make([]byte, 256<<10)
		for err == nil {
			n := 0
			n, err = c.Read(p)
			k += int64(n)
		}
		got <- k
	}()
	var c net.Conn
	if err := from.Do(func() (err error) { c, err = net.Dial("tcp4", l.Addr().String()); return }); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 64<<10)
	for rest := n; rest > 0; {
		k, err := c.Write(p[:min(rest, int64(len(p)))])
		if err != nil {
			b.Fatal(err)
		}
		rest -= int64(k)
	}
	c.Close()
	if k := <-got; k != n {
		b.Errorf("received %d of %d bytes", k, n)
	}
}
