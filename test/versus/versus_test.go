package versus

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

var full = flag.Bool("full", false, "compare on all paths, for their real time")

const (
	rate     = 20_000_000
	delay    = 20 * time.Millisecond // one way
	bdp      = rate / 8 / 25
	duration = 10 * time.Second
)

func need(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun: modprobe tun")
	}
}

// TestJudge: a fault is found on a quiet machine, and on a busy one if nothing works; a disturbance is none.
func TestJudge(t *testing.T) {
	type run struct {
		good, hopeless bool
		late           float64
	}
	for name, c := range map[string]struct {
		runs []run
		want bool // it fails
	}{
		"good":                     {[]run{{true, false, 0}}, false},
		"disturbed once":           {[]run{{false, false, 0}, {true, false, 0}}, false},
		"bad":                      {[]run{{false, false, 0}, {false, false, 0}, {false, false, 0}}, true},
		"bad, quiet once":          {[]run{{false, false, 0.3}, {false, true, 0.01}, {false, false, 0.3}}, true},
		"bad, never quiet":         {[]run{{false, false, 0.3}, {false, true, 0.4}, {false, false, 0.3}}, false},
		"hopeless, never quiet":    {[]run{{false, true, 0.3}, {false, true, 0.4}, {false, true, 0.3}}, true},
		"good again, never quiet":  {[]run{{false, true, 0.3}, {true, false, 0.4}}, false},
		"good at last, quiet once": {[]run{{false, true, 0}, {false, false, 0}, {true, false, 0}}, false},
	} {
		failed := &recorder{TB: t}
		i := 0
		Judge(failed, name, func() (bool, bool, float64) {
			r := c.runs[i]
			i++
			return r.good, r.hopeless, r.late
		})
		if failed.errors != 0 != c.want || i != len(c.runs) {
			t.Errorf("%s: %d errors after %d of %d runs", name, failed.errors, i, len(c.runs))
		}
	}
}

// recorder counts errors instead of failing.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }

// TestVersusKernel prints a table of goodput and of what was sent again by either. On each path fastpath has at least two thirds of the
// kernel's goodput, and sends at most twice the share again, or 3 % more. Without -full a second of each shows that both work.
func TestVersusKernel(t *testing.T) {
	need(t)
	paths := []struct {
		name  string
		queue int
		loss  memlink.PPB
	}{{"1 BDP", bdp, 0}, {"0.2 BDP", bdp / 5, 0}, {"10 BDP", 10 * bdp, 0}, {"1 BDP, 0.1 % lost", bdp, memlink.Percent / 10}, {"1 BDP, 1 % lost", bdp, memlink.Percent}}
	d := duration
	if !*full {
		paths, d = paths[:1], time.Second
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "%d Mbit/s, %v, queue\tcong\tMbit/s: kernel\tfastpath\tratio\tsent again: kernel\tfastpath\tmachine late\n", rate/1_000_000, 2*delay)
	for _, cc := range []string{"cubic", "bbr"} {
		if !kernelHas(cc) {
			t.Logf("this kernel has no %s: modprobe tcp_%s", cc, cc)
			continue
		}
		for _, p := range paths {
			there := memlink.Path{Rate: rate, Delay: delay, QueueBytes: p.queue, Loss: memlink.Loss{Random: p.loss}}
			back := memlink.Path{Delay: delay}
			Judge(t, p.name+", "+cc, func() (good, hopeless bool, late float64) {
				var k, f Result
				t.Run(cc+"/"+p.name+"/kernel", func(t *testing.T) { k = byKernel(t, there, back, cc, d) })
				t.Run(cc+"/"+p.name+"/fastpath", func(t *testing.T) { f = ByFastpath(t, there, back, cc, d) })
				late = max(k.Late, f.Late)
				fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f %%\t%.2f %%\t%.1f %%\n", p.name, cc, k.Goodput, f.Goodput, f.Goodput/k.Goodput, k.Again, f.Again, late*100)
				hopeless = k.Goodput == 0 || f.Goodput < k.Goodput/5
				if !*full {
					return k.Goodput > 0 && f.Goodput > 0, hopeless, late
				}
				return AsGood(k, f), hopeless, late
			})
		}
	}
	w.Flush()
	t.Logf("\n%s", text.String())
}
