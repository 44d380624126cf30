package versus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// Ten flows with a BDP of 33 segments each, as in TestCongFairness of test/sim, at half the rate, so that both senders keep up.
const (
	shareFlows = 10
	shareRate  = 50_000_000
	shareDelay = 40 * time.Millisecond // one way
	shareBDP   = shareRate / 8 / 25 * 2
	shareFrom  = 60 * time.Second
	shareTo    = 90 * time.Second
)

// shares lets flows write that start together, and returns what each delivers from shareFrom to shareTo, in Mbit/s, and for what share of
// the time the machine let the test wait.
func shares(t *testing.T, p *Path, open dial) (xs []float64, late float64) {
	t.Helper()
	lateness := watchLateness()
	var got [shareFlows]*atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i := range got {
		var addr string
		addr, got[i] = p.Receive(t)
		c, err := open(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetWriteDeadline(start.Add(shareTo)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := io.Copy(c, endless{}); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a transfer ended: %v", err)
			}
		})
	}
	time.Sleep(time.Until(start.Add(shareFrom)))
	xs = make([]float64, shareFlows)
	since := time.Now()
	for i := range got {
		xs[i] = -float64(got[i].Load())
	}
	wg.Wait()
	for i := range got {
		xs[i] = (xs[i] + float64(got[i].Load())) * 8 / time.Since(since).Seconds() / 1e6
	}
	slices.Sort(xs)
	return xs, lateness()
}

// jain is Jain's index of fairness: 1 if all have the same.
func jain(xs []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (float64(len(xs)) * max(squares, 1e-9))
}

// TestShares prints how ten flows of one kind share a link with a buffer of one BDP after 60 s: the kernel's, and fastpath's. Fastpath's deliver
// together nine tenths of what the kernel's do, and cubic's share as evenly as the kernel's or at 0.9. How BBR's share is no verdict:
// Linux' is at a Jain index of 0.6 to 0.9 here, since what it keeps in flight is more than path and buffer hold, and the lost eighth makes
// some take the link for a policer's.
func TestShares(t *testing.T) {
	if !*full {
		t.Skip("long: make versus runs it")
	}
	need(t)
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "%d flows, %d Mbit/s, %v, 1 BDP\tsender\tJain\tsum, Mbit/s\tleast … most\tmachine late\n", shareFlows, shareRate/1_000_000, 2*shareDelay)
	for _, cc := range []string{"cubic", "bbr"} {
		if !kernelHas(cc) {
			t.Logf("this kernel has no %s: modprobe tcp_%s", cc, cc)
			continue
		}
		there, back := memlink.Path{Rate: shareRate, Delay: shareDelay, QueueBytes: shareBDP}, memlink.Path{Delay: shareDelay}
		sums, indices := map[string]float64{}, map[string]float64{}
		Judge(t, "ten flows of "+cc, func() (good, hopeless bool, late float64) {
			for _, sender := range []string{"kernel", "fastpath"} {
				if sender == "kernel" && sums[sender] != 0 {
					continue // nothing depends on its share of the processor
				}
				t.Run(cc+"/"+sender, func(t *testing.T) {
					p := NewPath(t, there, back, Near{Kernel: sender == "kernel"})
					open := kernelDial(p, cc)
					if sender == "fastpath" {
						open, _ = fastpathDial(t, p, cc)
					}
					var xs []float64
					xs, late = shares(t, p, open)
					sums[sender], indices[sender] = 0, jain(xs)
					for _, x := range xs {
						sums[sender] += x
					}
					fmt.Fprintf(w, "%s\t%s\t%.3f\t%.1f\t%.1f … %.1f\t%.1f %%\n", cc, sender, indices[sender], sums[sender], xs[0], xs[shareFlows-1], late*100)
					t.Logf("%.2f", xs)
				})
			}
			even := cc != "cubic" || indices["fastpath"] >= min(indices["kernel"], 0.9)
			return sums["fastpath"] >= 0.9*sums["kernel"] && even, sums["fastpath"] < sums["kernel"]/5, late
		})
	}
	w.Flush()
	t.Logf("\n%s", text.String())
}
