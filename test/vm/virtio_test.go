package vm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

const (
	uio = "insert uio uio_pci_generic && bind " + nicAddr + " uio_pci_generic"
	// kernelCard has the guest's kernel drive its card.
	kernelCard = "insert virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net"
	vfio       = "insert irqbypass vfio vfio_iommu_type1 vfio_virqfd vfio-pci-core vfio-pci && bind " + nicAddr + " vfio-pci"
	huge       = "for i in 1 2 3 4 5 6 7 8 9; do echo 1 >/proc/sys/vm/compact_memory; echo 64 >/proc/sys/vm/nr_hugepages; [ $(cat /proc/sys/vm/nr_hugepages) -lt 64 ] || break; sleep 1; done"
)

// TestVirtio serves the client's kernel through each kind of virtio-net card, by one queue pair and by two.
func TestVirtio(t *testing.T) {
	need(t)
	for _, c := range []struct {
		name string
		hardware
		bind string
		rss  bool // the card steers by a hash that it tells; else frames are handed over in software
	}{
		{name: "legacy", hardware: hardware{nic: ",disable-modern=on,disable-legacy=off"}, bind: uio},
		{name: "modern", hardware: hardware{nic: ",disable-legacy=on,rss=on"}, bind: uio, rss: true},
		{name: "packed", hardware: hardware{nic: ",disable-legacy=on,packed=on"}, bind: uio},
		{name: "vfio", hardware: hardware{nic: ",disable-legacy=on", iommu: true}, bind: vfio},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.pairs = 2
			m := boot(t, c.hardware)
			m.run(huge)
			m.run("%s", c.bind)
			if c.iommu {
				m.refused(refusal{name: "permission", user: true, toml: config(nicAddr, 1, "[control]\nsocket = \"/tmp/control.sock\"\n"),
					want: []string{"no access to /dev/vfio/", "chown 1000 /dev/vfio/"}})
				m.refused(refusal{name: "locked memory", user: true, setup: "chown 1000 /dev/vfio/[0-9]* && ulimit -S -l 2048",
					want: []string{"vfio-pci locks the memory", "RLIMIT_MEMLOCK allows this user", "prlimit --pid $$ --memlock=unlimited"}})
			}
			for queues := 1; queues <= c.pairs; queues++ {
				began := time.Now()
				toml := config(nicAddr, queues, "")
				if queues == 1 {
					toml = withProcess.Replace(toml)
				}
				m.start(toml)
				m.ping()
				t.Logf("%d queues: a ping is answered after %.1f s", queues, time.Since(began).Seconds())
				m.serve(queues == 1)
				s := m.healthy()
				if rss := slices.Contains(s.Ports[0].Offloads, "rss"); rss != (c.rss && queues > 1) {
					t.Errorf("offloads %v of a card with %d queues", s.Ports[0].Offloads, queues)
				}
				tso, large := slices.Contains(s.Ports[0].Offloads, "tso"), s.Counters["tcp_large_frames"]
				if packed := strings.Contains(c.nic, "packed=on"); tso == packed || (large > 0) != tso { // see packedChains in pmd/dpdk
					t.Errorf("offloads %v, and %d large frames", s.Ports[0].Offloads, large)
				}
				// A card that does not steer by our hash brings half of the frames to the other worker's queue.
				if handed := s.Counters["handed_over"]; len(s.Workers) != queues || (handed > 100) != (queues > 1 && !c.rss) {
					t.Errorf("%d workers handed over %d frames", len(s.Workers), handed)
				}
				m.stop()
				t.Logf("%d queues: %.1f s, offloads %v", queues, time.Since(began).Seconds(), s.Ports[0].Offloads)
			}
			m.halt()
		})
	}
}

// serve downloads and uploads, with a change of the congestion control meanwhile, and a crash of it before, if it is another process, and
// makes short connections.
func (m *machine) serve(process bool) {
	m.Helper()
	const size = 8 << 20
	var got atomic.Int64
	var transfers sync.WaitGroup
	errs := make(chan error, 2)
	transfers.Go(func() { errs <- prefix("download", get(m.web(true), 3, size, &got)) })
	reach := func(n int64) {
		m.Helper()
		m.eventually(func() error {
			if g := got.Load(); g < n && len(errs) == 0 {
				return fmt.Errorf("%d bytes have arrived", g)
			}
			return nil
		})
	}
	reach(size / 4)
	transfers.Go(func() { errs <- prefix("upload", put(m.web(true), 5, size)) })
	if process {
		m.crash("cdg")
	}
	reach(size / 2)
	var r control.SwapReply
	m.ctl(&r, "swap cong bbr")
	if r.From != "cdg" || r.To != "bbr" || r.Flows < 1 {
		m.Errorf("swap: %+v", r)
	}
	transfers.Wait()
	m.must(errors.Join(<-errs, <-errs))
	m.short(200)
}

func prefix(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// short makes connections for a request each, eight at a time.
func (m *machine) short(n int) {
	m.Helper()
	web := m.web(false)
	var next atomic.Int64
	var clients sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		clients.Go(func() {
			for k := next.Add(1); k <= int64(n) && errs[i] == nil; k = next.Add(1) {
				errs[i] = get(web, uint64(k), 1000+k, nil)
			}
		})
	}
	clients.Wait()
	m.must(errors.Join(errs...))
}
