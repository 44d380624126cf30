package attack

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

var full = flag.Bool("full", false, "open 100 000 connections in TestScale, not 20 000")

// mostIdle is what an idle endpoint may cost in bytes: connection, slot, timer, place in the table, and the state of btree, edt and cubic.
// mostKept is what of it stays when it is closed, for the next one in its slot: all but the connection.
const (
	mostIdle = 1900
	mostKept = 1000
)

// memory is what the process holds.
type memory struct {
	heap, used, mapped int64 // of the Go heap; of the budget of the victim's streams; mapped for them
	goroutines         int
}

func (n *Net) memory() memory {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	s := n.Victim.Memory()
	return memory{int64(m.HeapAlloc), s.Used, s.Mapped, runtime.NumGoroutine()}
}

// Connections by the ten thousand are opened, say something, idle, and are closed. Nothing is left of them but room for the next ones,
// which does not grow: slots, table, timers and modules' state are reused.
func TestScale(t *testing.T) {
	total := 20_000
	if *full {
		total = 100_000
	}
	n := New(t, Config{Stack: stack.Config{TCP: tcp.Config{TimeWait: time.Second}}})
	const ports = 8
	var ls [ports]*tcp.Listener
	for i := range ls {
		var err error
		if ls[i], err = n.Victim.Listen(netip.AddrPortFrom(VictimAddr, uint16(1000+i)), 1024); err != nil {
			t.Fatal(err)
		}
	}
	base := n.memory()
	var after [2]memory
	for round := range after {
		ends := n.openMany(total, ls[:])
		idle := n.memory()
		per := (idle.heap - base.heap + idle.used - base.used) / int64(len(ends))
		t.Logf("round %d: %d connections idle: %d bytes per endpoint; heap %d, streams %d, mapped %d", round, total, per, idle.heap, idle.used, idle.mapped)
		if per > mostIdle {
			t.Errorf("an idle endpoint costs %d bytes, want at most %d", per, mostIdle)
		}
		if idle.used > 1<<20 {
			t.Errorf("%d bytes are held for streams that hold none", idle.used)
		}
		n.closeMany(ends)
		clear(ends)
		ends = nil
		after[round] = n.memory()
		for i, st := range []*stack.Stack{n.Victim, n.Client} {
			w := st.Stats()[0]
			if w.TCP.Conns+w.TCP.TimeWaits+w.TCP.SynRecvs != 0 {
				t.Errorf("stack %d: %d connections, %d in TIME-WAIT, %d half-open", i, w.TCP.Conns, w.TCP.TimeWaits, w.TCP.SynRecvs)
			}
		}
		t.Logf("round %d: closed: heap %d (%d bytes per endpoint kept for the next), streams %d, mapped %d", round, after[round].heap,
			(after[round].heap-base.heap)/int64(2*total), after[round].used, after[round].mapped)
	}
	first, last := after[0], after[1]
	if last.heap > first.heap+first.heap/50+1<<20 {
		t.Errorf("the heap has %d bytes after the second round, %d after the first", last.heap, first.heap)
	}
	if kept := (last.heap - base.heap) / int64(2*total); kept > mostKept {
		t.Errorf("%d bytes per endpoint are kept, want at most %d", kept, mostKept)
	}
	if last.used > base.used+1<<20 || last.mapped > base.mapped+8<<20 || last.goroutines > base.goroutines {
		t.Errorf("in the end %+v, at the start %+v", last, base)
	}
}

// openMany opens connections, on each of which the client says a byte and the victim answers; it returns both ends of all.
func (n *Net) openMany(total int, ls []*tcp.Listener) (ends []*tcp.Conn) {
	n.T.Helper()
	clients, victims := make([]*tcp.Conn, 0, total), make([]*tcp.Conn, 0, total)
	b := make([]byte, 16)
	for len(clients) < total {
		for range min(256, total-len(clients)) {
			c, err := n.Client.Connect(netip.AddrPort{}, netip.AddrPortFrom(VictimAddr, uint16(1000+len(clients)%len(ls))))
			if err != nil {
				n.T.Fatalf("connection %d: %v", len(clients), err)
			}
			clients = append(clients, c)
		}
		if !n.Run(10*time.Second, func() bool {
			for _, l := range ls {
				for c, err := l.TryAccept(); err == nil; c, err = l.TryAccept() {
					victims = append(victims, c)
				}
			}
			return len(victims) == len(clients)
		}) {
			n.T.Fatalf("%d connections of %d are accepted", len(victims), len(clients))
		}
		for _, side := range [][]*tcp.Conn{clients, victims} {
			for _, c := range side[max(0, len(side)-256):] {
				c.TryWrite(b[:1]) //nolint:errcheck // it is seen below
			}
			n.Idle(200 * time.Microsecond)
		}
	}
	n.Idle(5 * time.Second)
	ends = append(clients, victims...)
	for i, c := range ends {
		for k := 1; k > 0; {
			if k, _ = c.TryRead(b); k == 0 && c.Done() {
				n.T.Fatalf("end %d: %v", i, c.Err())
			}
		}
		if c.Unsent() != 0 {
			n.T.Fatalf("end %d: %d bytes are not acknowledged", i, c.Unsent())
		}
	}
	n.Idle(time.Second)
	return ends
}

// closeMany closes both ends of all connections and waits for the end of TIME-WAIT.
func (n *Net) closeMany(ends []*tcp.Conn) {
	n.T.Helper()
	for i, c := range ends {
		c.Close()
		if i%256 == 255 {
			n.Idle(200 * time.Microsecond)
		}
	}
	for range 100 { // a stack that is idle takes a turn now and then, and gives memory back
		n.Idle(100 * time.Millisecond)
	}
}

// Ten thousand connections are opened, used and closed over a path that loses 2 % of the segments, a hundred at a time.
func TestChurnWithLoss(t *testing.T) {
	const clients, total = 100, 10_000
	n := New(t, Config{Stack: stack.Config{TCP: tcp.Config{TimeWait: time.Second}}})
	rng := rand.New(rand.NewPCG(11, 1))
	lost := 0
	n.OnPath = func(_ bool, f []byte) [][]byte {
		if _, _, _, ok := Parse(f); ok && rng.IntN(50) == 0 {
			lost++
			return nil
		}
		return [][]byte{f}
	}
	n.Serve(1024)
	base := n.memory()
	var all []*Honest
	for range clients {
		all = append(all, n.Ask(3000))
	}
	count := func() (done, failed int) {
		for _, h := range all {
			done += h.Done
			failed += h.Failed
		}
		return done, failed
	}
	for done := 0; done < total; done, _ = count() {
		if n.Clock.now.Sub(1e9) > 20*time.Minute {
			t.Fatalf("%d answers", done)
		}
		n.Idle(time.Second)
	}
	for _, h := range all {
		h.Stop = true
	}
	if !n.Run(5*time.Minute, func() bool {
		for _, h := range all {
			if !h.Idle() {
				return false
			}
		}
		return true
	}) {
		t.Error("requests do not end")
	}
	n.Idle(5 * time.Minute)
	done, failed := count()
	t.Logf("%d answers, %d failures, %d frames lost, %v", done, failed, lost, n.Clock.now.Sub(1e9))
	if failed != 0 || lost == 0 {
		t.Errorf("%d of %d requests failed, %d frames were lost", failed, done, lost)
	}
	for i, st := range []*stack.Stack{n.Victim, n.Client} {
		if w := st.Stats()[0]; w.TCP.Conns+w.TCP.TimeWaits+w.TCP.SynRecvs != 0 {
			t.Errorf("stack %d: %d connections, %d in TIME-WAIT, %d half-open", i, w.TCP.Conns, w.TCP.TimeWaits, w.TCP.SynRecvs)
		}
	}
	if m := n.memory(); m.heap > base.heap+4<<20 || m.used > base.used+1<<20 || m.goroutines > base.goroutines {
		t.Errorf("in the end %+v, at the start %+v", m, base)
	}
}
