package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

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

func bench() *Bench {
	b := &Bench{Name: "bulk", Params: map[string]string{"size": "64KiB", "cong": "reno", "mtu": "1500"},
		Machine: Machine{CPU: "AMD EPYC", Cores: 2, GOMAXPROCS: 2, GoVersion: "go1.26.8", OS: "linux", Arch: "amd64", Kernel: "6.1.0",
			Gaps:      Gaps{MeasuredNS: 1e9, Over10us: 1400, LostNS: 55e6, MaxNS: 3e6, LostShare: 0.055},
			GapsAfter: Gaps{MeasuredNS: 1e9, Over10us: 1300, LostNS: 50e6, MaxNS: 4e6, LostShare: 0.05}}}
	for i, v := range []float64{17.1e9, 16.8e9, 17.3e9, 12e9, 17.2e9} {
		b.Runs = append(b.Runs, Run{Values: map[string]float64{"goodput_bps": v, "retransmits": float64(i), "p50_ns": 15_930},
			DurationNS: 5e9, CPUNS: 5e9, CPUSecondsPerGB: 40 / (v * 5 / 1e9), GapMaxNS: 2e6})
	}
	b.Summarize()
	return b
}

func congs() *Cong {
	c := &Cong{Machine: bench().Machine, Rows: []CongRow{
		{Cong: "reno", Batch: 32, SampleNS: Summary("sample_ns", []float64{14.8, 14.9}), RenoRatio: 1},
		{Cong: "bbr", Batch: 32, SampleNS: Summary("sample_ns", []float64{47.5, 80}), RenoRatio: 4.2, AtMost: 4},
	}}
	c.Judge()
	return c
}

func floor() *Floor {
	peer := Summary("rate_per_s", []float64{43_000, 42_000, 44_500})
	f := &Floor{Machine: bench().Machine, Peer: "gVisor", Rows: []FloorRow{
		{Name: "rr", Ours: Summary("rate_per_s", []float64{190e3, 180e3, 260e3}), Peer: &peer, RefMedian: 43_000, RequireRatio: 5},
		{Name: "bulk", Ours: Summary("goodput_bps", []float64{19e9}), RefMedian: 2.1e9, RequireRatio: 8},
		{Name: "idle", Ours: Summary("endpoint_bytes", []float64{1490, 1480}), RefMedian: 5700, RequireMost: 1500},
	}}
	f.Judge()
	return f
}

func pace() *Pace {
	p := &Pace{Machine: bench().Machine, Rows: []PaceRow{
		{Proof: "precision", Name: "8 Gbit/s", Virtual: true, Value: Summary("mean_bps", []float64{7_999_990_000}), Founding: 7999.75e6, AtLeast: 7999.92e6,
			AtMost: 8000.08e6, Figures: map[string]float64{"late_p50_ns": 16_430, "ahead_pieces": 1.25}},
		{Proof: "realtime", Name: "memlink, 8 Gbit/s", Value: Summary("short_per_bare_ratio", []float64{1.1, 1.3, 1.25}), AtMost: 1.2, Figures: map[string]float64{}},
		{Proof: "realtime", Name: "net_null", Figures: map[string]float64{}, Note: "built without DPDK"},
	}}
	p.Judge()
	return p
}

func TestJudgePace(t *testing.T) {
	p := pace()
	for i, want := range []string{"met", "missed", "reported"} {
		if p.Rows[i].Verdict != want {
			t.Errorf("%s: %s, want %s", p.Rows[i].Name, p.Rows[i].Verdict, want)
		}
	}
	if !p.Met {
		t.Error("a figure in real time fails the benchmark")
	}
	p.Rows[0].AtLeast = 8e9
	if p.Judge(); p.Met || p.Rows[0].Verdict != "missed" {
		t.Errorf("%+v", p.Rows[0])
	}
}

func TestJudge(t *testing.T) {
	f := floor()
	for i, want := range []string{"missed", "unknown", "met"} {
		if f.Rows[i].Verdict != want {
			t.Errorf("%s: %s, want %s", f.Rows[i].Name, f.Rows[i].Verdict, want)
		}
	}
	if f.Met {
		t.Error("met, although one row is missed")
	}
	f.Rows[0].RequireRatio = 4
	f.Rows[2].RequireMost = 1400
	if f.Judge(); f.Rows[0].Verdict != "met" || f.Rows[2].Verdict != "missed" {
		t.Errorf("%+v", f.Rows)
	}
}

func sim() *Sim {
	return &Sim{
		Scenario: "loss-1-percent", Seed: 7, DurationNS: 60e9, Complete: true,
		Flows: []Flow{
			{Name: "a", Rtx: "btree", Pace: "edt", Cong: "bbr", StartNS: 1e6, EndNS: 10e9, PayloadBytes: 1 << 30, GoodputBPS: 859_079_268, SentBytes: 1_084_479_242,
				Segments: 748_950, Retransmits: 7_417, Lost: 7_420, Dropped: 7_410, Recoveries: 12, Undos: 1, Probes: 2,
				RTT:       RTT{Samples: 370_000, MinNS: 150e6, P50NS: 150_012_345, P95NS: 151e6, P99NS: 152e6, MaxNS: 160e6, MeanNS: 150_100_000},
				CwndBytes: 33_000_000, CwndMaxBytes: 66_000_000, SsthreshBytes: 1 << 20, Verified: true},
			{Flow: 1, Name: "b", Rtx: "list", Pace: "none", Cong: "reno", PayloadBytes: 1000, GoodputBPS: 1_420_000, Timeouts: 3,
				Transactions: RTT{Samples: 5, MinNS: 1e6, P50NS: 2e6, P95NS: 3e6, P99NS: 4e6, MaxNS: 5e6, MeanNS: 3e6}},
		},
		Links: []Link{{Name: "a→b", RateBPS: 10e9, DelayNS: 75e6, Frames: 748_950, FrameBytes: 1_133_000_000, Delivered: 741_500, LostRandom: 7_410,
			LostQueue: 40, Duplicated: 1, Reordered: 2, Corrupted: 3, Marked: 4, QueueMaxBytes: 1 << 20, QueueMeanBytes: 4096, UtilPerMille: 86},
			{Name: "b→a", DelayNS: 75e6}},
		Events: []Event{{TimeNS: 5e9, Kind: "swap", Message: "cong: bbr → cdg"}},
	}
}

// TestSchema: names and form of the JSON are as committed. Renaming a field breaks programs that read it.
func TestSchema(t *testing.T) {
	for file, v := range map[string]any{"bench.json": bench(), "sim.json": sim(), "floor.json": floor(), "pace.json": pace(), "cong.json": congs()} {
		got, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, file, append(got, '\n'))
		again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := json.Unmarshal(got, again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, again); diff != "" {
			t.Errorf("%s does not survive decoding:\n%s", file, diff)
		}
	}
}

// TestNames: names are in snake case, and end in the unit that the field's name says.
func TestNames(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := f.Tag.Get("json")
			if !snake.MatchString(name) {
				t.Errorf("%v.%s: %q is not in snake case", typ, f.Name, name)
			}
			for suffix, unit := range map[string]string{"NS": "_ns", "Bytes": "_bytes", "BPS": "_bps"} {
				if strings.HasSuffix(f.Name, suffix) != strings.HasSuffix(name, unit) {
					t.Errorf("%v.%s: %q", typ, f.Name, name)
				}
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Bench]())
	walk(reflect.TypeFor[Floor]())
	walk(reflect.TypeFor[Pace]())
	walk(reflect.TypeFor[Sim]())
}

// TestSimIntegers: a simulation's results hold no floating-point number.
func TestSimIntegers(t *testing.T) {
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Float64, reflect.Float32:
			t.Errorf("%v in Sim", typ)
		case reflect.Slice:
			walk(typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type)
			}
		}
	}
	walk(reflect.TypeFor[Sim]())
	walk(reflect.TypeFor[Point]())
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := bench().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := sim().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := floor().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := pace().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := congs().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := module().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "text.txt", b.Bytes())
}

func TestSeries(t *testing.T) {
	var b bytes.Buffer
	s, err := NewSeries(&b)
	if err != nil {
		t.Fatal(err)
	}
	p := Point{TimeNS: 1, Flow: 2, State: "open", CwndBytes: 3, SsthreshBytes: 4, InFlightBytes: 5, SRTTNS: 6, MinRTTNS: 7, RTTNS: 8,
		DeliveryBPS: 9, PacingBPS: 10, DeliveredBytes: 11, Retransmits: 12, Lost: 13, QueueBytes: 14}
	if err := s.Add(&p); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = s.Add(&p) }); n != 0 {
		t.Errorf("%v allocations per line", n)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	header, rest, _ := strings.Cut(b.String(), "\n")
	line, _, _ := strings.Cut(rest, "\n")
	if line != "1,2,open,3,4,5,6,7,8,9,10,11,12,13,14" || strings.Count(header, ",") != strings.Count(line, ",") {
		t.Errorf("%s\n%s", header, line)
	}
	// The columns stand in the order of the fields, and are named after them.
	cols := strings.Split(header, ",")
	for i := range reflect.TypeFor[Point]().NumField() {
		field := reflect.TypeFor[Point]().Field(i).Name
		if plain := strings.ReplaceAll(cols[i], "_", ""); !strings.EqualFold(plain, field) {
			t.Errorf("column %q stands for %s", cols[i], field)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		v       []float64
		q, want float64
	}{
		{[]float64{5}, 0.5, 5}, {[]float64{1, 2}, 0.5, 1.5}, {[]float64{1, 2, 3, 4}, 0.25, 1.75}, {[]float64{1, 2, 3, 4, 5}, 0.75, 4}, {[]float64{1, 9}, 1, 9},
		{[]float64{1, 9}, 0, 1},
	} {
		if got := Quantile(tt.v, tt.q); got != tt.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", tt.v, tt.q, got, tt.want)
		}
	}
}

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		bps  []int64
		want int64
	}{{nil, 0}, {[]int64{0, 0}, 0}, {[]int64{5e6, 5e6, 5e6}, 1000}, {[]int64{1e9, 0}, 500}, {[]int64{3e6, 1e6}, 800}} {
		var s Sim
		for _, b := range tt.bps {
			s.Flows = append(s.Flows, Flow{GoodputBPS: b})
		}
		if got := s.Jain(); got != tt.want {
			t.Errorf("Jain(%v) = %d, want %d", tt.bps, got, tt.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		unit string
		want string
	}{
		{2.1e9, "bit/s", "2.100 Gbit/s"}, {43_000, "1/s", "43.00k/s"}, {15_930, "ns", "15.93 µs"}, {999, "ns", "999.0 ns"}, {0, "ns", "0 ns"},
		{1500, "bytes", "1.500 kB"}, {12345, "", "12345"}, {0.5, "", "0.5000"}, {3.4e9, "ns", "3.400 s"}, {0.466, "s/GB", "0.4660 s/GB"}, {-1500, "ns", "-1.500 µs"},
	} {
		if got := Format(tt.v, tt.unit); got != tt.want {
			t.Errorf("Format(%v, %q) = %q, want %q", tt.v, tt.unit, got, tt.want)
		}
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine(20 * time.Millisecond)
	if m.Cores < 1 || m.GoVersion == "" || m.Kernel == "" || m.CPU == "" {
		t.Errorf("%+v", m)
	}
	if g := m.Gaps; g.MeasuredNS < 20e6 || g.LostNS > g.MeasuredNS || g.MaxNS > g.LostNS || g.Over10us == 0 && g.LostNS > 0 {
		t.Errorf("%+v", g)
	}
	if cpuModel("/nonexistent") != "unknown" {
		t.Error("cpuModel of a missing file")
	}
}

func module() *Module {
	m := &Module{Params: map[string]string{"rtx": "btree", "pace": "none", "cong": "reno", "size": "65536B", "time": "2s", "pairs": "2"}, Machine: bench().Machine}
	for i, kinds := range [][]string{{"cong"}, {"rtx", "pace", "cong"}, {"rtx", "pace", "cong"}} {
		c := ModuleCell{Kinds: kinds, Flows: 10, Wait: "park", Together: i == 2}
		for i := range 2 {
			x := float64(i)
			c.Runs = append(c.Runs, Run{Values: map[string]float64{ModuleBuiltin: 30e9 + x*1e9, ModuleProcess: 28e9, ModuleRatio: 28 / (30 + x), ModuleBuiltinCPU: 0.31,
				ModuleProcessCPU: 0.40, ModuleEvents: 123_456, ModuleEvent: 321.5, ModuleP50: 262_143, ModuleP99: 1_835_007, ModuleP999: 3e6, ModuleWakes: 20, ModuleAllocs: 0}})
		}
		c.Summarize()
		m.Cells = append(m.Cells, c)
	}
	return m
}
