package sim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// TestProblems: all that is wrong is reported at once, with file, line and key.
func TestProblems(t *testing.T) {
	const text = `seed = 1
durration = "1s"
[host.a.cong]
use = "vegas"
[host.b.rtx]
use = "btree"
params = { nothing = 1 }
[link.both]
queue = "1MB"
jitter = "5ms"
loss.random = "101%"
[link.a_to_b]
reorder.chance = "1%"
[[flow]]
kind = "bulk"
request = "1kB"
stop = "2s"
[[flow]]
name = "1"
kind = "rr"
request = "1kB"
[[flow]]
kind = "file"
[[event]]
at = "1s"
swap = "cong"
[[event]]
at = "0s"
host = "a"
set.delay = "1ms"
[[event]]
at = "0s"
memory = "1kB"
path = "both"
[[event]]
at = "0s"
memory = "1MB"
swap = "cong cdg"
`
	_, err := Parse("x.toml", []byte(text))
	var ps conf.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`x.toml:2: durration: unknown key; did you mean "duration"?`,
		`x.toml:1: duration: needed`,
		`x.toml:4: host.a.cong.use: no cong module "vegas"`,
		`x.toml:7: host.b.rtx.params: btree: nothing: unknown parameter`,
		`x.toml:9: link.both.queue: without a rate nothing queues`,
		`x.toml:10: link.both.jitter: 5ms is more than the delay of 0s`,
		`x.toml:11: link.both.loss.random: "101%" is more than 100%`,
		`x.toml:13: link.a_to_b.reorder: by is needed`,
		`x.toml:16: flow[0].request: only with kind = "rr"`,
		`x.toml:19: flow[1].name: a second flow "1"`,
		`x.toml:18: flow[1].response: needed with kind = "rr"`,
		`x.toml:23: flow[2].kind: "file" is not one of`,
		`x.toml:26: event[0].swap: "cong": write it as "cong cdg"`,
		`x.toml:33: event[2].memory: 1000B is less than 64KiB`,
		`x.toml:34: event[2].path: only with set`,
		`x.toml:35: event[3]: one of swap = "KIND MODULE", memory or a table set is needed`,
		`x.toml:29: event[1].host: only with swap or memory`,
	} {
		found := false
		for _, p := range ps {
			found = found || strings.HasPrefix(p.Error(), want)
		}
		if !found {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("reported:\n%v", err)
	}
}

// TestInherit: a direction has the keys of both unless it has its own; an event changes only what it names.
func TestInherit(t *testing.T) {
	s, err := Parse("x.toml", []byte(`duration = "1s"
host.a.cong = { use = "bbr" }
[link.both]
rate = "10Mbit/s"
delay = "5ms"
loss = { random = "1%", frames = [3] }
[link.b_to_a]
rate = "1Mbit/s"
loss.random = "0%"
[[flow]]
kind = "bulk"
[[flow]]
kind = "bulk"
from = "b"
pace.use = "none"
[[event]]
at = "500ms"
path = "a_to_b"
set.delay = "7ms"
[[event]]
at = "100ms"
path = "both"
set.rate = "2Mbit/s"
`))
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	for _, c := range []struct {
		what string
		got  *Path
		want memlink.Path
	}{
		{"a to b", &s.Link.AtoB, memlink.Path{Rate: 10e6, Delay: 5 * ms, Loss: memlink.Loss{Random: memlink.Percent, Frames: []uint64{3}}}},
		{"b to a", &s.Link.BtoA, memlink.Path{Rate: 1e6, Delay: 5 * ms, Loss: memlink.Loss{Frames: []uint64{3}}}},
		{"first event, a to b", &s.Events[0].aToB, memlink.Path{Rate: 2e6, Delay: 5 * ms, Loss: memlink.Loss{Random: memlink.Percent, Frames: []uint64{3}}}},
		{"second event, a to b", &s.Events[1].aToB, memlink.Path{Rate: 2e6, Delay: 7 * ms, Loss: memlink.Loss{Random: memlink.Percent, Frames: []uint64{3}}}},
		{"second event, b to a", &s.Events[1].bToA, memlink.Path{Rate: 2e6, Delay: 5 * ms, Loss: memlink.Loss{Frames: []uint64{3}}}},
	} {
		if diff := cmp.Diff(c.want, c.got.memlink()); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
	if f := &s.Flows[0]; f.Cong.Use != "bbr" || f.own != [plugins.NumKinds]bool{} {
		t.Errorf("%+v", f)
	}
	if f := &s.Flows[1]; f.Cong.Use != "cubic" || f.Pace.Use != "none" || f.own != [plugins.NumKinds]bool{plugins.Pace: true} {
		t.Errorf("%+v", f)
	}
}

func TestProbability(t *testing.T) {
	for _, c := range []struct {
		in   string
		want memlink.PPB
		ok   bool
	}{
		{"1%", memlink.Percent, true}, {"0.0000001%", 1, true}, {"100%", memlink.Always, true}, {"12.5 %", memlink.Percent * 25 / 2, true},
		{"0.00000001%", 0, false}, {"100.1%", 0, false}, {"-1%", 0, false}, {"1", 0, false}, {"%", 0, false}, {"1e2%", 0, false}, {"..%", 0, false},
	} {
		var p Probability
		if err := p.UnmarshalText([]byte(c.in)); err == nil != c.ok || memlink.PPB(p) != c.want {
			t.Errorf("%q: %d, %v", c.in, p, err)
		}
	}
}

// FuzzScenario: any file gives a scenario or problems that name a line of it; what is accepted can be run.
func FuzzScenario(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.toml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("f.toml", data)
		if err != nil {
			var ps conf.Problems
			if !errors.As(err, &ps) {
				t.Fatalf("not a list of problems: %v", err)
			}
			lines := strings.Count(string(data), "\n") + 1
			for _, p := range ps {
				if p.Line < 1 || p.Line > lines || p.Message == "" {
					t.Fatalf("%v: the file has %d lines", p, lines)
				}
			}
			return
		}
		// A short run, so that a long scenario takes no time; buffers and links as the scenario has them.
		s.Duration = min(s.Duration, conf.Duration(2*time.Millisecond))
		for i := range s.Flows {
			s.Flows[i].Stop = min(s.Flows[i].Stop, s.Duration)
		}
		if _, err := Run(s, Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

// How late a port tells is bounded, and whether it keeps frames at all cannot change.
func TestHoldKeys(t *testing.T) {
	for _, c := range []struct{ link, set, want string }{
		{`hold = "2s"`, `hold = "1ms"`, "link.a_to_b.hold: 2s is not within 0s … 1s"},
		{`hold_each = "1001ms"`, `hold_each = "1ms"`, "link.a_to_b.hold_each: 1.001s is not within 0s … 1s"},
		{`rate = "1Mbit/s"`, `hold_each = "1ms"`, "event[0].set: link.a_to_b has neither hold nor hold_each from the start"},
		{`hold = "1ms"`, `hold = "0s", hold_each = "1ms"`, ""},
	} {
		text := "duration = \"1s\"\n[link.a_to_b]\n" + c.link + "\n[[flow]]\nkind = \"bulk\"\n[[event]]\nat = \"0s\"\npath = \"a_to_b\"\nset = { " + c.set + " }\n"
		s, err := Parse("x.toml", []byte(text))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s, %s: %v", c.link, c.set, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s, %s: %v, want %s", c.link, c.set, err, c.want)
		case c.want == "":
			if p := s.Link.AtoB.memlink(); p.Hold != time.Millisecond {
				t.Errorf("%+v", p)
			}
		}
	}
}
