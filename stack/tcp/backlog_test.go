package tcp

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// modelPort is a port with a ring of frames of 1514 bytes, which it sends one after the other.
type modelPort struct {
	each  time.Duration // per frame
	ring  int
	batch int          // frames that it tells together, once it keeps more than lazy
	lazy  int          // frames
	kept  int          // taken, not told
	wire  int          // taken, not sent
	at    plugins.Time // when the present frame is sent
	sent  int
}

// poll takes what is in the FIFO.
func (p *modelPort) poll(e *Engine, now plugins.Time) {
	for p.wire > 0 && p.at <= now {
		p.wire--
		p.sent++
		p.at = p.at.Add(p.each)
	}
	for p.kept-p.batch >= max(p.lazy, p.wire) {
		p.kept -= p.batch
	}
	for e.env.Fifo.Len() > 0 && p.kept < p.ring {
		if p.wire == 0 {
			p.at = now.Add(p.each)
		}
		p.wire++
		p.kept++
		e.env.Fifo.Drop(1)
	}
	e.Kept(p.kept)
}

// drive lets one flow fill a port, by runs of segments, for d. It returns how many frames left, and the most that waited, in the second half.
func drive(p *modelPort, keeps bool, d time.Duration) (sent, most int) {
	e := New(Config{}, Env{Fifo: pmd.NewFifo(128), Keeps: keeps}, 1e9)
	b := &e.port.backlog
	var frame pmd.Buf
	half := e.now.Add(d / 2)
	for now, end := e.now, e.now.Add(d); now < end; now = now.Add(time.Microsecond) {
		if now == half {
			sent = p.sent
		}
		p.poll(e, now)
		if !keeps {
			e.Kept(0)
		}
		e.Begin(now)
		e.complete()
		b.open = !e.env.Keeps && e.env.Fifo.Len() == 0
		for e.env.Fifo.Room() > 0 && !b.full() {
			n := min(b.segments(1448), maxRun, uint32(e.env.Fifo.Room()))
			for range n {
				e.env.Fifo.Push(&frame)
			}
			e.queued(&Conn{}, n*1448, n)
		}
		if now > half {
			most = max(most, p.wire+e.env.Fifo.Len())
		}
	}
	return p.sent - sent, most
}

// F12: FIFO and port hold what keeps the port busy, and little more, however it tells of what it has sent.
func TestBacklog(t *testing.T) {
	for _, c := range []struct {
		name  string
		port  modelPort
		keeps bool
		most  int // frames that wait for the port
	}{
		{"tells at once", modelPort{each: 12 * time.Microsecond, ring: 512, batch: 1}, true, 6},
		{"tells 32 together", modelPort{each: 12 * time.Microsecond, ring: 512, batch: 32}, true, 72},
		{"tells when the ring is nearly full", modelPort{each: 2 * time.Microsecond, ring: 512, batch: 32, lazy: 448}, true, 512 + 128},
		{"does not tell", modelPort{each: 12 * time.Microsecond, ring: 512, batch: 1}, false, 512 + 8},
	} {
		d := 400 * time.Millisecond
		sent, most := drive(&c.port, c.keeps, d)
		want := int(d / 2 / c.port.each)
		t.Logf("%s: %d frames of %d, %d waited", c.name, sent, want, most)
		if sent < want*99/100 {
			t.Errorf("%s: %d frames of %d", c.name, sent, want)
		}
		if most > c.most {
			t.Errorf("%s: %d frames wait, want at most %d", c.name, most, c.most)
		}
	}
}

// A port that takes all that it is given has no backlog.
func TestBacklogOpen(t *testing.T) {
	b := newBacklog()
	b.open, b.bytes = true, 1<<30
	if b.full() || b.segments(1448) < 1<<20 {
		t.Error("limited")
	}
	b.open = false
	if !b.full() || b.segments(1448) != 0 {
		t.Error("not limited")
	}
	b.bytes = leastBacklog - 1
	if b.full() || b.segments(1448) != 1 {
		t.Errorf("%d segments for a byte of room", b.segments(1448))
	}
}
