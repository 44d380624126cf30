package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// pair is a daemon with two ports that are joined in memory: applications listen on a, the tests' clients use b.
const pair = `
[[port]]
name = "a"
driver = "memlink"
peer = "b"
mac = "02:00:00:00:00:0a"
addresses = ["10.9.0.1/24"]
[[port]]
name = "b"
driver = "memlink"
peer = "a"
mac = "02:00:00:00:00:0b"
addresses = ["10.9.0.2/24"]
[[app]]
name = "web"
kind = "http"
listen = "10.9.0.1:80"
size = "32MiB"
seed = 3
rate = "400Mbit/s"
upload = true
[[app]]
name = "echo"
kind = "echo"
listen = "0.0.0.0:7"
[[app]]
name = "datagrams"
kind = "udp-echo"
listen = "0.0.0.0:7"
[[app]]
name = "forever"
kind = "source"
listen = "10.9.0.1:19"
rate = "10Mbit/s"
[[app]]
name = "proxy"
kind = "proxy"
listen = "10.9.0.2:8080"
backend = "10.9.0.1:80"
via = "fastpath"
[modules.cong]
restart_min = "10ms"
late = "5s" # a busy machine is no failure of these tests
dead = "20s"
[modules.rtx]
restart_min = "10ms"
late = "5s"
dead = "20s"
[modules.pace]
restart_min = "10ms"
late = "5s"
dead = "20s"
[[module]]
kind = "cong"
name = "cdg"
placement = "process"
`

const builtins = `
[modules.rtx]
placement = "builtin"
[modules.pace]
placement = "builtin"
[modules.cong]
placement = "builtin"
`

// withoutProcesses is pair with all modules linked in.
var withoutProcesses = pair[:strings.Index(pair, "[modules.cong]")] + builtins

// dialer makes connections over port b.
func (d *testDaemon) dialer() *sock.Dialer { return &sock.Dialer{Stack: d.ports[1].stack} }

func (d *testDaemon) client() *http.Client {
	tr := &http.Transport{DialContext: d.dialer().DialContext}
	d.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 12 * time.Second}
}

func (d *testDaemon) dial(addr string) net.Conn {
	d.t.Helper()
	c, err := d.dialer().DialContext(d.t.Context(), "tcp", addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// get downloads url and returns how much and which content it was. at is called when half of it is there.
func get(t *testing.T, c *http.Client, url string, half int64, at func()) (n int64, sum string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := sha256.New()
	first, err := io.CopyN(h, resp.Body, half)
	if err != nil {
		t.Fatal(err)
	}
	at()
	rest, err := io.Copy(h, resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return first + rest, hex.EncodeToString(h.Sum(nil))
}

// A swap, the death of the module process in use, and its return, in the middle of a download.
func TestTransfer(t *testing.T) {
	d := start(t, pair)
	const size = 32 << 20
	n, sum := get(t, d.client(), "http://10.9.0.1/", size/2, func() {
		var flow *control.Conn
		r := call[control.SSReply](d, control.OpSS, control.SSRequest{LocalPort: 80})
		for i := range r.Conns {
			if r.Conns[i].Local.Port() == 80 {
				flow = &r.Conns[i]
			}
		}
		if flow == nil || flow.State != control.StateEstablished || flow.Cong != "bbr" || flow.SentBytes < size/4 || flow.CwndBytes == 0 ||
			flow.SRTTNS == 0 || len(flow.CongInfo) < 3 || flow.Peer.Addr() != netip.MustParseAddr("10.9.0.2") {
			t.Errorf("ss during the transfer: %+v", r.Conns)
		}
		s := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "cdg"})
		if s.From != "bbr" || s.To != "cdg" || s.Flows != 2 || s.Workers != 2 || s.GapNS <= 0 || s.TookNS <= 0 {
			t.Errorf("swap: %+v", s)
		}
		m := d.module("cong", "cdg")
		if m.State != control.ModuleActive || m.Flows != 2 || m.Resumes != 2 || m.PID == 0 || len(m.SHA256) != 64 || m.Placement != "process" || m.Path != "" {
			t.Errorf("the module in use: %+v", m)
		}
		if err := unix.Kill(m.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := d.event(control.EventDead, "cong/cdg"); e.Fields["pid"] != fmt.Sprint(m.PID) {
			t.Errorf("event: %+v", e)
		}
		d.event(control.EventFallback, "with cdg")
		d.event(control.EventReturn, "cong/cdg serves 2 flows again")
		back := d.module("cong", "cdg")
		if back.State != control.ModuleActive || back.Restarts != 1 || back.PID == m.PID || back.Flows != 2 {
			t.Errorf("after the restart: %+v", back)
		}
	})
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	d.event(control.EventSwap, "cong/cdg serves 2 flows, was bbr")
	d.event(control.EventRestart, "cong/cdg")
}

// By default the modules of all kinds are in one process. One that is swapped for another leaves it, and comes back. When the process is
// killed in the middle of a download, all of them fall back and return with their flows.
func TestCommonProcess(t *testing.T) {
	d := start(t, pair)
	client := d.client()
	names := map[string]string{"rtx": "btree", "pace": "edt", "cong": "bbr"}
	common := func(restarts int) (pid int) { // the process that all three are in after so many restarts
		t.Helper()
		why := ""
		if !eventually(10*time.Second, func() bool {
			pid, why = 0, ""
			for kind, name := range names {
				m := d.module(kind, name)
				if m.State != control.ModuleActive && m.State != control.ModuleStandby || m.Restarts != restarts || m.PID == 0 || pid != 0 && m.PID != pid {
					why += fmt.Sprintf("%s is %s in process %d after %d restarts. ", name, m.State, m.PID, m.Restarts)
				}
				pid = m.PID
			}
			return why == ""
		}) {
			t.Fatal(why)
		}
		return pid
	}
	swap := func(name string) {
		t.Helper()
		if s := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: name}); s.Flows != 2 {
			t.Errorf("swap to %s: %+v", name, s)
		}
	}
	deaths := 0
	kill := func() {
		t.Helper()
		if err := unix.Kill(common(deaths), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		deaths++
		common(deaths)
	}
	const size = 32 << 20
	n, sum := get(t, client, "http://10.9.0.1/", size/2, func() {
		first := common(0)
		swap("cdg")
		if m := d.module("cong", "cdg"); m.PID == first || m.Flows != 2 {
			t.Errorf("%+v", m)
		}
		kill()
		swap("bbr")
	})
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	n, sum = get(t, client, "http://10.9.0.1/", size/2, kill) // with all three in use
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("after the second death: %d bytes with hash %s", n, sum)
	}
	for kind, name := range names {
		if m := d.module(kind, name); m.State != control.ModuleActive || m.Resumes < 2 {
			t.Errorf("%+v", m)
		}
		d.event(control.EventFallback, kind+"/")
		d.event(control.EventReturn, kind+"/"+name+" serves 2 flows again")
	}
}

// Any built-in module can be swapped to, for all kinds; what cannot be found is refused, and the old one stays.
func TestSwap(t *testing.T) {
	d := start(t, pair)
	c := d.dial("10.9.0.1:7")
	check := func() {
		t.Helper()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
			t.Fatalf("echo: %q, %v", b, err)
		}
	}
	check()
	for _, s := range []struct{ kind, name, placement string }{
		{"cong", "cubic", "process"}, {"cong", "reno", "process"}, {"cong", "bbr", "process"}, {"rtx", "list", "process"}, {"rtx", "btree", "process"},
		{"pace", "none", "process"}, {"pace", "edt", "process"},
	} {
		r := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: s.kind, Name: s.name})
		if r.Flows != 2 {
			t.Errorf("swap to %s: %+v", s.name, r)
		}
		check()
		if m := d.module(s.kind, s.name); m.Placement != s.placement || m.State != control.ModuleActive || m.Flows != 2 {
			t.Errorf("after the swap to %s: %+v", s.name, m)
		}
	}
	_, err := try[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "nosuch"})
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.CodeRefused || !strings.Contains(refused.Message, "nosuch") {
		t.Errorf("swap to a module that does not exist: %v", err)
	}
	if m := d.module("cong", "bbr"); m.State != control.ModuleActive || m.Flows != 2 {
		t.Errorf("after a refused swap: %+v", m)
	}
	check()
}

func TestUploadAndProxy(t *testing.T) {
	d := start(t, withoutProcesses)
	data := make([]byte, 4<<20)
	if _, err := io.ReadFull(apps.ContentReader(5, int64(len(data))), data); err != nil {
		t.Fatal(err)
	}
	// Straight, and from the kernel's side of nothing: the proxy on b reaches a over fastpath. A port does not reach itself, so its
	// client is on a.
	direct := d.client()
	tr := &http.Transport{DialContext: (&sock.Dialer{Stack: d.ports[0].stack}).DialContext}
	defer tr.CloseIdleConnections()
	proxied := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	for url, c := range map[string]*http.Client{"http://10.9.0.1/upload": direct, "http://10.9.0.2:8080/upload": proxied} {
		resp, err := c.Post(url, "application/octet-stream", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var u apps.Uploaded
		if err := json.NewDecoder(resp.Body).Decode(&u); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if u.Bytes != int64(len(data)) || u.SHA256 != apps.ContentSHA256(5, int64(len(data))) {
			t.Errorf("%s: %+v", url, u)
		}
	}
}

// An application on 0.0.0.0 listens on every port.
func TestListenEverywhere(t *testing.T) {
	d := start(t, strings.Replace(withoutProcesses, `["10.9.0.1/24"]`, `["10.9.0.1/24", "10.9.0.5/24"]`, 1))
	for i, addr := range []string{"10.9.0.2:7", "10.9.0.1:7"} {
		c, err := (&sock.Dialer{Stack: d.ports[i].stack}).Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(i) {
			t.Errorf("%s: %v, %v", addr, b, err)
		}
	}
	for i, addr := range []string{"10.9.0.2:7", "10.9.0.1:7", "10.9.0.5:7"} { // datagrams too; these sockets take answers from there only
		c, err := (&sock.Dialer{Stack: d.ports[min(i, 1)].stack}).Dial("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 10)
		if _, err := c.Write([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || string(b[:n]) != "datagram" {
			t.Errorf("%s: %q, %v", addr, b[:n], err)
		}
	}
	n := 0
	for _, c := range call[control.SSReply](d, control.OpSS, control.SSRequest{States: []string{control.StateListen}}).Conns {
		if c.Local.Port() == 7 {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d listeners on port 7", n)
	}
}

// A module that is linked in and in use is listed once; one from outside shows the parameters that it documents itself.
func TestModulesList(t *testing.T) {
	d := start(t, withoutProcesses)
	seen := map[string]int{}
	for _, m := range call[control.ModulesReply](d, control.OpModules, nil).Modules {
		seen[m.Kind+"/"+m.Name]++
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	if len(seen) < 3 {
		t.Errorf("modules %v", seen)
	}
	m := d.Daemon.module(&host.Status{
		Kind: plugins.Cong, Name: "third", Placement: host.Process, State: "restarting", Trouble: "killed", RestartIn: 3 * time.Second,
		Params: []plugins.Param{{Name: "alpha", Type: "int", Default: "7", Doc: "what it is"}},
	}, "cubic")
	if len(m.Params) != 1 || m.Params[0].Value != "7" || m.Params[0].Doc != "what it is" || m.NextRestartInNS != int64(3*time.Second) || m.State != control.ModuleDead {
		t.Errorf("%+v", m)
	}
}

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

// Hundreds of connections later, open and closed, a stopped daemon leaves no goroutine behind.
func TestNothingLeft(t *testing.T) {
	d := start(t, pair) // the first one also starts what the process keeps
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	d = start(t, pair)
	for range 200 {
		c, err := d.dialer().Dial("tcp", "10.9.0.1:7")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for range 300 { // more than fit into a worker's queue of frames at once
		d.dial("10.9.0.1:7")
	}
	d.conf.Shutdown.Drain = 0
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if !eventually(3*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, before it were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
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

func TestCapture(t *testing.T) {
	d := start(t, withoutProcesses)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := control.Dial(ctx, d.conf.Control.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src := d.dial("10.9.0.1:19")
	go io.Copy(io.Discard, src) //nolint:errcheck // ends with the connection
	var frames []control.Frame
	var sum control.CaptureSummary
	err = c.Stream(ctx, control.OpCapture, control.CaptureRequest{Port: "a", Filter: "tcp and src port 19", Count: 20, SnapLen: 60}, func(item json.RawMessage) error {
		var f control.Frame
		if err := json.Unmarshal(item, &f); err != nil {
			return err
		}
		frames = append(frames, f)
		return nil
	}, &sum)
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != 20 || sum.Captured != 20 || sum.Seen <= 20 {
		t.Fatalf("%d frames, %+v", len(frames), sum)
	}
	now := time.Now().UnixNano()
	for i, f := range frames {
		if f.Dir != control.DirOut || f.Port != "a" || len(f.Data) > 60 || f.LengthBytes < len(f.Data) || f.TimeUnixNS > now || f.TimeUnixNS < now-int64(time.Minute) ||
			i > 0 && f.TimeUnixNS < frames[i-1].TimeUnixNS {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
	d.secondCapture()
	if _, err := try[control.CaptureSummary](d, control.OpCapture, control.CaptureRequest{Port: "nosuch"}); err == nil || !strings.Contains(err.Error(), `no port "nosuch"`) {
		t.Errorf("capture on a port that does not exist: %v", err)
	}
}

// secondCapture tries to capture while a capture runs, which goes on until its client ends it.
func (d *testDaemon) secondCapture() {
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer cancel()
	c, err := control.Dial(ctx, d.conf.Control.Socket)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	tried := false
	var sum control.CaptureSummary
	err = c.Stream(ctx, control.OpCapture, control.CaptureRequest{}, func(json.RawMessage) error {
		if !tried {
			tried = true
			_, err := try[control.CaptureSummary](d, control.OpCapture, control.CaptureRequest{Port: "a"})
			if err == nil || !strings.Contains(err.Error(), "is running on port a already") {
				d.t.Errorf("second capture: %v", err)
			}
			cancel()
		}
		return nil
	}, &sum)
	if err != nil || !tried || sum.Captured == 0 || sum.Captured+sum.Dropped != sum.Seen {
		d.t.Errorf("a capture that its client ends: %v, %+v", err, sum)
	}
}

// Stop lets a transfer finish, and takes no new connection meanwhile.
func TestDrain(t *testing.T) {
	d := start(t, withoutProcesses)
	const size = 32 << 20 // at 400 Mbit/s
	stopped := make(chan error, 1)
	n, sum := get(t, d.client(), "http://10.9.0.1/", size/2, func() {
		go func() { stopped <- d.Stop() }()
		d.event(control.EventStop, "draining")
		if !eventually(2*time.Second, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c, err := d.dialer().DialContext(ctx, "tcp", "10.9.0.1:80")
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}) {
			t.Error("connections are still accepted")
		}
		if r := call[control.SSReply](d, control.OpSS, control.SSRequest{LocalPort: 80}); len(r.Conns) == 0 {
			t.Error("the control socket shows no connection while draining")
		}
	})
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	d.client().CloseIdleConnections()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(12 * time.Second):
		t.Error("does not stop")
	}
}

// What is left after the drain is reset.
func TestDrainResets(t *testing.T) {
	d := start(t, withoutProcesses+"[shutdown]\ndrain = \"200ms\"\n")
	c := d.dial("10.9.0.1:19")                                 // endless
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // it is accepted
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, c)
		failed <- err
	}()
	began := time.Now()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if err := <-failed; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("the client got %v", err)
	}
}

// An idle daemon sleeps: less than 3 % of a core.
func TestIdle(t *testing.T) {
	start(t, withoutProcesses)
	checkIdle(t)
}

// checkIdle measures the process up to three times: other work of the machine can only make it look busier.
func checkIdle(t *testing.T) {
	t.Helper()
	time.Sleep(300 * time.Millisecond) // what the start has left to do
	runtime.GC()
	share := 1.0
	for i := 0; i < 3 && share > 0.03; i++ {
		cpu, at := processTime(t), time.Now()
		time.Sleep(time.Second)
		share = min(share, float64(processTime(t)-cpu)/float64(time.Since(at)))
	}
	t.Logf("%.2f %% of a core", share*100)
	if share > 0.03 {
		t.Errorf("an idle daemon uses %.1f %% of a core", share*100)
	}
}

func processTime(t *testing.T) time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// A connection in TIME-WAIT is shown to who asks for that state, and to nobody else.
func TestSSTimeWait(t *testing.T) {
	d := start(t, withoutProcesses)
	c := d.dial("10.9.0.1:7")
	local := c.LocalAddr().String()
	c.Close()
	var conns []control.Conn
	if !eventually(5*time.Second, func() bool {
		conns = call[control.SSReply](d, control.OpSS, control.SSRequest{States: []string{control.StateTimeWait}}).Conns
		return len(conns) == 1
	}) {
		t.Fatalf("asked for TIME-WAIT: %+v", conns)
	}
	got := conns[0]
	if got.State != control.StateTimeWait || got.Local.String() != local || got.Peer.String() != "10.9.0.1:7" || got.Worker != 1 ||
		got.Timer == nil || got.Timer.Kind != "timewait" || got.Timer.ExpiresInNS <= 0 {
		t.Errorf("the record: %+v, timer %+v", got, got.Timer)
	}
	if n := call[control.StatReply](d, control.OpStat, nil).Gauges["tcp_time_waits"]; n != 1 {
		t.Errorf("stat counts %d", n)
	}
	if all := call[control.SSReply](d, control.OpSS, control.SSRequest{}).Conns; len(all) != 0 {
		t.Errorf("without a state: %+v", all)
	}
}

// A proxy whose backend refuses resets its client, and ctl stat counts it.
func TestProxyBackendRefuses(t *testing.T) {
	d := start(t, strings.Replace(withoutProcesses, `backend = "10.9.0.1:80"`, `backend = "10.9.0.1:81"`, 1))
	c, err := (&sock.Dialer{Stack: d.ports[0].stack}).DialContext(t.Context(), "tcp", "10.9.0.2:8080")
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if err == nil || err == io.EOF {
		t.Errorf("a proxy without a backend: %v", err)
	}
	s, err := d.Stat(t.Context())
	if err != nil || s.Counters["proxy_backend_failures"] != 1 {
		t.Errorf("%d failures were counted, %v", s.Counters["proxy_backend_failures"], err)
	}
}
