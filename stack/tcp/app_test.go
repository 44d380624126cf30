package tcp_test

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// A deadline that the worker was told of holds whatever timers expire before it, and whether or not somebody waited then.
func TestDeadlineSurvivesTimers(t *testing.T) {
	for _, write := range []bool{false, true} {
		p, f := established(t, tcp.Config{}, "mss 1460", 10000)
		pastQuickAcks(f)
		w, d := &f.Conn.Rd, &f.Conn.RdDeadline
		if write {
			w, d = &f.Conn.Wr, &f.Conn.WrDeadline
		}
		end := f.Now().Add(time.Second)
		d.Store(int64(end))
		f.Conn.DeadlineChanged()
		f.Send("P. 161:171(10) ack 1")
		f.ExpectAfter(40*ms, exact, ". 1:1(0) ack 171")
		w.Arm()
		p.Until(2*time.Second, func() bool { return !w.Armed() })
		if late := f.Now().Sub(end); late < 0 || late > exact {
			t.Errorf("woken %v after the deadline", late)
		}
		w.Disarm()
		// A deadline that has passed, with nobody waiting, costs nothing more.
		p.Idle(time.Second)
		before := p.Stats().Busy + p.Stats().Idle
		p.Idle(10 * time.Second)
		if turns := p.Stats().Busy + p.Stats().Idle - before; turns > 100 {
			t.Errorf("%d turns in ten idle seconds", turns)
		}
	}
}

// A writer that found no memory is woken when there may be some again.
func TestWriterWithoutMemory(t *testing.T) {
	b := smallBudget(t, 1<<20)
	p := tcptest.New(t, tcptest.Config{Stack: stackConfig(b)})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1460", 10000)
	if !b.TryAdd(1<<20 - b.Used()) { // somebody else takes it all
		t.Fatal("the budget was used up before")
	}
	f.WantWriteErr(tcp.ErrWouldBlock)
	f.Conn.Wr.Arm()
	f.WantWriteErr(tcp.ErrWouldBlock)
	b.Sub(512 << 10)
	p.Until(time.Second, func() bool { return !f.Conn.Wr.Armed() })
	f.Conn.Wr.Disarm()
	f.Write(10)
	f.Expect("P. 1:11(10) ack 1")
	b.Sub(b.Used() - 64<<10)
}

// Output that stopped because all buffers were on their way goes on when they come back, though nothing tells the worker.
func TestBuffersComeBack(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Link: memlink.Config{Bufs: 8, Ring: 4}})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1000", 60000)
	pool := p.StackPool()
	var held []*pmd.Buf
	for b := pool.Get(); b != nil; b = pool.Get() {
		held = append(held, b)
	}
	f.Write(1000)
	p.Done()
	if d := p.Stack.Deadline().Sub(f.Now()); d <= 0 || d > ms {
		t.Errorf("the next turn is due after %v", d)
	}
	for _, b := range held {
		b.Free()
	}
	f.Expect("P. 1:1001(1000) ack 1")
	if s := p.Stats().TCP; s.NoBuffers == 0 {
		t.Error("output did not stop for want of buffers")
	}
}
