package e2e

import (
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
)

var swaps = flag.Int("swaps", 50, "of TestSilenceOfSwaps")

// TestSilenceOfSwaps swaps modules of all kinds between processes that stand by, while the kernel reads from several connections: nothing
// is sent again because of it, and how long a connection is silent around a swap is shown beside how long it is without one.
func TestSilenceOfSwaps(t *testing.T) {
	process := func(kind, name string) string {
		return fmt.Sprintf("[[module]]\nkind = %q\nname = %q\nplacement = \"process\"\n", kind, name)
	}
	w := newWorld(t, link{driver: "afpacket", httpKeys: `rate = "80Mbit/s"`, modules: process("cong", "cdg") + process("cong", "cubic") +
		process("rtx", "list") + process("pace", "none")})
	w.module("cong", "cdg", control.ModuleStandby)
	const conns, window = 3, 20 * time.Millisecond
	readers := make([]*reader, conns)
	var wg sync.WaitGroup
	for i := range readers {
		c, err := w.dial(portHTTP)
		w.must(err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "GET /blob?size=64GiB HTTP/1.1\r\nHost: x\r\n\r\n")
		w.must(err)
		readers[i] = &reader{}
		wg.Go(func() { readers[i].run(c) })
	}
	time.Sleep(time.Second) // slow start
	gaps := report.MeasureGaps(500 * time.Millisecond)
	before := w.stat().Counters
	cycle := []control.SwapRequest{{Kind: "cong", Name: "cdg"}, {Kind: "rtx", Name: "list"}, {Kind: "pace", Name: "none"}, {Kind: "cong", Name: "cubic"},
		{Kind: "rtx", Name: "btree"}, {Kind: "pace", Name: "edt"}, {Kind: "cong", Name: "bbr"}}
	var with, without, first []time.Duration
	for i := range *swaps {
		from := time.Now()
		time.Sleep(window)
		var at time.Time
		var r control.SwapReply
		w.eventually(10*time.Second, func() error { // what the machine lets wait for too long is late, and refused
			at = time.Now()
			return w.call(control.OpSwap, cycle[i%len(cycle)], &r)
		})
		if r.Flows != conns {
			t.Errorf("swap %d to %s %s moves %d flows", i, r.Kind, r.To, r.Flows)
		}
		first = append(first, time.Duration(r.GapNS))
		time.Sleep(window - min(time.Since(at), window-time.Millisecond))
		for _, rd := range readers {
			without = append(without, rd.silence(from, from.Add(window)))
			with = append(with, rd.silence(at, at.Add(window)))
		}
	}
	after := w.stat().Counters
	for _, r := range readers {
		r.stop()
	}
	wg.Wait()
	show := func(what string, d []time.Duration) (p50, p99, worst time.Duration) {
		slices.Sort(d)
		p50, p99, worst = d[len(d)/2], d[len(d)*99/100], d[len(d)-1]
		t.Logf("%-40s p50 %v, p99 %v, worst %v", what, p50, p99, worst)
		return p50, p99, worst
	}
	t.Logf("%d swaps, %d connections; gaps of the machine over 10 µs: %.1f %% of the time, longest %v", *swaps, conns, 100*gaps.LostShare, time.Duration(gaps.MaxNS))
	a50, a99, aw := show("silence within 20 ms without a swap", without)
	b50, b99, bw := show("silence within 20 ms from a swap", with)
	show("a module's first answer after a swap", first)
	t.Logf("added silence: p50 %v, p99 %v, worst %v", max(b50-a50, 0), max(b99-a99, 0), max(bw-aw, 0))
	since := func(name string) uint64 { return after[name] - before[name] }
	resent, sent := since("tcp_retrans_segs"), since("tcp_segs_out")
	t.Logf("sent again: %d of %d segments; tail loss probes %d, timeouts %d", resent, sent, since("tcp_tlps"), since("tcp_rtos"))
	// A probe or a timeout is what a standstill of the machine causes; anything else would be a module that took a flow over wrongly.
	if excused := since("tcp_tlps") + since("tcp_rtos"); sent == 0 || resent > excused {
		t.Errorf("%d of %d segments were sent again on a path that loses none", resent, sent)
	}
}

// reader notes when bytes arrive.
type reader struct {
	mu    sync.Mutex
	times []time.Time
	ended bool
}

func (r *reader) run(c net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		r.mu.Lock()
		if n > 0 {
			r.times = append(r.times, time.Now())
		}
		ended := r.ended
		r.mu.Unlock()
		if err == io.EOF || err != nil || ended {
			return
		}
	}
}

func (r *reader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// silence is the longest time between arrivals that begins, or has begun, between from and to.
func (r *reader) silence(from, to time.Time) (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := from
	for _, t := range r.times {
		if t.Before(from) {
			continue
		}
		longest = max(longest, t.Sub(last))
		if last = t; t.After(to) {
			return longest
		}
	}
	return max(longest, time.Since(last))
}
