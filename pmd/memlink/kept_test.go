package memlink

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// A port with Hold keeps each frame until so long after the bottleneck has served it; with HoldEach it tells several together. Its ring
// has room for what it does not keep.
func TestHold(t *testing.T) {
	for _, c := range []struct {
		name       string
		hold, each time.Duration
		kept       []int // after 0, 1, 2, … ms
	}{
		{"late", 2 * time.Millisecond, 0, []int{5, 5, 5, 3, 2, 1, 0}},
		{"together", time.Millisecond, 3 * time.Millisecond, []int{5, 5, 3, 3, 3, 0}}, // told at 2 and 5 ms
	} {
		now := plugins.Time(1e9)
		// 1000-byte frames at 8 Mbit/s: one per millisecond. The second is lost, and told with the one before it.
		a, b, err := New(Config{
			Virtual: true, Now: func() plugins.Time { return now }, Ring: 8,
			AtoB: Path{Rate: 8e6, Hold: c.hold, HoldEach: c.each, Loss: Loss{Frames: []uint64{2}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if caps := a.Info().Caps; caps&pmd.Copies != 0 || b.Info().Caps&pmd.Copies == 0 {
			t.Errorf("%s: caps %b and %b", c.name, caps, b.Info().Caps)
		}
		q := a.Queue(0)
		send := func(n int) (taken int) {
			tx := make([]*pmd.Buf, n)
			for i := range tx {
				tx[i] = q.Pool().Get()
				tx[i].Append(make([]byte, 1000))
			}
			taken, _ = q.Poll(tx, nil)
			for _, b := range tx[taken:] {
				q.Pool().Put(b)
			}
			return taken
		}
		if n := send(5); n != 5 || q.TxRoom() != 3 {
			t.Fatalf("%s: %d taken, room for %d", c.name, n, q.TxRoom())
		}
		for i, want := range c.kept {
			now = plugins.Time(1e9).Add(time.Duration(i) * time.Millisecond)
			if next := a.NextRelease(); next <= now.Add(-time.Millisecond) && want > 0 {
				t.Errorf("%s: at %d ms a release at %v was not told", c.name, i, next)
			}
			if got := pmd.Uncompleted(q); got != want {
				t.Errorf("%s: after %d ms it keeps %d, want %d", c.name, i, got, want)
			}
		}
		if n := send(9); n != 8 || q.TxRoom() != 0 {
			t.Errorf("%s: %d taken by an empty ring of 8, room for %d", c.name, n, q.TxRoom())
		}
		now = now.Add(time.Second)
		var rx [16]*pmd.Buf
		_, n := b.Queue(0).Poll(nil, rx[:])
		pmd.FreeAll(rx[:n])
		for _, p := range []*Port{a, b} {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
