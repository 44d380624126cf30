package sim

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	modhost "github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// successor is an rtx module that notes what it is given of a log, and how much at a time.
type successor struct {
	rtx.Module
	entries, turns, most int
	sacked               int // entries that came with that mark
	whole                bool
}

func (s *successor) Poll(now plugins.Time, in []rtx.Event, out []rtx.Command) int {
	n := 0
	for i := range in {
		switch ev := &in[i]; ev.Kind {
		case rtx.EvLog:
			n++
			if ev.Timer&rtx.MarkSacked != 0 {
				s.sacked++
			}
			s.whole = s.whole || ev.Flags&rtx.FlagLast != 0
		case rtx.EvResume:
			n++
		}
	}
	if n > 0 {
		s.turns++
		s.most = max(s.most, n)
		s.entries += n - 1
	}
	return s.Module.Poll(now, in, out)
}

// TestTakeOver: another module takes over a queue of 100 000 segments while its SACKs come in, and a third one in the midst of recovery.
// The log reaches them spread over turns, of which none is long; and of what the peer has SACKed, before or during the replay, nothing is
// sent again: no more than where one module serves all the time.
func TestTakeOver(t *testing.T) {
	alone := takeOver(t, nil, nil)
	if again := takeOver(t, nil, []string{"list", "btree"}); again > alone+10 {
		t.Errorf("%d segments sent again for nothing, %d without a take-over", again, alone)
	}
}

// TestTakeOverFromProcess: the module is a process, which is killed while a queue of 100 000 segments is acknowledged out of order. The
// fallback gets all of it, with what was SACKed, over turns of which none is long, and nothing that was SACKed is sent again.
func TestTakeOverFromProcess(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := modhost.OpenLone(t.Context(), plugins.Rtx, exe, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if again := takeOver(t, l, []string{"btree"}); again > 10 {
		t.Errorf("%d segments sent again for nothing", again)
	}
}

// takeOver moves the flow from module to module, of which the first, if it is a process, is killed for it. It returns how many segments
// arrived that had arrived before.
func takeOver(t *testing.T, process *modhost.Lone, modules []string) (again int) {
	const segments, mtu, mss = 100_000, 296, 296 - 52
	const first, total = 50_000, 50_000 + (segments+100)*mss
	path := memlink.Path{Delay: 50 * time.Millisecond}
	cfg := stack.Config{TCP: tcp.Config{InitialWindow: segments + 5000, RecvStart: 64 << 20}}
	cfg.Modules[plugins.Cong].Name = "reno"
	cfg.Modules[plugins.Pace].Name = "none"
	w, err := NewWorld(WorldConfig{A: cfg, B: cfg, Seed: 1, Link: memlink.Config{MTU: mtu, Bufs: 1 << 17, AtoB: path, BtoA: path}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // the test has failed, or looks at it below
	if process != nil {
		index, err := w.A.Attach(plugins.Rtx, "process", []any{process.Module})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.A.Use(plugins.Rtx, index, plugins.Selection{}); err != nil {
			t.Fatal(err)
		}
	}
	src, dst, err := w.Connect(80)
	if err != nil {
		t.Fatal(err)
	}
	src.SetSendBuffer(2 * total)
	w.Idle(time.Millisecond)
	c := newContent(1, 2)
	if err := c.write(src, first); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(time.Second, func() bool { return src.Unsent() == 0 }); err != nil { // the peer's window is open now
		t.Fatal(err)
	}
	path.Loss.Random = memlink.Percent
	if err := w.PortA.SetPath(path); err != nil {
		t.Fatal(err)
	}
	// run goes on until done is true of the sender.
	run := func(what string, done func(i *tcp.Info) bool) {
		t.Helper()
		err := w.Run(20*time.Second, func() bool {
			if err := c.write(src, total); err != nil {
				t.Fatal(err)
			}
			conns := w.A.Conns()
			return done(&conns[0])
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	run("sending", func(i *tcp.Info) bool { return i.Unacked >= segments })
	run("SACKs", func(i *tcp.Info) bool { return i.Sacked >= total/4 })
	for _, name := range modules {
		m, err := map[string]rtx.New{"list": rtx.NewList, "btree": rtx.NewBTree}[name](nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		s := &successor{Module: m}
		index, err := w.A.Attach(plugins.Rtx, name+" 2", []any{s})
		if err != nil {
			t.Fatal(err)
		}
		if process != nil {
			if i := w.A.Conns()[0]; i.Sacked < total/4 || i.Unacked < segments/2 {
				t.Errorf("%d segments and %d bytes SACKed before the process is killed", i.Unacked, i.Sacked)
			}
			kill(t, process)
			err = w.A.SetFallback(plugins.Rtx, index)
		} else {
			_, err = w.A.Use(plugins.Rtx, index, plugins.Selection{})
		}
		if err != nil {
			t.Fatal(err)
		}
		run("replay to "+name, func(*tcp.Info) bool { return s.whole })
		t.Logf("%s: %d entries, %d of them SACKed, in %d turns, at most %d in one", name, s.entries, s.sacked, s.turns, s.most)
		if s.entries < segments/16/2 || s.sacked < s.entries/8 || s.turns < s.entries/256 || s.most > 257 {
			t.Errorf("%s: %d entries, %d of them SACKed, in %d turns, at most %d in one", name, s.entries, s.sacked, s.turns, s.most)
		}
		run("more SACKs", func(i *tcp.Info) bool { return i.Sacked >= total/2 || i.Lost > 0 })
	}
	src.CloseWrite()
	eof := false
	if err := w.Run(time.Minute, func() bool {
		err := c.take(dst)
		if eof = err == io.EOF; err != nil && !eof {
			t.Fatal(err)
		}
		return eof && src.Unsent() == 0
	}); err != nil {
		t.Fatal(err)
	}
	a, b := w.A.Stats()[0].TCP, w.B.Stats()[0].TCP
	if c.taken != total || a.RTOs != 0 {
		t.Errorf("%d bytes of %d, %d timeouts", c.taken, total, a.RTOs)
	}
	return (int(b.BytesIn) - total) / mss
}

// kill kills a module's process, and returns when the host knows.
func kill(t *testing.T, l *modhost.Lone) {
	t.Helper()
	p, err := os.FindProcess(l.PID())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); l.Fault() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the host does not see that the process is gone")
		}
	}
}
