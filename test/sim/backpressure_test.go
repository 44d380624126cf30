package sim

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/fault"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// pushed is a flow that writes as fast as it may, and its peer, which checks each byte.
type pushed struct {
	a, b      *tcp.Conn
	salt      byte
	sent, got int
	waited    int // looks at which there was no room to write
}

func (f *pushed) at(i int) byte { return f.salt + byte(i*7+i>>8) }

func (f *pushed) step(t *testing.T, total int) {
	var block [4000]byte
	for f.sent < total {
		n := min(len(block), total-f.sent)
		if f.a.WriteRoom() < n {
			f.waited++
			break
		}
		for i := range n {
			block[i] = f.at(f.sent + i)
		}
		k, err := f.a.TryWrite(block[:n])
		if err != nil {
			t.Fatal(err)
		}
		f.sent += k
	}
	for p := f.b.Peek(); len(p) > 0; p = f.b.Peek() {
		for i := range p {
			if p[i] != f.at(f.got+i) {
				t.Fatalf("byte %d of the flow with salt %d is wrong", f.got+i, f.salt)
			}
		}
		f.got += len(p)
		f.b.Discard(len(p))
	}
}

// What does not fit waits: for room in the port's ring, for a buffer, for a departure within the horizon. Writers are held up, it is
// counted, nothing that was sent vanishes (nothing is sent again for it), each byte arrives, and it goes on when there is room.
func TestBackpressure(t *testing.T) {
	const flows, total = 3, 600_000
	for _, c := range []struct {
		name  string
		link  memlink.Config
		tcp   tcp.Config
		fault fault.Config
		halt  time.Duration // for which the peer takes nothing, at the start
		rate  uint64        // of each flow, bytes/s, for the first second
		count func(*tcp.Stats) uint64
	}{
		{name: "full ring", link: memlink.Config{Ring: 32}, halt: 20 * time.Millisecond, count: func(s *tcp.Stats) uint64 { return s.BacklogWaits }},
		{name: "full ring and FIFO", link: memlink.Config{Ring: 32}, tcp: tcp.Config{NoBacklogLimit: true}, halt: 20 * time.Millisecond,
			count: func(s *tcp.Stats) uint64 { return s.TxFull }},
		{name: "full ring of a port that tells what it has sent", link: memlink.Config{Ring: 32, AtoB: memlink.Path{Rate: 200e6, Hold: 1}},
			count: func(s *tcp.Stats) uint64 { return s.BacklogWaits }},
		{name: "no buffers", link: memlink.Config{}, fault: fault.Config{Seed: 1, Exhaust: 5 * fault.Percent, ExhaustPolls: 20},
			count: func(s *tcp.Stats) uint64 { return s.NoBuffers }},
		{name: "horizon", link: memlink.Config{}, rate: 100, count: func(s *tcp.Stats) uint64 { return s.HorizonRefusals }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := WorldConfig{Link: c.link, Seed: 1, WrapPorts: func(p pmd.Port) pmd.Port {
				f, err := fault.New(p, c.fault)
				if err != nil {
					t.Fatal(err)
				}
				return f
			}}
			cfg.A.TCP = c.tcp
			cfg.A.TCP.SendBuffer, cfg.A.TCP.InitialWindow, cfg.A.TCP.NoDelay = 128<<10, 100, true
			cfg.A.Modules[plugins.Pace].Name, cfg.B.TCP.RecvStart = "edt", 1<<20
			w, err := NewWorld(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}()
			var fs [flows]pushed
			for i := range fs {
				f := &fs[i]
				f.salt = byte(50 * i)
				if f.a, f.b, err = w.Connect(uint16(1000 + i)); err != nil {
					t.Fatal(err)
				}
				f.a.SetMaxRate(c.rate)
			}
			for end := w.Clock.Now().Add(c.halt); w.Clock.Now() < end; w.Clock.now += 1000 {
				for i := range fs {
					fs[i].step(t, total)
				}
				w.A.Turn()
			}
			done := func() bool {
				all := true
				for i := range fs {
					fs[i].step(t, total)
					all = all && fs[i].got == total
				}
				return all
			}
			if c.rate != 0 {
				if w.Run(time.Second, done) == nil {
					t.Fatal("nothing held the flows up")
				}
				for i := range fs {
					fs[i].a.SetMaxRate(0)
				}
			}
			if err := w.Run(time.Minute, done); err != nil {
				t.Fatal(err)
			}
			s := &w.A.Stats()[0].TCP
			if c.count(s) == 0 {
				t.Error("not counted")
			}
			if s.RetransSegs > s.TLPs || c.halt == 0 && s.TLPs > 0 { // a peer that is silent for so long is sent probes
				t.Errorf("%d segments were sent again, %d probes", s.RetransSegs, s.TLPs)
			}
			for i := range fs {
				if fs[i].waited == 0 {
					t.Errorf("flow %d's writer never waited", i)
				}
			}
		})
	}
}
