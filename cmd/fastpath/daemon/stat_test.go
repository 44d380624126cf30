package daemon

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// Counters, gauges, ports, workers and memory, over the control socket and as metrics.
func TestStat(t *testing.T) {
	d := start(t, withoutProcesses+`
[metrics]
listen = "127.0.0.1:0"
[[worker]]
port = "a"
[[worker]]
port = "a"
queue = -1
[[worker]]
port = "b"
`)
	const size = 8 << 20
	if n, sum := get(t, d.client(), "http://10.9.0.1/blob?size=8MiB&seed=9", size/2, func() {}); n != size || sum != apps.ContentSHA256(9, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	s := call[control.StatReply](d, control.OpStat, nil)
	if s.Counters["tcp_bytes_out"] < size || s.Counters["tcp_passive_opens"] < 1 || s.Counters["arp_requests"] < 1 || s.Gauges["arp_entries"] < 2 {
		t.Errorf("counters %v, gauges %v", s.Counters, s.Gauges)
	}
	if _, ok := s.Counters["drop_tcp_checksum"]; !ok {
		t.Error("no counters of dropped frames")
	}
	if s.Memory.Level != "normal" || s.Memory.ByUseBytes["packet_buffers"] < 2*8192*2048 || s.Memory.HighBytes != 512<<20 || s.Go.HeapBytes == 0 ||
		s.Go.HeapLimitBytes != 256<<20 {
		t.Errorf("memory %+v, go %+v", s.Memory, s.Go)
	}
	if len(s.Ports) != 2 || s.Ports[0].TxBytes < size || !s.Ports[0].LinkUp || s.Ports[0].MAC != "02:00:00:00:00:0a" || s.Ports[0].PoolBuffers != 8192 {
		t.Errorf("ports %+v", s.Ports)
	}
	if len(s.Workers) != 3 || s.Workers[1].Queue != -1 || s.Workers[2].Worker != 2 || s.Workers[2].Port != "b" {
		t.Errorf("workers %+v", s.Workers)
	}
	if w := s.Workers[2]; w.Turn.Count == 0 || w.Turn.P50NS == 0 || w.Turn.MaxNS < w.Turn.P50NS/2 || w.BusyNS == 0 {
		t.Errorf("turns of worker 2: %+v", w)
	}
	resp, err := http.Get("http://" + d.metrics.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %s, %v\n%s", resp.Status, err, text)
	}
	for _, want := range []string{
		"fastpath_tcp_bytes_out_total 8.", `fastpath_port_link_up{port="a"} 1`, `fastpath_worker_turn_seconds_count{port="b",worker="2"}`,
		`fastpath_memory_limit_bytes{limit="high"} 5.36870912e+08`, `fastpath_module_flows{kind="cong",module="bbr",role="module"}`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s in the metrics:\n%s", want, text)
		}
	}
}

// A spinning worker beside an adaptive one serves as well, and Go keeps a processor for everything else.
func TestSpin(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	core := 0
	for !set.IsSet(core) {
		core++
	}
	if set.Count() < 2 {
		t.Skip("needs two processors: one spins")
	}
	d := start(t, withoutProcesses+fmt.Sprintf("[[worker]]\nport = \"a\"\npoll = \"spin\"\ncore = %d\n[[worker]]\nport = \"b\"\n", core))
	if n := runtime.GOMAXPROCS(0); n < 3 {
		t.Errorf("GOMAXPROCS is %d with two polling goroutines", n)
	}
	const size = 8 << 20
	if n, sum := get(t, d.client(), "http://10.9.0.1/blob?size=8MiB&seed=9", size/2, func() {}); n != size || sum != apps.ContentSHA256(9, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	s := call[control.StatReply](d, control.OpStat, nil)
	if w := s.Workers[0]; w.Poll != "spin" || w.Core != core || w.Parks != 0 || s.Workers[1].Poll != "adaptive" || s.Workers[1].Core != -1 {
		t.Errorf("workers %+v", s.Workers)
	}
}

// More memory in use makes an event, and so does less.
func TestMemoryEvents(t *testing.T) {
	d := start(t, withoutProcesses)
	d.budget.Add(400 << 20)
	d.event(control.EventMemory, "pressure, was normal")
	if s := call[control.StatReply](d, control.OpStat, nil); s.Memory.Level != "pressure" || s.Memory.Pressures != 1 {
		t.Errorf("%+v", s.Memory)
	}
	d.budget.Sub(400 << 20)
	d.event(control.EventMemory, "normal, was pressure")
}
