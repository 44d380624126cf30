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

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
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

// shares lets flows write that start together, and returns what each delivers from shareFrom to shareTo, in Mbit/s.
func shares(t *testing.T, p *path, open dial) []float64 {
	t.Helper()
	var got [shareFlows]*atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i := range got {
		var addr string
		addr, got[i] = p.receive(t)
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
	xs, since := make([]float64, shareFlows), time.Now()
	for i := range got {
		xs[i] = -float64(got[i].Load())
	}
	wg.Wait()
	for i := range got {
		xs[i] = (xs[i] + float64(got[i].Load())) * 8 / time.Since(since).Seconds() / 1e6
	}
	slices.Sort(xs)
	return xs
}

// jain is Jain's index of fairness: 1 if all have the same.
func jain(xs []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range xs {
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (float64(len(xs)) * max(squares, 1e-9))
}

// TestShares prints how ten flows of one kind share a link with a buffer of one BDP after 60 s: the kernel's, and fastpath's. It is no verdict:
// Linux' BBR is at a Jain index of 0.6 to 0.9 here, since what it keeps in flight is more than path and buffer hold, and the lost eighth makes
// some take the link for a policer's.
func TestShares(t *testing.T) {
	if !*full {
		t.Skip("long: make versus runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun: modprobe tun")
	}
	if g := report.MeasureGaps(time.Second); g.LostShare > 0.1 {
		t.Logf("the machine is busy, %.0f %% of the time lost in gaps: fastpath's sums will be low", g.LostShare*100)
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "%d flows, %d Mbit/s, %v, 1 BDP\tsender\tJain\tsum, Mbit/s\tleast … most\n", shareFlows, shareRate/1_000_000, 2*shareDelay)
	for _, cc := range []string{"cubic", "bbr"} {
		if !kernelHas(cc) {
			t.Logf("this kernel has no %s: modprobe tcp_%s", cc, cc)
			continue
		}
		there, back := memlink.Path{Rate: shareRate, Delay: shareDelay, QueueBytes: shareBDP}, memlink.Path{Delay: shareDelay}
		for _, sender := range []string{"kernel", "fastpath"} {
			t.Run(cc+"/"+sender, func(t *testing.T) {
				p := newPath(t, there, back, sender == "kernel")
				open := kernelDial(p, cc)
				if sender == "fastpath" {
					open, _ = fastpathDial(t, p, cc)
				}
				xs := shares(t, p, open)
				sum := 0.0
				for _, x := range xs {
					sum += x
				}
				fmt.Fprintf(w, "%s\t%s\t%.3f\t%.1f\t%.1f … %.1f\n", cc, sender, jain(xs), sum, xs[0], xs[shareFlows-1])
				t.Logf("%.2f", xs)
			})
		}
	}
	w.Flush()
	t.Logf("\n%s", text.String())
}
