//go:build dpdk

package dpdk

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
)

var virtioResults = flag.String("virtio", "", "measure virtio rings against testpmd, and write the results to this file (JSON)")

// A ring is a kind of virtio ring, by the virtual device of the end that is measured and of the other one. SOCK stands for the socket.
type ring struct {
	Name      string
	near, far string
	nearFirst bool // it makes the socket
	burst     int  // frames that we offer to the PMD at once
}

var rings = []ring{
	{Name: "driver, split, merged buffers", near: "net_virtio_user0,path=SOCK,mrg_rxbuf=1", far: "net_vhost0,iface=SOCK", burst: 64},
	{Name: "driver, split, single buffers", near: "net_virtio_user0,path=SOCK,mrg_rxbuf=0", far: "net_vhost0,iface=SOCK", burst: 64},
	{Name: "driver, packed, merged buffers", near: "net_virtio_user0,path=SOCK,packed_vq=1,mrg_rxbuf=1", far: "net_vhost0,iface=SOCK", burst: 64},
	{Name: "driver, packed, in order", near: "net_virtio_user0,path=SOCK,packed_vq=1,in_order=1,mrg_rxbuf=0", far: "net_vhost0,iface=SOCK", burst: 64},
	{Name: "device, split", near: "net_vhost0,iface=SOCK", far: "net_virtio_user0,path=SOCK", nearFirst: true, burst: 32},
	{Name: "device, packed", near: "net_vhost0,iface=SOCK", far: "net_virtio_user0,path=SOCK,packed_vq=1", nearFirst: true, burst: 32},
}

// ringResult is what one end of a ring reached, beside what testpmd did in its place. Rates are medians, in frames per second.
type ringResult struct {
	Ring        string  `json:"ring"`
	Direction   string  `json:"direction"` // as the measured end sees it: "tx", "rx"
	FrameBytes  int     `json:"frame_bytes"`
	Testpmd     float64 `json:"testpmd_frames_per_sec"`
	Fastpath    float64 `json:"fastpath_frames_per_sec"`
	FastpathBit float64 `json:"fastpath_bits_per_sec"`
	Ratio       float64 `json:"ratio"` // Fastpath / Testpmd
}

// generator is an end of a ring that sends as fast as it can, or takes what comes.
type generator interface {
	set(tx bool, size int)
	stop()
}

const (
	benchRounds = 3
	benchSettle = 300 * time.Millisecond
	benchWindow = time.Second
)

// TestBenchVirtio compares the driver with testpmd: the same ring, the same other end, which counts, in turn.
func TestBenchVirtio(t *testing.T) {
	if *virtioResults == "" {
		t.Skip("takes minutes: make bench-virtio")
	}
	needRoot(t)
	for _, tool := range []string{"dpdk-testpmd", "stdbuf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	report := struct {
		CPUs    int          `json:"cpus"`
		Load    string       `json:"load_before"` // of the machine, as in /proc/loadavg
		After   string       `json:"load_after"`
		Results []ringResult `json:"results"`
	}{CPUs: runtime.NumCPU(), Load: loadAverage()}
	for _, r := range rings {
		results, err := r.compare(t)
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		report.Results = append(report.Results, results...)
	}
	report.After = loadAverage()
	b, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(*virtioResults, append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ring\tdirection\tbytes\ttestpmd Mframes/s\tfastpath Mframes/s\tfastpath Gbit/s\tratio")
	for _, r := range report.Results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\n", r.Ring, r.Direction, r.FrameBytes, r.Testpmd/1e6, r.Fastpath/1e6, r.FastpathBit/1e9, r.Ratio)
	}
	w.Flush()
	t.Logf("%d processors, load %s before and %s after\n%s", report.CPUs, report.Load, report.After, &text)
}

func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(b))[:1], "")
}

// compare measures a ring in both directions with small and large frames.
func (r *ring) compare(t *testing.T) (results []ringResult, err error) {
	for _, direction := range []string{"tx", "rx"} {
		for _, size := range []int{64, 1514} {
			results = append(results, ringResult{Ring: r.Name, Direction: direction, FrameBytes: size})
		}
	}
	rates := make([][2][]float64, len(results))
	for range benchRounds {
		for who := range 2 {
			if err := r.pair(t, who == 1, func(near generator, far *testpmd) error {
				for i, c := range results {
					near.set(c.Direction == "tx", c.FrameBytes)
					far.set(c.Direction != "tx", c.FrameBytes)
					time.Sleep(benchSettle)
					rate, err := far.rate(c.Direction != "tx")
					if err != nil {
						return err
					}
					rates[i][who] = append(rates[i][who], rate)
				}
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	for i := range results {
		c := &results[i]
		c.Testpmd, c.Fastpath = median(rates[i][0]), median(rates[i][1])
		c.FastpathBit, c.Ratio = c.Fastpath*float64(c.FrameBytes)*8, c.Fastpath/c.Testpmd
	}
	return results, nil
}

// pair makes a ring between testpmd and us, or another testpmd.
func (r *ring) pair(t *testing.T, ours bool, measure func(near generator, far *testpmd) error) error {
	dir, err := os.MkdirTemp("", "fastpath-virtio-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := func(vdev string) string { return strings.ReplaceAll(vdev, "SOCK", filepath.Join(dir, "ring")) }
	var near generator
	startNear := func() error {
		if ours {
			near = newOwnGenerator(open(t, Config{Vdev: at(r.near), Ring: 512}))
			return nil
		}
		near, err = startTestpmd("near", at(r.near), r.burst)
		return err
	}
	if r.nearFirst {
		if err := startNear(); err != nil {
			return err
		}
		defer func() { near.stop() }()
	}
	far, err := startTestpmd("far", at(r.far), r.burst)
	if err != nil {
		return err
	}
	defer far.stop()
	if !r.nearFirst {
		if err := startNear(); err != nil {
			return err
		}
		defer func() { near.stop() }()
	}
	return measure(near, far)
}

// ownGenerator drives a port of ours.
type ownGenerator struct {
	port pmd.Port
	size atomic.Int64 // of frames to send; 0: receive
	end  atomic.Bool
	done chan struct{}
}

func newOwnGenerator(p pmd.Port) *ownGenerator {
	g := &ownGenerator{port: p, done: make(chan struct{})}
	go g.run()
	return g
}

func (g *ownGenerator) set(tx bool, size int) {
	if !tx {
		size = 0
	}
	g.size.Store(int64(size))
}

func (g *ownGenerator) stop() {
	g.end.Store(true)
	<-g.done
	g.port.Close()
}

func (g *ownGenerator) run() {
	defer close(g.done)
	runtime.LockOSThread()
	q := g.port.Queue(0)
	header := [42]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0, 0x45} // what testpmd writes: Ethernet, IPv4, UDP
	var tx, rx [64]*pmd.Buf
	for !g.end.Load() {
		n, size := 0, int(g.size.Load())
		for size > 0 && n < q.TxRoom() {
			b := q.Pool().Get()
			if b == nil {
				break
			}
			b.SetLen(size)
			copy(b.Bytes(), header[:])
			tx[n] = b
			n++
		}
		taken, got := q.Poll(tx[:n], rx[:])
		for _, b := range tx[taken:n] {
			q.Pool().Put(b)
		}
		for _, b := range rx[:got] {
			q.Pool().Put(b)
		}
	}
}

// testpmd is DPDK's own program at an end of a ring.
type testpmd struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func startTestpmd(name, vdev string, burst int) (*testpmd, error) {
	p := &testpmd{lines: make(chan string, 1024)}
	p.cmd = exec.Command("stdbuf", "-oL", "dpdk-testpmd", "--lcores", "0@(0-1),1@(0-1)", "--no-pci", "--no-huge", "-m", "192", "--no-telemetry", "--no-shconf",
		"--file-prefix", "fpbench-"+name, "--vdev", vdev, "--", "-i", "--disable-link-check", "--no-lsc-interrupt", "--total-num-mbufs=4096",
		"--rxd=512", "--txd=512", "--burst="+strconv.Itoa(burst))
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	p.say("show config fwd") // answered when all is set up
	if _, err := p.await("packet forwarding - ports="); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *testpmd) say(command string) { fmt.Fprintln(p.in, command) }

// await reads until a line holds text, and returns it.
func (p *testpmd) await(text string) (string, error) {
	end, tail := time.After(60*time.Second), ""
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				return "", fmt.Errorf("testpmd has ended:\n%s", tail)
			}
			if strings.Contains(l, text) {
				return l, nil
			}
			tail = tail[max(0, len(tail)-1000):] + l + "\n"
		case <-end:
			return "", fmt.Errorf("testpmd does not say %q:\n%s", text, tail)
		}
	}
}

func (p *testpmd) set(tx bool, size int) {
	mode := "rxonly"
	if tx {
		mode = "txonly"
	}
	p.say(fmt.Sprintf("stop\nset fwd %s\nset txpkts %d\nstart", mode, size))
}

var packets = regexp.MustCompile(`[RT]X-packets: (\d+)`)

// rate counts what the port sent or received for a while, in frames per second.
func (p *testpmd) rate(tx bool) (float64, error) {
	word := "RX-packets"
	if tx {
		word = "TX-packets"
	}
	count := func() (n float64, at time.Time, err error) {
		p.say("show port stats 0")
		l, err := p.await(word)
		if err != nil {
			return 0, at, err
		}
		m := packets.FindStringSubmatch(l)
		if m == nil {
			return 0, at, errors.New(l)
		}
		n, err = strconv.ParseFloat(m[1], 64)
		return n, time.Now(), err
	}
	n0, t0, err := count()
	if err != nil {
		return 0, err
	}
	time.Sleep(benchWindow)
	n1, t1, err := count()
	if err != nil {
		return 0, err
	}
	if n1 <= n0 {
		return 0, fmt.Errorf("no frames in %v", t1.Sub(t0))
	}
	return (n1 - n0) / t1.Sub(t0).Seconds(), nil
}

// stop ends the process, and waits for its end.
func (p *testpmd) stop() {
	p.say("stop\nquit")
	p.in.Close()
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.lines { // until it closes its output
	}
	_ = p.cmd.Wait()
}
