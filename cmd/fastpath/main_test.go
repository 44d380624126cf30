package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/capture"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
	}
}

// fastpath runs the program in this process.
func fastpath(args ...string) (code int, stdout, stderr string) {
	var o, e bytes.Buffer
	code = run(context.Background(), append([]string{}, args...), &o, &e)
	return code, o.String(), e.String()
}

func TestUsage(t *testing.T) {
	code, out, _ := fastpath()
	if code != 0 || !strings.Contains(out, "Available Commands") {
		t.Errorf("without arguments: %d %q", code, out)
	}
	for _, args := range [][]string{{"fly"}, {"check"}, {"check", "a", "b"}, {"ctl", "fly"}, {"ctl", "swap", "cong"}, {"ctl", "ss", "--local", "x"}, {"version", "x"}, {"ctl", "capture"}} {
		code, out, errOut := fastpath(args...)
		if code != 1 || out != "" || !strings.HasPrefix(errOut, "fastpath: ") || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q: %d %q %q", args, code, out, errOut)
		}
	}
}

func TestVersion(t *testing.T) {
	if code, out, _ := fastpath("version"); code != 0 || !strings.HasPrefix(out, "fastpath ") {
		t.Errorf("%d %q", code, out)
	}
	_, out, _ := fastpath("version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Go == "" || v.Protocol != control.Version {
		t.Errorf("%q: %v", out, err)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCheck(t *testing.T) {
	good := write(t, "[[port]]\nname = \"a\"\ndriver = \"tap\"\ninterface = \"fp0\"\naddresses = [\"10.7.0.1/24\"]\n")
	if code, out, errOut := fastpath("check", good); code != 0 || out != good+": ok\n" || errOut != "" {
		t.Errorf("good: %d %q %q", code, out, errOut)
	}
	bad := write(t, "[[port]]\nname = \"a\"\ndriver = \"tap\"\ninterface = \"fp0\"\naddresses = [\"10.7.0.1/24\"]\nmtu = 1\nx = 1\n")
	want := bad + ":6: port[0].mtu: 1 is out of range (576 to 9216)\n" + bad + ":7: port[0].x: unknown key\n"
	if code, out, errOut := fastpath("check", bad); code != 1 || out != want || errOut != "" {
		t.Errorf("bad: %d %q %q", code, out, errOut)
	}
	code, out, _ := fastpath("check", bad, "--json")
	golden(t, "check.json", strings.ReplaceAll(out, bad, "FILE"))
	if code != 1 {
		t.Errorf("bad --json: %d", code)
	}
	// What the machine lacks is an error only if it is looked at.
	machine := write(t, "[[port]]\nname = \"a\"\ndriver = \"afpacket\"\ninterface = \"nonesuch0\"\naddresses = [\"10.7.0.1/24\"]\n"+
		"[modules.cong]\nuse = \"nonesuch\"\n")
	code, out, _ = fastpath("check", machine)
	if code != 1 || !strings.Contains(out, ":4: port[0].interface: there is no interface") || !strings.Contains(out, ":7: modules.cong.use: cong nonesuch is not") {
		t.Errorf("machine: %d %q", code, out)
	}
	if code, out, _ = fastpath("check", "--syntax", machine); code != 0 {
		t.Errorf("machine --syntax: %d %q", code, out)
	}
	// All errors come at once, the machine's and the modules' among the file's.
	all := write(t, "[[port]]\nname = \"a\"\ndriver = \"dpdk\"\nvdev = \"net_af_packet0,iface=nonesuch0\"\naddresses = [\"10.7.0.1/24\"]\nmtu = 1\n"+
		"[modules.cong]\nuse = \"cubic\"\nplacement = \"builtin\"\nparams = {nope = 1}\n[modules.rtx.params]\ndupthresh = \"abc\"\n"+
		"[[module]]\nkind = \"cong\"\nname = \"bbr\"\nplacement = \"process\"\n[module.params]\nnope = 1\n")
	want = all + ":4: port[0].vdev: there is no interface \"nonesuch0\": ip link\n" +
		all + ":6: port[0].mtu: 1 is out of range (576 to 9216)\n" +
		all + ":10: modules.cong.params.nope: unknown parameter\n" +
		all + ":12: modules.rtx.params.dupthresh: \"abc\" is not a whole number\n" +
		all + ":18: module[0].params.nope: unknown parameter\n"
	code, out, _ = fastpath("check", all)
	if diff := cmp.Diff(want, withoutWarnings(out)); code != 1 || diff != "" {
		t.Errorf("all: %d (-want +got):\n%s", code, diff)
	}
	if code, out, errOut := fastpath("check", filepath.Join(t.TempDir(), "none")); code != 1 || out != "" || !strings.Contains(errOut, "no such file") {
		t.Errorf("missing: %d %q %q", code, out, errOut)
	}
}

// withoutWarnings drops what depends on the machine: warnings of hugepages.
func withoutWarnings(out string) string {
	var errs strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains(line, ": warning: ") {
			errs.WriteString(line)
		}
	}
	return errs.String()
}

// TestExamplesHaveModules: the examples name only modules that are built in.
func TestExamplesHaveModules(t *testing.T) {
	for _, f := range []string{"../../conf/example.toml", "../../conf/demo.toml"} {
		if _, out, _ := fastpath("check", f); strings.Contains(out, "modul") {
			t.Errorf("%s", out)
		}
	}
}

// fakeDaemon answers as a running daemon would.
type fakeDaemon struct{ control.Handler }

func (fakeDaemon) Info(context.Context) (*control.Info, error) {
	return &control.Info{PID: 42, Version: "v0.1.0", Config: "/etc/fastpath.toml", StartUnixNS: 1_700_000_000e9}, nil
}

func (fakeDaemon) SS(_ context.Context, r control.SSRequest) (*control.SSReply, error) {
	// Echoes the request, so that the test sees how flags arrive.
	return &control.SSReply{Conns: []control.Conn{{State: strings.Join(r.States, "+"), Cong: fmt.Sprintf("%v|%v|%d|%d|%d", r.Local, r.Peer, r.LocalPort, r.PeerPort, r.Limit)}}}, nil
}

func (fakeDaemon) Modules(context.Context) (*control.ModulesReply, error) {
	return &control.ModulesReply{Modules: []control.Module{{Kind: "cong", Name: "bbr", Placement: "process", State: control.ModuleActive, PID: 7,
		Params: []control.Param{{Name: "cwnd_gain", Type: "float", Value: "2"}}}}}, nil
}

// Set tells how many parameters arrive.
func (fakeDaemon) Set(_ context.Context, r control.SetRequest) (*control.SetReply, error) {
	return &control.SetReply{Kind: r.Kind, Name: r.Name, Flows: len(r.Params)}, nil
}

func (fakeDaemon) Swap(_ context.Context, r control.SwapRequest) (*control.SwapReply, error) {
	if r.Name != "cdg" {
		return nil, control.Refuse("%s %s: the file has the wrong checksum; bbr stays", r.Kind, r.Name)
	}
	if r.To != "" {
		return &control.SwapReply{Kind: r.Kind, From: r.Name, To: r.To, SHA256: r.ToSHA256}, nil
	}
	return &control.SwapReply{Kind: r.Kind, From: "bbr", To: r.Name, For: r.Selection().String(), DryRun: r.DryRun, Flows: 3, Workers: 1, GapNS: 12_000}, nil
}

func (fakeDaemon) Filter(_ context.Context, r control.FilterRequest) (*control.FilterReply, error) {
	if strings.Contains(r.Text, "bad") {
		return nil, control.Refuse("%s:1: bad", r.File)
	}
	reply := &control.FilterReply{Default: "deny", Rules: []control.FilterRule{{Name: "web", Action: "allow", Packets: 7}}}
	if r.Reload {
		reply.Rules = nil
	}
	return reply, nil
}

func (fakeDaemon) Stat(context.Context) (*control.StatReply, error) {
	return &control.StatReply{Counters: map[string]uint64{"TcpZero": 0, "TcpOne": 1}}, nil
}

func (fakeDaemon) Events(_ context.Context, r control.EventsRequest, emit func(control.Event) error) error {
	for i := range max(r.Last, 2) {
		if err := emit(control.Event{Seq: uint64(i + 1), Kind: control.EventSwap, Message: fmt.Sprint("event ", i+1)}); err != nil {
			return err
		}
	}
	return nil
}

// Capture emits SYNs to ports 1, 2, … of two interfaces, as the request asks.
func (fakeDaemon) Capture(_ context.Context, r control.CaptureRequest, emit func(control.Frame) error) (*control.CaptureSummary, error) {
	filter, err := capture.Parse(r.Filter)
	if err != nil {
		return nil, err
	}
	var sum control.CaptureSummary
	for port := 1; port <= 100 && (r.Count == 0 || sum.Captured < uint64(r.Count)); port++ {
		data := syn(port)
		sum.Seen++
		if !filter.Match(data) {
			continue
		}
		sum.Captured++
		f := control.Frame{TimeUnixNS: 1_700_000_000_000_000_000 + int64(port), Port: []string{"wan", "lan"}[port%2], LengthBytes: len(data), Data: data}
		if r.SnapLen > 0 {
			f.Data = data[:min(r.SnapLen, len(data))]
		}
		if err := emit(f); err != nil {
			return nil, err
		}
	}
	return &sum, nil
}

func syn(port int) []byte {
	b := gopacket.NewSerializeBuffer()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{10, 7, 0, 2}, DstIP: net.IP{10, 7, 0, 1}}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: layers.TCPPort(port), SYN: true, Window: 65535}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	_ = gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, EthernetType: layers.EthernetTypeIPv4}, ip, tcp)
	return b.Bytes()
}

func startDaemon(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, fakeDaemon{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	t.Cleanup(func() { s.Close() })
	return path
}

func TestCtl(t *testing.T) {
	path := startDaemon(t)
	good, bad := filepath.Join(t.TempDir(), "good.toml"), filepath.Join(t.TempDir(), "bad.toml")
	for file, text := range map[string]string{good: "[firewall]\n", bad: "bad"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args       []string
		code       int
		out, error string // parts
	}{
		{[]string{"info"}, 0, "fastpath v0.1.0, pid 42", ""},
		{[]string{"ss"}, 0, "invalid Prefix|invalid Prefix|0|0|10000", ""},
		{[]string{"ss", "--state", "estab,listen", "--local", "10.7.0.1:80", "--peer", "10.7.0.0/24", "--limit", "5"}, 0, "ESTAB+LISTEN", ""},
		{[]string{"ss", "--local", "10.7.0.1:80", "--peer", "10.7.0.0/24", "--limit", "5"}, 0, "10.7.0.1/32|10.7.0.0/24|80|0|5", ""},
		{[]string{"ss", "--local", ":80", "--peer", "10.7.0.2"}, 0, "invalid Prefix|10.7.0.2/32|80|0|", ""},
		{[]string{"ss", "--state", "open"}, 1, "", "unknown state"},
		{[]string{"ss", "--json"}, 0, `"rtt`, ""},
		{[]string{"modules"}, 0, "bbr", ""},
		{[]string{"modules", "--json"}, 0, `"placement": "process"`, ""},
		{[]string{"swap", "cong", "cdg"}, 0, "bbr → cdg for all flows, 3 flows", ""},
		{[]string{"swap", "cong", "cdg", "--percent", "20", "--new", "--peer", "10.8.1.1/16", "--local", ":443", "--dry-run"}, 0,
			"bbr → cdg for 20 % of new flows, local port 443, peer 10.8.0.0/16 would move 3 flows on 1 workers; nothing has changed", ""},
		{[]string{"swap", "cong", "cdg", "--max-goodput-drop", "20%"}, 1, "", "fastpath: swap: bounds for a trial without its time\n"},
		{[]string{"swap", "cong", "cdg", "--trial", "1s", "--max-rtt-increase", "x"}, 1, "", "fastpath: --max-rtt-increase: \"x\" is no percentage above 0\n"},
		{[]string{"swap", "cong", "cdg", "--percent", "0"}, 1, "", "fastpath: --percent: 0 is not within 1…100"},
		{[]string{"swap", "cong", "mine"}, 1, "", "fastpath: cong mine: the file has the wrong checksum; bbr stays\n"},
		{[]string{"swap", "cong", "cdg", "--to", good, "--sha256", "12"}, 1, "", "is no SHA-256"},
		{[]string{"swap", "cong", "cdg", "--to", good + "missing"}, 1, "", "no such file"},
		{[]string{"swap", "cong", "cdg", "--to", good, "--percent", "10"}, 1, "", "goes with no selection"},
		{[]string{"swap", "cong", "cdg", "--sha256", "12"}, 1, "", "--sha256 is for --to"},
		{[]string{"swap", "cong", "cdg", "--to", good}, 0, "cong: cdg goes on as version " + good, ""},
		{[]string{"modules", "-v"}, 0, "  parameters (fastpath ctl set cong bbr NAME=VALUE):\n    cwnd_gain = 2", ""},
		{[]string{"set", "cong", "cdg", "window=16", "use_shadow="}, 0, "cong cdg: 2 flows", ""},
		{[]string{"set", "cong", "cdg", "window"}, 1, "", "\"window\" is not PARAMETER=VALUE"},
		{[]string{"set", "cong", "cdg"}, 1, "", "requires at least 3 arg"},
		{[]string{"filter"}, 0, "web", ""},
		{[]string{"filter", "--json"}, 0, `"packets": 7`, ""},
		{[]string{"filter", "load", good}, 0, "1 rules in force, default deny\n", ""},
		{[]string{"filter", "load", bad}, 1, "", bad + ":1: bad"},
		{[]string{"filter", "load", good + "missing"}, 1, "", "no such file"},
		{[]string{"filter", "load"}, 1, "", "accepts 1 arg"},
		{[]string{"filter", "reload"}, 0, "0 rules in force, default deny\n", ""},
		{[]string{"stat"}, 0, "TcpOne", ""},
		{[]string{"stat", "--all"}, 0, "TcpZero", ""},
		{[]string{"events", "-n", "3"}, 0, "event 3\n", ""},
		{[]string{"events", "--json"}, 0, `"seq":2,`, ""},
	} {
		code, out, errOut := fastpath(append([]string{"ctl", "--socket", path}, tt.args...)...)
		out = strings.ReplaceAll(out, `"srtt`, `"rtt`)
		if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errOut, tt.error) || tt.code == 0 && errOut != "" {
			t.Errorf("ctl %q: %d %q %q", tt.args, code, out, errOut)
		}
	}
}

func TestCtlNoDaemon(t *testing.T) {
	code, _, errOut := fastpath("ctl", "ss", "--socket", filepath.Join(t.TempDir(), "none"))
	if code != 1 || !strings.Contains(errOut, "no daemon listens on") {
		t.Errorf("%d %q", code, errOut)
	}
}

func TestCtlCapture(t *testing.T) {
	path := startDaemon(t)
	file := filepath.Join(t.TempDir(), "f.pcapng")
	code, out, errOut := fastpath("ctl", "capture", "--socket", path, "-w", file, "--filter", "tcp-syn and not port 2", "--count", "5", "--snaplen", "40", "--json")
	var sum control.CaptureSummary
	if err := json.Unmarshal([]byte(out), &sum); code != 0 || err != nil || sum.Captured != 5 || sum.Seen != 6 {
		t.Fatalf("%d %q %q %v", code, out, errOut, err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, port := range []int{1, 3, 4, 5, 6} {
		data, ci, err := r.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		iface, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, syn(port)[:40]) || ci.Length != 60 || !ci.Timestamp.Equal(time.Unix(1_700_000_000, int64(port))) ||
			iface.Name != []string{"wan", "lan"}[port%2] {
			t.Errorf("frame %d: %d bytes of %d at %v on %q", i, len(data), ci.Length, ci.Timestamp, iface.Name)
		}
	}
	if _, err := exec.LookPath("tshark"); err == nil {
		out, err := exec.Command("tshark", "-r", file, "-T", "fields", "-e", "frame.len", "-e", "frame.cap_len", "-e", "tcp.dstport").Output()
		if want := "60\t40\t1\n60\t40\t3\n60\t40\t4\n60\t40\t5\n60\t40\t6\n"; err != nil || string(out) != want {
			t.Errorf("tshark: %v\n%s", err, out)
		}
	}
}

func TestCtlCaptureErrors(t *testing.T) {
	path := startDaemon(t)
	file := filepath.Join(t.TempDir(), "f.pcapng")
	if code, _, errOut := fastpath("ctl", "capture", "--socket", path, "-w", file, "--filter", "tpc"); code != 1 || !strings.Contains(errOut, `unknown word "tpc"`) {
		t.Errorf("%d %q", code, errOut)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a bad filter has made the file")
	}
	// Nothing captured is a valid file.
	code, _, errOut := fastpath("ctl", "capture", "--socket", path, "-w", file, "--filter", "udp")
	f, err := os.Open(file)
	if err != nil || code != 0 {
		t.Fatalf("%d %q %v", code, errOut, err)
	}
	defer f.Close()
	if _, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions); err != nil {
		t.Error(err)
	}
}

// TestCtlCaptureStdout: with -w - the capture, and nothing else, goes to the standard output.
func TestCtlCaptureStdout(t *testing.T) {
	code, out, errOut := fastpath("ctl", "capture", "--socket", startDaemon(t), "-w", "-")
	if code != 0 || !strings.Contains(errOut, "100 frames written") {
		t.Errorf("%d %q", code, errOut)
	}
	r, err := pcapgo.NewNgReader(strings.NewReader(out), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, _, err = r.ReadPacketData()
	}
	if n-1 != 100 {
		t.Errorf("%d frames", n-1)
	}
}
