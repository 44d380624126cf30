package attack

import (
	"runtime"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Ten thousand clients ask for a megabyte each and read nothing. Together they would hold gigabytes: the budget holds, and honest
// clients are served.
func TestSlowReaders(t *testing.T) {
	const readers = 10_000
	for _, c := range []struct {
		name   string
		window uint16
	}{{"full window", 512}, {"zero window", 0}} { // 512 << 7 = 64 KiB
		t.Run(c.name, func(t *testing.T) {
			limits := mem.Limits{Low: 48 << 20, Pressure: 64 << 20, High: 128 << 20}
			n := New(t, Config{Limits: limits})
			n.Serve(4096)
			h := n.Ask(200_000)
			bots := n.Bots()
			n.connect(bots, readers, c.window)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			n.Reset()
			done := h.Done
			for i := 0; i < readers; i += 100 {
				for _, b := range bots.List[i : i+100] {
					b.Request(1 << 20)
				}
				n.Idle(20 * time.Millisecond)
			}
			n.Idle(5 * time.Second)
			n.cost()
			runtime.GC()
			runtime.ReadMemStats(&after)
			t.Logf("heap: %d bytes per reader more; memory %+v", (int64(after.HeapAlloc)-int64(before.HeapAlloc))/readers, n.Victim.Memory())
			h.Want(done+8, 3*time.Second)
			if n.Peak > limits.High {
				t.Errorf("%d bytes were charged, the limit is %d", n.Peak, limits.High)
			}
			if s := n.Budget.Stats(); s.Fulls != 0 || s.Pressures == 0 {
				t.Errorf("memory: %+v", s)
			}
			// What waits is sent again and probed at a rate that falls.
			n.Reset()
			n.Idle(10 * time.Second)
			if n.Out > 8*readers {
				t.Errorf("%d frames to readers that do not answer in 10 s", n.Out)
			}
		})
	}
}

// Connections whose application has gone and whose peer keeps its window closed do not last (RFC 9293, MUST-37 is for those that
// somebody waits for). Their memory comes back.
func TestZeroWindowHoarders(t *testing.T) {
	n := New(t, Config{Stack: stack.Config{TCP: tcp.Config{TimeWait: time.Second}}})
	srv := n.Serve(4096)
	bots := n.Bots()
	// They answer each probe, with the window closed.
	bots.Behave = func(b *Bot, s *wire.TCP, _ *wire.Options) { b.SendAt(b.Seq, wire.ACK, nil, wire.Options{}) }
	const hoarders = 1000
	n.Idle(10 * time.Millisecond)
	srv.Keep = func(c *tcp.Conn) bool { return true }
	n.connect(bots, hoarders, 0)
	for _, c := range srv.Held {
		if k, err := c.TryWrite(Content(0, 100_000)); k != 100_000 || err != nil {
			t.Fatal(k, err)
		}
		c.Close()
	}
	srv.Keep = nil
	n.Reset()
	h := n.Ask(5000)
	n.Idle(time.Second)
	held := n.Budget.Used()
	if held < hoarders*100_000 {
		t.Errorf("%d bytes are held", held)
	}
	h.Want(30, time.Second)
	limit := n.Clock.now.Add(20 * time.Minute)
	for n.Stats().TCP.Conns > 1 && n.Clock.now < limit {
		n.Idle(10 * time.Second)
	}
	n.cost()
	h.Want(1000, time.Second)
	if s := n.Stats().TCP; s.Conns > 1 || s.AbortOnTimeout != hoarders {
		t.Errorf("%d connections are left, %d were given up", s.Conns, s.AbortOnTimeout)
	}
	if used := n.Budget.Used(); used > 1<<20 {
		t.Errorf("%d bytes are still held", used)
	}
}
