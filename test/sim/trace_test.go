package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// TestTrace: flows follow rates that change, to an outage and back; the link never carries more than its trace says, and in each phase it
// is used as far as a window can fill it.
func TestTrace(t *testing.T) {
	t.Parallel()
	r := run(t, load(t, "trace"), Options{})
	plausible(t, r)
	golden(t, "trace", r)
	for _, c := range []struct {
		from, to time.Duration
		rate     float64 // bit/s
	}{
		{2 * time.Second, 3 * time.Second, 20e6}, {4 * time.Second, 5 * time.Second, 8e6}, {5200 * time.Millisecond, 6 * time.Second, 2e6},
		{6040 * time.Millisecond, 6400 * time.Millisecond, 0}, {6500 * time.Millisecond, 8 * time.Second, 10e6}, {10500 * time.Millisecond, 12 * time.Second, 12e6},
	} {
		most := c.rate * segPayload / segFrame
		got := float64(delivered(r, 0, c.from, c.to)) * 8 / (c.to - c.from).Seconds()
		t.Logf("%v … %v: %.2f of %.2f Mbit/s", c.from, c.to, got/1e6, most/1e6)
		if got > most*1.02+1e5 || got < most*0.9-1e5 {
			t.Errorf("%v … %v: %.0f bit/s of payload, the link carries %.0f", c.from, c.to, got, most)
		}
	}
	for i := range r.Report.Links {
		if l := &r.Report.Links[i]; l.QueueMaxBytes > 200e3 || l.LostRandom != 0 || l.RateBPS == 0 {
			t.Errorf("%+v", l)
		}
	}
}

// TestTraceEvents: an event gives a path another trace, which counts from the start as well, or a rate in place of it.
func TestTraceEvents(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.trace", "0s 8Mbit/s\n1s 80Mbit/s\n")
	write("s.toml", `duration = "3s"
[link.both]
delay = "1ms"
rate = "8Mbit/s"
queue = "50kB"
[[flow]]
kind = "bulk"
[[event]]
at = "1500ms"
path = "a_to_b"
set = { rate = "0bit/s", trace = "a.trace" }
[[event]]
at = "2s"
set = { rate = "8Mbit/s", trace = "" }
`)
	s, err := Load(filepath.Join(dir, "s.toml"))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, s, Options{})
	for _, c := range []struct {
		from, to float64
		rate     float64
	}{{0.5, 1.5, 8e6}, {1.6, 2, 80e6}, {2.2, 3, 8e6}} {
		got := float64(delivered(r, 0, time.Duration(c.from*1e9), time.Duration(c.to*1e9))) * 8 / (c.to - c.from)
		if most := c.rate * segPayload / segFrame; got > most*1.02 || got < most*0.85 {
			t.Errorf("%v … %v s: %.0f bit/s of payload, the link carries %.0f", c.from, c.to, got, most)
		}
	}
	for i, l := range r.Report.Links {
		if l.RateBPS != 8e6 || l.UtilPerMille > 1000 {
			t.Errorf("link %d: %d bit/s, used to %d/1000", i, l.RateBPS, l.UtilPerMille)
		}
	}
}

// TestTraceFile: what a trace file may say, and that errors name the file and the line.
func TestTraceFile(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ text, err string }{
		{"# none\n\n", "t:2: no line with a time"},
		{"", "t:1: no line with a time"},
		{"0s 1Mbit/s\n1s\n", `t:2: lines of both kinds`},
		{"1\n2 3\n", `t:2: lines of both kinds`},
		{"1\n0\n", `t:2: 0 ms lies before the line above`},
		{"0\n0\n", `t:2: the last time is 0`},
		{"3600001\n", `t:1: 3600001 ms is more than 1h`},
		{"-1\n", `t:1: "-1" is not a time in ms, a whole number`},
		{"1.5\n", `t:1: "1.5" is not a time in ms`},
		{"1s 1Mbit/s\n", `t:1: the first line is for 0s, not 1s`},
		{"0s 1Mbit/s\n1s 2Mbit/s\n1s 3Mbit/s\n", `t:3: 1s does not lie behind the line above`},
		{"0s 1Mbit/s\n0.5 2Mbit/s\n", `t:2: "0.5" is not a duration`},
		{"0s 1Mbit/s\n1s fast\n", `t:2: "fast" is not a rate`},
		{"0s 1Mbit/s\n1s 2000Tbit/s\n", `t:2: 2000Tbit/s is more`},
		{"0s 1Mbit/s\n25h 1Mbit/s\n", `t:2: 25h0m0s is more than 24h0m0s`},
		{"0s 1Mbit/s\n1s 0bit/s\n", `t:2: the last rate goes on for ever, and is 0`},
		{"0s 1Mbit/s 2\n", `t:1: 3 fields`},
		{"1\n" + strings.Repeat("#", 1<<17), `t:2: bufio.Scanner: token too long`},
		{strings.Repeat("1\n", maxTrace/2+1), `t: more than 8 MiB`},
	} {
		tr, err := parseTrace("t", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%.40q: %v, %v; want %s", c.text, tr, err, c.err)
		}
	}
	for _, c := range []struct {
		text string
		want memlink.Trace
	}{
		{"0s 1Mbit/s # slow\r\n\n 500ms\t0bit/s\n1m 10MB/s", memlink.Trace{Start: Start, Steps: []memlink.Step{{At: 0, Rate: 1e6}, {At: 500 * ms, Rate: 0}, {At: 60000 * ms, Rate: 80e6}}}},
		{"0\n5\n5\n20\n", memlink.Trace{Start: Start, Opportunities: []time.Duration{0, 5 * ms, 5 * ms, 20 * ms}}},
	} {
		got, err := parseTrace("t", []byte(c.text))
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		} else if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}

// TestTraceProblems: the scenario's line names the trace file and its line; a file is looked for beside the scenario only.
func TestTraceProblems(t *testing.T) {
	for _, c := range []struct{ link, want string }{
		{"both.trace = \"none.trace\"", "testdata/x.toml:3: link.both.trace: stat testdata/none.trace: no such file"},
		{"a_to_b.trace = \"clean.toml\"", "testdata/x.toml:3: link.a_to_b.trace: testdata/clean.toml:1: "},
		{"a_to_b.trace = \"../sim.go\"", "testdata/x.toml:3: link.a_to_b.trace: \"../sim.go\": the file must lie beside the scenario"},
		{"a_to_b.trace = \"traces\"", "testdata/x.toml:3: link.a_to_b.trace: testdata/traces is not a file"},
		{"both = { rate = \"1Mbit/s\", trace = \"traces/steps.trace\" }", "testdata/x.toml:3: link.both.trace: not with rate"},
		{"both.rate = \"1Mbit/s\"\n[[event]]\nat = \"0s\"\nset.trace = \"traces/steps.trace\"", "testdata/x.toml:6: event[0].set.trace: not with rate"},
		{"both.rate = \"1Mbit/s\"\n[[event]]\nat = \"0s\"\nset = { trace = \"n\", rate = \"0bit/s\" }", "testdata/x.toml:6: event[0].set.trace: stat testdata/n: no such file"},
	} {
		_, err := Parse("testdata/x.toml", []byte("duration = \"1s\"\n[link]\n"+c.link+"\n[[flow]]\nkind = \"bulk\"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s:\n%v\nwant %s", c.link, err, c.want)
		} else if strings.Count(err.Error(), "\n") > 1 {
			t.Errorf("%s: told more than twice:\n%v", c.link, err)
		}
	}
}

// FuzzTrace: any text gives a trace that a link takes, or an error that names a line of it.
func FuzzTrace(f *testing.F) {
	files, _ := filepath.Glob("testdata/traces/*")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := parseTrace("f", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatal(err)
			}
			return
		}
		clock := &Clock{now: Start}
		if _, _, err := memlink.New(memlink.Config{Now: clock.Now, Virtual: true, Bufs: 16, AtoB: memlink.Path{Trace: tr}}); err != nil {
			t.Fatal(err)
		}
		if a, b := tr.Bits(Start, Start+1e9), tr.Bits(Start, Start+2e9); a > b {
			t.Fatalf("%d bits in the first second, %d in two", a, b)
		}
	})
}
