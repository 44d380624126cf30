package e2e

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestWorkers has many flows share two workers: of one queue, by software dispatch, and of two queues, to which the kernel spreads flows
// by a hash of its own. Each flow must stay with one worker.
func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		name string
		link link
	}{
		{"one queue", link{driver: "afpacket", workers: "[[worker]]\nqueue = 0\n[[worker]]\nqueue = -1\n"}},
		{"two queues", link{driver: "afpacket", queues: 2}},
		{"two queues dpdk", link{driver: "dpdk", queues: 2}},
		{"one queue lossy", link{driver: "tap", path: lossy, workers: "[[worker]]\nqueue = 0\n[[worker]]\nqueue = -1\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.link)
			w.ping()
			before := w.nstat()
			seen := w.watchWorkers()
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() { w.download(1 << 20) })
				wg.Go(func() { w.upload(1 << 20) })
			}
			wg.Wait()
			w.short(0)
			used := seen()
			w.proxyHalfClose(1 << 20) // active opens: their replies must come to the worker that opened
			moved := w.nstat().since(before)
			w.mustNotMove("workers", moved, never)
			w.mustNotReset("workers", moved)
			s := w.stat()
			if len(s.Workers) != 2 || used[0] == 0 || used[1] == 0 {
				t.Errorf("%d workers, connections seen at each: %v", len(s.Workers), used)
			}
			// A segment that came to the wrong worker would belong to no connection there; so does one that its sender repeated, if what
			// it repeats has ended the connection.
			counts := ours(s)
			again := counts["tcp_retrans_segs"] + counts["tcp_tlps"] + moved["TcpRetransSegs"] + w.late() + strays
			if counts["tcp_out_rsts"] > again || counts["tcp_no_ports"] > again {
				t.Errorf("the daemon sent %d resets, got %d segments of no connection, and at most %d came once too often or late",
					counts["tcp_out_rsts"], counts["tcp_no_ports"], again)
			}
			over := s.Counters["handed_over"]
			if over == 0 || over > s.Counters["taken_over"] { // which counts copies of ARP frames, too
				t.Errorf("%d frames handed over to the other worker, %d taken over", over, s.Counters["taken_over"])
			}
			t.Logf("connections seen at the workers: %v; frames handed over: %d of %d", used, over, s.Ports[0].RxFrames)
			w.settled()
		})
	}
}

// watchWorkers looks at the daemon's connections again and again. The function that it returns ends that, and returns how many it has
// seen at each worker. No connection may be seen at two.
func (w *world) watchWorkers() (stop func() map[int]int) {
	at := map[netip.AddrPort]int{}
	done, ended := make(chan struct{}), make(chan error, 1)
	look := func() error {
		var r control.SSReply
		if err := w.call(control.OpSS, control.SSRequest{LocalPort: portHTTP}, &r); err != nil {
			return err
		}
		for _, c := range r.Conns {
			if was, ok := at[c.Peer]; ok && was != c.Worker {
				return fmt.Errorf("the connection from %v is at worker %d and at worker %d", c.Peer, was, c.Worker)
			}
			at[c.Peer] = c.Worker
		}
		return nil
	}
	go func() {
		for {
			err := look()
			select {
			case <-done:
				ended <- err
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() map[int]int {
		close(done)
		if err := <-ended; err != nil {
			w.Error(err)
		}
		n := map[int]int{}
		for _, worker := range at {
			n[worker]++
		}
		return n
	}
}
