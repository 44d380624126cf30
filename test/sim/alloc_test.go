package sim

import (
	"slices"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
)

// TestZeroAllocs: in steady state turns allocate nothing, whatever the modules: neither sending, receiving, acknowledging, pacing,
// nor recovering from losses.
func TestZeroAllocs(t *testing.T) {
	const ms = 1e6
	for _, c := range []struct {
		name string
		path memlink.Path // a to b
		back memlink.Path
		tso  int
	}{
		{"clean", memlink.Path{}, memlink.Path{}, 0},
		{"large frames", memlink.Path{}, memlink.Path{}, 65000},
		{"bottleneck", memlink.Path{Rate: 1e9, Delay: 2 * ms, QueueBytes: 250e3}, memlink.Path{Delay: 2 * ms}, 0},
		{"loss", memlink.Path{Rate: 1e9, Delay: 2 * ms, QueueBytes: 250e3, Loss: memlink.Loss{Random: memlink.Percent / 10}}, memlink.Path{Delay: 2 * ms}, 0},
	} {
		for _, mods := range [][3]string{{"btree", "edt", "bbr"}, {"btree", "edt", "bbr3"}, {"btree", "edt", "cdg"}, {"btree", "none", "cubic"}, {"list", "edt", "reno"}} {
			if c.tso != 0 && mods[2] != "bbr" && mods[2] != "cubic" {
				continue
			}
			t.Run(c.name+"/"+mods[0]+"-"+mods[1]+"-"+mods[2], func(t *testing.T) {
				var sc stack.Config
				for k := range plugins.NumKinds {
					sc.Modules[k].Name = mods[k]
				}
				w, err := NewWorld(WorldConfig{Link: memlink.Config{AtoB: c.path, BtoA: c.back, TSO: c.tso}, A: sc, B: sc, Seed: 3})
				if err != nil {
					t.Fatal(err)
				}
				a, b, err := w.Connect(80)
				if err != nil {
					t.Fatal(err)
				}
				block := make([]byte, 64<<10)
				received := 0
				turn := func() {
					for {
						if n, err := a.TryWrite(block); err != nil || n < len(block) {
							break
						}
					}
					for {
						p := b.Peek()
						if len(p) == 0 {
							break
						}
						received += len(p)
						b.Discard(len(p))
					}
					w.Step(plugins.Never)
				}
				for w.Clock.Now() < Start+8e9 && received < 100e6 { // warm up: windows, rings and pools grow to their size
					turn()
				}
				// One run of many turns, so that a single allocation shows. What the stack does in steady state it does in each of
				// them; Go's runtime may start a thread, which is 7 allocations, in one.
				const turns = 20_000
				var allocs []float64
				for len(allocs) < 3 && !slices.Contains(allocs, 0) {
					before := received
					allocs = append(allocs, testing.AllocsPerRun(1, func() {
						for range turns {
							turn()
						}
					}))
					if packets := (received - before) / 1448; packets < 500 {
						t.Errorf("only %d packets in %d turns", packets, 2*turns)
					}
				}
				if slices.Min(allocs) != 0 {
					t.Errorf("%v allocations per %d turns", allocs, turns)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
