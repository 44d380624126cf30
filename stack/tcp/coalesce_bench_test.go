package tcp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/neigh"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

type onLink struct{}

func (onLink) Resolve(*neigh.Ref, wire.Addr) (wire.MAC, bool) { return wire.MAC{2}, true }
func (onLink) Hold(_ neigh.Ref, b *pmd.Buf)                   { b.Free() }

func (onLink) Doubt(neigh.Ref)   {}
func (onLink) Confirm(neigh.Ref) {}

// receiver is an engine with one connection that receives.
type receiver struct {
	e   *Engine
	c   *Conn
	now plugins.Time
	p   wire.Packet
	t   wire.TCP
	buf []byte
}

func newReceiver(tb testing.TB) *receiver {
	tb.Helper()
	pool, err := pmd.NewPool("bench", 256, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		tb.Fatal(err)
	}
	env := Env{
		Pool: pool, Fifo: pmd.NewFifo(128), Arena: mem.NewHeapArena(budget), Budget: budget, Keys: NewKeys(rand.New(rand.NewPCG(1, 2))),
		Link: onLink{}, Mine: func(*Tuple) bool { return true }, Wake: func(w *Waiter) { w.Wake() }, Kicked: func() {},
	}
	r := &receiver{now: 1e9, buf: make([]byte, 1<<20)}
	r.e = New(Config{}, env, r.now)
	for k, name := range [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"} {
		en, ok := builtin.Find(plugins.Kind(k), name)
		if !ok {
			tb.Fatal(name)
		}
		m, err := en.New(plugins.Params{}, 1)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := r.e.Attach(plugins.Kind(k), name, m); err != nil {
			tb.Fatal(err)
		}
	}
	l := NewListener(wire.Addr{}, 80, 1)
	if err := r.e.Listen(l); err != nil {
		tb.Fatal(err)
	}
	r.p = wire.Packet{Src: wire.AddrFrom4([4]byte{10, 0, 0, 2}), Dst: wire.AddrFrom4([4]byte{10, 0, 0, 1})}
	syn := wire.Options{Set: wire.OptMSS | wire.OptSACKPerm | wire.OptTS | wire.OptWScale, MSS: 1460, WScale: 7, TSVal: 1}
	r.t = wire.TCP{SrcPort: 5000, DstPort: 80, Seq: 999, Flags: wire.SYN, Window: 65535, Opts: wire.PutOptions(nil, &syn)}
	r.turn(1)
	h := r.e.slots[0].half
	r.t.Flags, r.t.Seq, r.t.Ack, r.t.Opts = wire.ACK, 1000, h.iss+1, wire.PutTS(nil, 2, 0)
	r.turn(1)
	if r.c, err = l.TryAccept(); err != nil {
		tb.Fatal(err)
	}
	r.t.Payload = make([]byte, 1448)
	return r
}

// turn is one turn of the worker with n segments, each behind the other, or as many as the window allows. It returns their number.
func (r *receiver) turn(n int) int {
	if r.c != nil {
		n = min(n, int(r.c.rcvAdv-r.c.rcvNxt)/len(r.t.Payload))
	}
	r.now += 100_000
	r.e.Begin(r.now)
	for range n {
		r.e.Input(&r.p, &r.t)
		r.t.Seq += r.t.SeqLen()
	}
	r.e.Mailbox()
	r.e.Timers()
	r.e.Modules()
	r.e.Output()
	for f := r.e.env.Fifo.Front(64); len(f) > 0; f = r.e.env.Fifo.Front(64) {
		for _, b := range f {
			r.e.env.Pool.Put(b)
		}
		r.e.env.Fifo.Drop(len(f))
	}
	return n
}

func (r *receiver) read() {
	for n := 1; n > 0; {
		n, _ = r.c.TryRead(r.buf)
	}
}

// BenchmarkReceive is a received segment's way through the engine, in bursts, with and without coalescing, in turn.
func BenchmarkReceive(b *testing.B) {
	for _, burst := range []int{1, 4, 16, 64} {
		for _, size := range []int{100, 1448} {
			for _, never := range []bool{true, false} {
				b.Run(fmt.Sprintf("burst=%d/size=%d/coalesce=%v", burst, size, !never), func(b *testing.B) {
					r := newReceiver(b)
					r.e.run.never = never
					r.t.Payload = r.t.Payload[:size]
					b.ReportAllocs()
					b.ResetTimer()
					for i := 0; i < b.N; {
						i += r.turn(burst)
						r.read()
					}
				})
			}
		}
	}
}

// Coalescing allocates nothing.
func TestCoalesceAllocs(t *testing.T) {
	r := newReceiver(t)
	for range 100 {
		r.turn(32)
		r.read()
	}
	before, sent, turns := r.e.Stats.Coalesced, 0, 0
	if n := testing.AllocsPerRun(500, func() { sent += r.turn(32); turns++; r.read() }); n != 0 {
		t.Errorf("%v allocations per burst", n)
	}
	if n := int(r.e.Stats.Coalesced - before); n != sent-turns || sent < 8*turns {
		t.Errorf("%d of %d segments in %d bursts were coalesced", n, sent, turns)
	}
}
