package control

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
	}
}

// filler sets every field of a value to something of its own.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value, name string) {
	f.n++
	switch v.Type() {
	case reflect.TypeFor[netip.AddrPort]():
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 7, 0, byte(f.n)}), uint16(f.n))))
		return
	case reflect.TypeFor[[]byte]():
		v.SetBytes([]byte(name))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), name)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		f.fill(e, name)
		v.SetMapIndex(reflect.ValueOf("key"), e)
	case reflect.String:
		v.SetString(strings.ToLower(name))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	default:
		panic("filler: " + v.Type().String())
	}
}

// replies are the JSON documents that `ctl --json` prints.
func replies() map[string]any {
	return map[string]any{
		"info.json": &Info{}, "ss.json": &SSReply{}, "modules.json": &ModulesReply{}, "swap.json": &SwapReply{}, "set.json": &SetReply{}, "stat.json": &StatReply{},
		"event.json": &Event{}, "frame.json": &Frame{}, "capture.json": &CaptureSummary{}, "filter.json": &FilterReply{},
	}
}

// TestSchema: the names of all fields are as committed. Renaming one breaks programs that read them.
func TestSchema(t *testing.T) {
	for file, v := range replies() {
		(&filler{}).fill(reflect.ValueOf(v).Elem(), "")
		got, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, file, append(got, '\n'))
		// And a program reads back what was written.
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(got, again); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v, again) {
			t.Errorf("%s does not survive decoding", file)
		}
	}
}

func TestSSMatch(t *testing.T) {
	local, peer := netip.MustParseAddrPort("10.7.0.1:80"), netip.MustParseAddrPort("10.7.0.2:40322")
	for _, tt := range []struct {
		r     SSRequest
		state string
		want  bool
	}{
		{SSRequest{}, StateEstablished, true}, {SSRequest{}, StateListen, false}, {SSRequest{}, StateTimeWait, false},
		{SSRequest{States: []string{StateListen}}, StateListen, true}, {SSRequest{States: []string{StateListen}}, StateEstablished, false},
		{SSRequest{LocalPort: 80, PeerPort: 40322}, StateEstablished, true}, {SSRequest{LocalPort: 81}, StateEstablished, false},
		{SSRequest{PeerPort: 80}, StateEstablished, false},
		{SSRequest{Local: netip.MustParsePrefix("10.7.0.1/32")}, StateEstablished, true},
		{SSRequest{Peer: netip.MustParsePrefix("10.7.0.1/32")}, StateEstablished, false},
	} {
		if got := tt.r.Match(tt.state, local, peer); got != tt.want {
			t.Errorf("%+v, %s: %v", tt.r, tt.state, got)
		}
	}
}

// TestNames: names are in snake case, and end in the unit that the field's name says.
func TestNames(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[typ] || typ.PkgPath() != reflect.TypeFor[Conn]().PkgPath() {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !snake.MatchString(name) {
				t.Errorf("%v.%s: %q is not in snake case", typ, f.Name, name)
			}
			for suffix, unit := range map[string]string{"NS": "_ns", "Bytes": "_bytes", "BPS": "_bps"} {
				if strings.HasSuffix(f.Name, suffix) != strings.HasSuffix(name, unit) && "_"+name != unit {
					t.Errorf("%v.%s: %q", typ, f.Name, name)
				}
			}
			walk(f.Type)
		}
	}
	for _, v := range append([]any{&SSRequest{}, &SwapRequest{}, &FilterRequest{}, &EventsRequest{}, &CaptureRequest{}}, values(replies())...) {
		walk(reflect.TypeOf(v))
	}
}

func values(m map[string]any) (out []any) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// sample is a BBR flow in the middle of a download with losses.
func sample() *SSReply {
	ap := netip.MustParseAddrPort
	return &SSReply{Omitted: 3, Conns: []Conn{
		{State: StateListen, Local: ap("10.7.0.1:80"), Peer: ap("0.0.0.0:0"), SendQBytes: 1024},
		{
			State: StateEstablished, Local: ap("10.7.0.1:80"), Peer: ap("10.7.0.2:40322"), SendQBytes: 1448000,
			Timer: &Timer{Kind: "rto", ExpiresInNS: 203_123_456}, Rtx: "btree", Pace: "edt", Cong: "bbr",
			Timestamps: true, SACK: true, WScale: true, SndWScale: 7, RcvWScale: 10,
			RTONS: 204e6, Backoff: 1, SRTTNS: 3_141_592, RTTVarNS: 250_000, MinRTTNS: 27_000, RcvRTTNS: 1_000_000_000, ATONS: 40e6,
			MSSBytes: 1448, PMTUBytes: 1500, RcvMSSBytes: 536, AdvMSSBytes: 1460, CwndBytes: 14480, SsthreshBytes: 28960,
			SentBytes: 1 << 30, RetransBytes: 2896, AckedBytes: 1<<30 - 1448000, ReceivedBytes: 78,
			SegsOut: 741_455, SegsIn: 370_728, DataSegsOut: 741_454, DataSegsIn: 1,
			CongInfo:  []Figure{{"bw", "500000000bps"}, {"mrtt", "0.027"}, {"pacing_gain", "1.25"}, {"cwnd_gain", "2"}},
			LastSndNS: 4e6, LastRcvNS: 17_000e6, LastAckNS: 1_900_000, SendBPS: 36_872_610, PacingBPS: 495_000_000, MaxPacingBPS: 1_000_000_000,
			DeliveryBPS: 500_000_000, DeliveredBytes: 1448 * 740_000, AppLimited: true,
			BusyNS: 17_003e6, RwndLimitedNS: 1_700e6, SndbufLimitedNS: 170e6,
			Unacked: 10, Retrans: 1, RetransTotal: 2, Lost: 1, Sacked: 4, DSACKDups: 1, Reordering: 5, ReordSeen: 2,
			InFlightBytes: 13032, NotSentBytes: 1_433_520, RcvSpaceBytes: 14600, RcvSsthreshBytes: 65535, RcvOOOSegs: 3, SndWndBytes: 3_145_728, RcvWndBytes: 65536,
		},
		{State: StateTimeWait, Local: ap("10.7.0.1:80"), Peer: ap("10.7.0.2:40320"), Timer: &Timer{Kind: "timewait", ExpiresInNS: 59e9}},
	}}
}

func text(t *testing.T, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSSText(t *testing.T) {
	golden(t, "ss.txt", text(t, func(b *bytes.Buffer) error { return WriteSS(b, sample()) }))
}

// TestSSOrder: each word that ss(8) knows stands in the order in which ss(8) prints it.
func TestSSOrder(t *testing.T) {
	// From tcp_stats_print of iproute2's misc/ss.c.
	const order = `ts sack ecn ecnseen fastopen bbr wscale rto backoff rtt ato mss pmtu rcvmss advmss cwnd ssthresh bytes_sent bytes_retrans bytes_acked
		bytes_received segs_out segs_in data_segs_out data_segs_in bbr send lastsnd lastrcv lastack pacing_rate delivery_rate delivered
		delivered_ce app_limited busy rwnd_limited sndbuf_limited unacked retrans lost sacked dsack_dups reordering reord_seen rcv_rtt rcv_space
		rcv_ssthresh notsent minrtt rcv_ooopack snd_wnd rcv_wnd rtx pace`
	var got []string
	c := sample().Conns[1]
	c.ECN, c.ECNSeen, c.FastOpen, c.DeliveredCE = true, true, true, 1
	for _, w := range strings.Fields(c.Details()) {
		if name, _, _ := strings.Cut(w, ":"); !strings.HasSuffix(w, "bps") || strings.Contains(w, ":") {
			got = append(got, name)
		}
	}
	if diff := cmp.Diff(strings.Fields(order), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseFigures(t *testing.T) {
	for text, want := range map[string][]Figure{
		"cubic:(w_max:833,k:8.500,css)": {{"w_max", "833"}, {"k", "8.500"}, {"css", ""}},
		"bw:1bps":                       {{"bw", "1bps"}},
		"reno:()":                       nil,
		"":                              nil,
	} {
		if diff := cmp.Diff(want, ParseFigures(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		c := Conn{Cong: "cubic", CongInfo: want}
		if strings.HasPrefix(text, "cubic") && c.Details() != "cubic "+text {
			t.Errorf("%q becomes %q", text, c.Details())
		}
	}
}

func TestModulesText(t *testing.T) {
	r := &ModulesReply{Modules: []Module{
		{Kind: "rtx", Name: "btree", Version: "1.0.0", Placement: "builtin", State: ModuleActive, Flows: 12},
		{Kind: "cong", Name: "bbr", Version: "1.0.0", Placement: "process", State: ModuleDead, Restarts: 2, LateCount: 1, Fallback: "cubic",
			NextRestartInNS: 1_234_567_890, SHA256: strings.Repeat("0123456789abcdef", 4)},
		{Kind: "cong", Name: "cubic", Version: "1.0.0", Placement: "builtin", State: ModuleFallback, Flows: 12},
		{Kind: "cong", Name: "cdg", Version: "1.0.0", Placement: "process", State: ModuleStandby, PID: 4711, SHA256: strings.Repeat("fedcba9876543210", 4)},
	}}
	golden(t, "modules.txt", text(t, func(b *bytes.Buffer) error { return WriteModules(b, r) }))
	params := []Param{{Name: "window", Type: "uint", Unit: "round trips", Default: "8", Value: "16", Doc: "samples of the gradient"},
		{Name: "use_shadow", Type: "bool", Default: "true", Value: "true", Doc: "keep a loss window"}}
	r.Modules[1].Params, r.Modules[1].Path, r.Modules[1].LastError, r.Modules[1].Events = params, "/opt/fastpath-cong-bbr", "signal: killed", 12
	r.Modules[1].Needs = []string{"pacing"}
	golden(t, "modules_verbose.txt", text(t, func(b *bytes.Buffer) error { return WriteModulesVerbose(b, r) }))
	set := &SetReply{Kind: "cong", Name: "cdg", Flows: 3, Workers: 2, GapNS: 15_000, TookNS: 80_000_000, Params: params}
	golden(t, "set.txt", text(t, func(b *bytes.Buffer) error { return WriteSet(b, set) }))
	up := &SwapReply{Kind: "cong", From: "mine", To: "1.1.0", For: "its flows", Flows: 3, Workers: 2, GapNS: 15_000, TookNS: 80_000_000, SHA256: strings.Repeat("ab", 32)}
	golden(t, "upgrade.txt", text(t, func(b *bytes.Buffer) error { return WriteSwap(b, up) }))
}

func TestFilterText(t *testing.T) {
	r := &FilterReply{Default: "deny", DefaultPackets: 3, DefaultBytes: 180, Rules: []FilterRule{
		{Name: "replies", Action: "allow", State: "established", Packets: 370_728, Bytes: 24_468_048},
		{Name: "web", Action: "reject", Port: "wan", Protocol: "tcp", Source: []string{"10.0.0.0/8", "2001:db8::1"}, DestinationPorts: []string{"80", "8000-8080"}},
	}}
	golden(t, "filter.txt", text(t, func(b *bytes.Buffer) error { return WriteFilter(b, r) }))
}

func TestStatText(t *testing.T) {
	turn := Histogram{MaxNS: 3_212_000, Buckets: []Bucket{{1000, 900}, {2000, 90}, {10_000, 9}, {4_000_000, 1}}}
	turn.Fill()
	r := &StatReply{
		UptimeNS: 61_234_567_890,
		Memory: MemoryStat{Level: "normal", UsedBytes: 20 << 20, PeakBytes: 30 << 20, MappedBytes: 64 << 20, LowBytes: 256 << 20, PressureBytes: 384 << 20,
			HighBytes: 512 << 20, ByUseBytes: map[string]uint64{"packets": 16 << 20, "streams": 4<<20 + 512}},
		Go:      GoStat{HeapBytes: 4 << 20, HeapLimitBytes: 256 << 20, Goroutines: 17, GCs: 3, GCPauseMaxNS: 123_456, GCPauseTotalNS: 234_567},
		Machine: MachineStat{WaitedNS: 12_345_678, StolenNS: 20_000_000},
		Ports: []PortStat{{Name: "veth", Driver: "dpdk:net_af_packet", LinkUp: true, RxFrames: 370_728, RxBytes: 24_468_048, TxFrames: 741_455,
			TxBytes: 1_122_562_870, TxFull: 12, PoolBuffers: 8192, PoolFree: 8000}},
		Workers: []WorkerStat{{Port: "veth", Core: -1, Poll: "adaptive", Conns: 12, Turns: 1_000_000, Idle: 400_000, Parks: 12, BusyNS: 17_003e6,
			ParkedNS: 44_231e6, Turn: turn}, {Worker: 1, Queue: -1, Core: 1, Poll: "spin"}},
		Counters: map[string]uint64{"TcpSegsIn": 370_728, "TcpRetransSegs": 2, "IpBadSum": 0},
		Gauges:   map[string]uint64{"TcpConns": 12},
	}
	golden(t, "stat.txt", text(t, func(b *bytes.Buffer) error { return WriteStat(b, r, false) }))
	if all := text(t, func(b *bytes.Buffer) error { return WriteStat(b, r, true) }); !bytes.Contains(all, []byte("IpBadSum")) {
		t.Error("all does not show counters that are zero")
	}
}

func TestSwapAndEventText(t *testing.T) {
	golden(t, "swap_event.txt", text(t, func(b *bytes.Buffer) error {
		if err := WriteSwap(b, &SwapReply{Kind: "cong", From: "bbr", To: "cdg", For: "all flows", Flows: 12, Workers: 1, GapNS: 12_345, TookNS: 250_000}); err != nil {
			return err
		}
		for _, why := range []string{"", "the goodput of its flows fell from 90 to 40 Mbit/s"} {
			t := &Trial{Flows: 9, GoodputBeforeBPS: 90e6, GoodputBPS: 40e6, RTTBeforeNS: 20e6, RTTNS: 31e6, RolledBack: why}
			if err := WriteSwap(b, &SwapReply{Kind: "cong", From: "bbr", To: "cdg", For: "all flows", Flows: 9, Workers: 1, TookNS: 10e9, Trial: t}); err != nil {
				return err
			}
		}
		s := &Shadow{Decisions: 1234, Higher: 1, Flows: []ShadowFlow{{Local: netip.MustParseAddrPort("10.7.0.1:80"), Peer: netip.MustParseAddrPort("10.7.0.2:40322"),
			CwndBytes: 14480, WouldCwndBytes: 28960, WouldPacingBPS: 120e6}}}
		if err := WriteSwap(b, &SwapReply{Kind: "cong", From: "bbr", To: "cdg", For: "20 % of flows, peer 10.0.0.0/8", DryRun: true, Flows: 3, Workers: 2, Shadow: s}); err != nil {
			return err
		}
		return WriteEvent(b, &Event{TimeUnixNS: 1_700_000_000_123_456_789, Kind: EventSwap, Message: "cong: 12 flows from bbr to cdg"})
	}))
}

func TestHistogramFill(t *testing.T) {
	for _, tt := range []struct {
		h                   Histogram
		p50, p90, p99, p999 int64
	}{
		{Histogram{}, 0, 0, 0, 0},
		{Histogram{MaxNS: 7, Buckets: []Bucket{{10, 1}}}, 7, 7, 7, 7},
		{Histogram{MaxNS: 90, Buckets: []Bucket{{10, 50}, {20, 40}, {100, 10}}}, 10, 20, 90, 90},
		{Histogram{MaxNS: 90, Buckets: []Bucket{{10, 49}, {20, 51}}}, 20, 20, 20, 20},
	} {
		h := tt.h
		h.Fill()
		if h.P50NS != tt.p50 || h.P90NS != tt.p90 || h.P99NS != tt.p99 || h.P999NS != tt.p999 {
			t.Errorf("%+v", h)
		}
	}
}

func TestMS(t *testing.T) {
	for ns, want := range map[int64]string{0: "0", 27_000: "0.027", 204e6: "204", 3_141_592: "3.142", 1_234_567_890: "1234.57", 120e9: "120000"} {
		if got := ms(ns); got != want {
			t.Errorf("ms(%d) = %q, want %q", ns, got, want)
		}
	}
}

// TestWordsOfSS: the words that the kernel's ss prints for a real connection are words of ours.
func TestWordsOfSS(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("needs ss (iproute2)")
	}
	c, s := tcpPair(t)
	if _, err := c.Write(make([]byte, 50000)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ss", "-tin", "sport", "=", c.LocalAddr().String()).Output()
	if err != nil {
		t.Skipf("ss -tin: %v", err)
	}
	full := sample().Conns[1]
	full.ECN, full.ECNSeen, full.FastOpen = true, true, true
	ours := map[string]bool{"rehash": true, "cwnd": true} // what we do not have
	for _, w := range strings.Fields(full.Details()) {
		name, _, _ := strings.Cut(w, ":")
		ours[name] = true
	}
	lines := strings.SplitN(string(out), "\n", 3)
	if len(lines) < 2 || !strings.Contains(lines[1], "rto:") {
		t.Skipf("ss -tin shows no details here: %q", out)
	}
	word := regexp.MustCompile(`^[a-z_]+$`)
	for _, w := range strings.Fields(lines[1])[1:] { // the first is the algorithm
		name, _, _ := strings.Cut(w, ":")
		if word.MatchString(name) && !ours[name] && name != "cubic" && name != "reno" {
			t.Errorf("ss prints %q, ctl ss cannot", name)
		}
	}
}
