package main

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
)

const scenario = `duration = "2s"
[link.both]
delay = "5ms"
[link.a_to_b]
rate = "20Mbit/s"
queue = "50kB"
loss.random = "0.5%"
[[flow]]
name = "up"
kind = "bulk"
bytes = "300kB"
`

func simFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "one.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSim: all outputs of a run.
func TestSim(t *testing.T) {
	file := simFile(t, scenario)
	out := func(name string) string { return filepath.Join(filepath.Dir(file), name) }
	code, stdout, stderr := fastpath("sim", file, "--json", "--cong", "bbr", "--seed", "9", "--csv", out("x.csv"), "--plot", out("x.svg"), "--pcap", out("x.pcapng"))
	var r report.Sim
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v, %q, %q", code, err, stdout, stderr)
	}
	if r.Scenario != "one" || r.Seed != 9 || !r.Complete || r.Flows[0].Cong != "bbr" || r.Flows[0].PayloadBytes != 300_000 {
		t.Errorf("%+v", r)
	}
	csv, err := os.ReadFile(out("x.csv"))
	if err != nil || !strings.HasPrefix(string(csv), report.SeriesHeader) || strings.Count(string(csv), "\n") < 20 {
		t.Errorf("%v, %q", err, csv)
	}
	svg, err := os.Open(out("x.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer svg.Close()
	for d := xml.NewDecoder(svg); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
	if n := countFrames(t, out("x.pcapng")); n < r.Links[0].Delivered {
		t.Errorf("%d frames captured of %d", n, r.Links[0].Delivered)
	}
}

func countFrames(t *testing.T, file string) (n int64) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := r.ReadPacketData(); err == io.EOF {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

func TestSimCompare(t *testing.T) {
	file := simFile(t, scenario)
	out := func(name string) string { return filepath.Join(filepath.Dir(file), name) }
	svg := out("x.svg")
	code, stdout, stderr := fastpath("sim", file, "--json", "--compare", "cong=reno", "--plot", svg, "--csv", out("x.csv"), "--pcap", out("x.pcapng"))
	var r []report.Sim
	if err := json.Unmarshal([]byte(stdout), &r); code != 0 || err != nil || len(r) != 2 || r[0].Flows[0].Cong != "cubic" || r[1].Flows[0].Cong != "reno" {
		t.Errorf("exit code %d, %v, %q, %q", code, err, stdout, stderr)
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.Contains(string(text), "one, seed 1 | one reno, seed 1") && !strings.Contains(string(text), "one reno") {
		t.Errorf("the plot does not name the second run: %v", err)
	}
	series := map[string]bool{}
	for i, name := range []string{"x.csv", "x-2.csv"} {
		csv, err := os.ReadFile(out(name))
		if err != nil || !strings.HasPrefix(string(csv), report.SeriesHeader) {
			t.Errorf("%s: %v", name, err)
		}
		series[string(csv)] = true
		frames := strings.TrimSuffix(name, "csv") + "pcapng"
		if n := countFrames(t, out(frames)); i < len(r) && n < r[i].Links[0].Delivered {
			t.Errorf("%s: %d frames of %d", frames, n, r[i].Links[0].Delivered)
		}
	}
	if len(series) != 2 {
		t.Error("both runs have the same time series")
	}
	if code, stdout, stderr = fastpath("sim", file, "--compare", file); code != 0 || strings.Count(stdout, "one seed=1") != 2 {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// TestSimErrors: a scenario that is wrong, and one whose flow cannot end.
func TestSimErrors(t *testing.T) {
	file := simFile(t, strings.Replace(scenario, "kind =", "kin =", 1))
	if code, out, errOut := fastpath("sim", file); code != 1 || out != "" || !strings.Contains(errOut, "one.toml:10: flow[0].kin: unknown key") {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	file = simFile(t, strings.Replace(scenario, "0.5%", "100%", 1))
	if code, out, errOut := fastpath("sim", file); code != 1 || !strings.Contains(out, "complete=false") || errOut != "" {
		t.Errorf("exit code %d, %q, %q", code, out, errOut)
	}
	for _, args := range [][]string{{"nonexistent.toml"}, {file, "--plot", "x.png"}, {file, "--cong", "vegas"}, {file, "--compare", "cong=vegas"}, {file, "--compare", "nonexistent"}} {
		if code, _, errOut := fastpath(append([]string{"sim"}, args...)...); code != 1 || !strings.HasPrefix(errOut, "fastpath: ") {
			t.Errorf("%v: exit code %d, %q", args, code, errOut)
		}
	}
}

// TestSimReport: a module of one's own, built from its directory, beside built-in ones, in a page that stands by itself.
func TestSimReport(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is needed to build the example: ", err)
	}
	t.Setenv("GOWORK", "off")
	file := simFile(t, "description = \"A short one.\"\n"+strings.Replace(scenario, "300kB", "1MB", 1)+"[[flow]]\nname = \"other\"\nkind = \"bulk\"\ncong.use = \"cubic\"\n")
	html := filepath.Join(filepath.Dir(file), "x.html")
	code, stdout, stderr := fastpath("sim", "--cong", "../../plugins/example", "--against", "reno, bbr", "--report", html, "--seed", "3", file)
	if code != 0 || strings.Count(stdout, "\none ") != 3 || !strings.Contains(stdout, "one       aimd") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h1>aimd beside reno, bbr</h1>", "A short one. Seed 3.", `<tr class="subject"><td>aimd</td>`, "<td>bbr</td>", "--seed 3 " + file} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	_, svg, _ := strings.Cut(string(page), "<svg")
	svg, _, ok := strings.Cut("<svg"+svg, "</svg>")
	for d := xml.NewDecoder(strings.NewReader(svg + "</svg>")); ok; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
	if !ok || strings.Contains(string(page), "src=") || strings.Contains(string(page), "<script") {
		t.Error("no plot, or one from elsewhere")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--report", html}, "which congestion control?"},
		{[]string{"--report", "x.pdf", "--cong", "bbr"}, "does not end in .html"},
		{[]string{"--report", html, "--cong", "vegas", file}, `no cong module "vegas"`},
		{[]string{"--report", html, "--cong", "bbr", "--against", "vegas", file}, `no cong module "vegas"`},
		{[]string{"--report", html, "--cong", "./nonexistent", file}, "no such file"},
		{[]string{"--report", html, "--cong", "/bin/true", file}, "module /bin/true"},
		{[]string{"--report", html, "--cong", "bbr", "--json", file}, "goes with"},
		{[]string{"--report", html, "--cong", "bbr", file, file}, "two scenarios"},
		{[]string{"--cong", "../../plugins/example", file}, "needs --report"},
		{[]string{file, file}, "2 scenario files"},
		{nil, "0 scenario files"},
	} {
		if code, _, stderr := fastpath(append([]string{"sim"}, c.args...)...); code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %q, want %q", c.args, code, stderr, c.want)
		}
	}
}
