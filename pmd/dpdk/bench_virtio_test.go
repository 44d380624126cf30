//go:build dpdk

package dpdk

import (
	"bufio"
	"encoding/json"
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
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/pmd"
)

var virtioResults = flag.String("virtio", "", "measure virtio rings against testpmd, and write the results to this file (JSON)")

// rings are kinds of virtio rings, by the arguments of net_virtio_user.
var rings = []struct{ name, args string }{
	{"split, merged buffers", ",mrg_rxbuf=1"},
	{"split, single buffers", ",mrg_rxbuf=0"},
	{"split, in order", ",mrg_rxbuf=0,in_order=1"},
	{"packed, merged buffers", ",packed_vq=1,mrg_rxbuf=1"},
	{"packed, single buffers", ",packed_vq=1,mrg_rxbuf=0"},
	{"packed, in order", ",packed_vq=1,mrg_rxbuf=0,in_order=1"},
}

// ringResult is what the driver reached on a ring, beside testpmd. Rates are frames that were sent by one end and received by the other, per
// second of processor time; medians.
type ringResult struct {
	Ring        string  `json:"ring"`
	FrameBytes  int     `json:"frame_bytes"` // without the checksum
	Testpmd     float64 `json:"testpmd_frames_per_cpu_sec"`
	Fastpath    float64 `json:"fastpath_frames_per_cpu_sec"`
	FastpathBit float64 `json:"fastpath_bits_per_cpu_sec"`
	Ratio       float64 `json:"ratio"` // Fastpath / Testpmd
}

const (
	benchRounds = 3
	benchSettle = 300 * time.Millisecond
	benchWindow = time.Second
	benchBurst  = 32 // what net_vhost takes at once
)

// TestBenchVirtio compares the driver with testpmd on the same rings. One thread has both ends of a ring, net_vhost and net_virtio_user, and
// sends and receives at each of them in turn, new frames all the time: testpmd by its engine flowgen. So the figures do not depend
// on when the scheduler lets two processes run, and processor time is all that counts.
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
		for _, size := range []int{60, 1514} {
			report.Results = append(report.Results, compareRing(t, r.name, r.args, size))
		}
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
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ring\tbytes\ttestpmd Mframes/s\tfastpath Mframes/s\tfastpath Gbit/s\tratio\t")
	for _, r := range report.Results {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", r.Ring, r.FrameBytes, r.Testpmd/1e6, r.Fastpath/1e6, r.FastpathBit/1e9, r.Ratio)
	}
	w.Flush()
	t.Logf("%d processors, load %s before and %s after; per second of processor time\n%s", report.CPUs, report.Load, report.After, &text)
}

func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(b), " ")
	return load
}

// compareRing measures a ring with frames of a size, in turn.
func compareRing(t *testing.T, name, args string, size int) ringResult {
	t.Helper()
	var theirs, ours []float64
	for range benchRounds {
		theirs = append(theirs, testpmdRing(t, args, size))
		ours = append(ours, ownRing(t, args, size))
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	r := ringResult{Ring: name, FrameBytes: size, Testpmd: median(theirs), Fastpath: median(ours)}
	r.FastpathBit, r.Ratio = r.Fastpath*float64(size)*8, r.Fastpath/r.Testpmd
	return r
}

// ownRing measures the driver.
func ownRing(t *testing.T, args string, size int) float64 {
	t.Helper()
	dir, err := os.MkdirTemp("", "fastpath-virtio-") // t.TempDir has a comma in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	back, err := Open(t.Context(), config(Config{Vdev: "net_vhost0,iface=" + dir + "/ring", Ring: 512, Buffers: 4096}))
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	front, err := Open(t.Context(), config(Config{Vdev: "net_virtio_user0,path=" + dir + "/ring" + args, Ring: 512, Buffers: 4096}))
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	until(t, back.LinkUp)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	qs := [2]pmd.Queue{back.Queue(0), front.Queue(0)}
	for _, q := range qs {
		q.Pool().Track(false) // as tests do
	}
	spinRing(qs, size, benchSettle)
	cpu := threadTime()
	n := spinRing(qs, size, benchWindow)
	return float64(n) / (threadTime() - cpu).Seconds()
}

// spinRing sends and receives at both ends for a while, and returns how many frames were received.
func spinRing(qs [2]pmd.Queue, size int, during time.Duration) (received int) {
	header := [42]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0, 0x45} // as many bytes as flowgen writes: Ethernet, IPv4, UDP
	var tx, rx [benchBurst]*pmd.Buf
	for end := time.Now().Add(during); time.Now().Before(end); {
		for range 100 {
			for _, q := range qs {
				n := 0
				for n < min(q.TxRoom(), benchBurst) {
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
				received += got
			}
		}
	}
	return received
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// testpmdRing measures testpmd.
func testpmdRing(t *testing.T, args string, size int) float64 {
	t.Helper()
	dir, err := os.MkdirTemp("", "fastpath-virtio-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p := startTestpmd(t, "net_vhost0,iface="+dir+"/ring")
	defer p.stop()
	p.say("port attach net_virtio_user0,path=" + dir + "/ring" + args) // the device's socket is there now
	p.await("is attached")
	p.say(fmt.Sprintf("port start all\nset portlist 0,1\nset fwd flowgen\nset txpkts %d\nstart", size+4)) // it counts the checksum
	p.await("packet forwarding - ports=2")
	time.Sleep(benchSettle)
	frames, cpu := p.received(), p.workerTime()
	time.Sleep(benchWindow)
	return float64(p.received()-frames) / (p.workerTime() - cpu).Seconds()
}

// testpmd is DPDK's own program.
type testpmd struct {
	*testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func startTestpmd(t *testing.T, vdev string) *testpmd {
	t.Helper()
	p := &testpmd{T: t, lines: make(chan string, 1024)}
	p.cmd = exec.Command("stdbuf", "-oL", "dpdk-testpmd", "--lcores", "0@(0-1),1@(0-1)", "--no-pci", "--no-huge", "-m", "192", "--no-telemetry", "--no-shconf",
		"--file-prefix", "fpbench", "--vdev", vdev, "--", "-i", "--disable-link-check", "--no-lsc-interrupt", "--total-num-mbufs=8192",
		"--rxd=512", "--txd=512", "--burst="+strconv.Itoa(benchBurst))
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	p.say("show config fwd") // is answered when all is set up
	p.await("packet forwarding - ports=")
	return p
}

func (p *testpmd) say(command string) { fmt.Fprintln(p.in, command) }

// await reads until a line holds text, and returns it.
func (p *testpmd) await(text string) string {
	p.Helper()
	end, tail := time.After(60*time.Second), ""
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				p.Fatalf("testpmd has ended:\n%s", tail)
			}
			if strings.Contains(l, text) {
				return l
			}
			tail = tail[max(0, len(tail)-1000):] + l + "\n"
		case <-end:
			p.Fatalf("testpmd does not say %q:\n%s", text, tail)
		}
	}
}

var rxPackets = regexp.MustCompile(`RX-packets: (\d+)`)

// received is the number of frames that both ports have received so far.
func (p *testpmd) received() (n int64) {
	p.Helper()
	p.say("show port stats all")
	for range 2 {
		m := rxPackets.FindStringSubmatch(p.await("RX-packets:"))
		k, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			p.Fatal(err)
		}
		n += k
	}
	return n
}

// workerTime is the processor time of the thread that forwards.
func (p *testpmd) workerTime() time.Duration {
	p.Helper()
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", p.cmd.Process.Pid))
	for _, name := range names {
		if comm, err := os.ReadFile(name); err != nil || !strings.Contains(string(comm), "worker-1") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(name), "schedstat")) // nanoseconds on a processor, …
		if err != nil {
			p.Fatal(err)
		}
		ran, _, _ := strings.Cut(string(b), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			p.Fatal(err)
		}
		return time.Duration(ns)
	}
	p.Fatalf("no thread of testpmd forwards")
	return 0
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
