package conf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// builtin are modules that know one parameter, n, which is "1", and complain of their mood as a whole.
func builtin(_ plugins.Kind, name string) func(plugins.Params) error {
	if name != "btree" && name != "edt" && name != "bbr" && name != "cubic" {
		return nil
	}
	return func(p plugins.Params) error {
		var errs []error
		for _, param := range slices.Sorted(maps.Keys(p)) {
			switch {
			case param == "mood":
				errs = append(errs, errors.New("in no mood"))
			case param != "n":
				errs = append(errs, &plugins.ParamError{Module: name, Param: param, Problem: "unknown parameter"})
			case p[param] != "1":
				errs = append(errs, &plugins.ParamError{Module: name, Param: param, Problem: "is not 1"})
			}
		}
		return errors.Join(errs...)
	}
}

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestReadMachine(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/devices/system/cpu/present":                                 "0-3\n",
		"sys/devices/system/cpu/isolated":                                "2-3\n",
		"sys/devices/system/cpu/nohz_full":                               "(null)\n",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list":      "0,2\n",
		"proc/irq/24/smp_affinity_list":                                  "0-1\n",
		"proc/irq/24/eth0-rx/x":                                          "",
		"proc/irq/25/smp_affinity_list":                                  "0\n", // nobody requested it
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages":        "12\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages":     "0\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages":        "0\n",
		"sys/devices/system/cpu/cpu0/topology/core_cpus_list_irrelevant": "",
	})
	m, err := ReadMachine(root)
	if err != nil {
		t.Fatal(err)
	}
	m.Allowed, m.Addresses = nil, nil // depend on the machine
	want := &Machine{
		Present: []int{0, 1, 2, 3}, Isolated: []int{2, 3}, Siblings: map[int][]int{0: {0, 2}},
		IRQs: map[int][]string{0: {"24 (eth0-rx)"}, 1: {"24 (eth0-rx)"}}, Free: []string{"2048kB"}, Root: root,
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestThisMachine(t *testing.T) {
	m, err := ReadMachine("")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Allowed) == 0 || len(m.Present) < len(m.Allowed) {
		t.Errorf("present %v, allowed %v", m.Present, m.Allowed)
	}
}

func check(t *testing.T, m *Machine, text string) (errs, warnings string) {
	t.Helper()
	c, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e, w := Check(c, m, builtin)
	return e.Error(), w.Error()
}

func TestCheckCores(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n"})
	m := &Machine{Present: []int{0, 1, 2, 3}, Allowed: []int{0, 1, 2}, Isolated: []int{1}, NoHz: []int{1},
		IRQs: map[int][]string{2: {"24 (eth0)", "25 (eth1)", "26 (a)", "27 (b)", "28 (c)"}}, Siblings: map[int][]int{1: {0, 1}}, Root: root}
	text := port + "queues = 4\n"
	for _, core := range []int{4, 3, 2, 1} {
		text += fmt.Sprintf("[[worker]]\npoll = \"spin\"\ncore = %d\n", core)
	}
	errs, warnings := check(t, m, text)
	const wantErrs = `f:10: worker[0].core: core 4 does not exist (this machine has 0-3)
f:13: worker[1].core: core 3 is not allowed to this process (0-2 are; see taskset, cpuset, CPUAffinity=)`
	const wantWarnings = `f:16: worker[2].core: core 2 is shared with other tasks: boot with isolcpus=2, or keep them away with cpusets
f:16: worker[2].core: core 2 has a timer tick: boot with nohz_full=2 rcu_nocbs=2
f:16: worker[2].core: core 2 may get interrupts 24 (eth0), 25 (eth1), 26 (a), 27 (b) and 1 more: write another core to /proc/irq/N/smp_affinity_list, and stop irqbalance
f:19: worker[3].core: core 1 shares its execution units with core 0: isolate that too, or turn hyper-threading off`
	if diff := cmp.Diff(wantErrs, errs); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantWarnings, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestCheckAdaptive: an adaptive worker shares its core by design, so there is nothing to warn of. It is bound to none.
func TestCheckAdaptive(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n"})
	errs, warnings := check(t, &Machine{Present: []int{0}, Allowed: []int{0}, Root: root}, port+"[[worker]]")
	if errs+warnings != "" {
		t.Errorf("%s\n%s", errs, warnings)
	}
	errs, _ = check(t, &Machine{Present: []int{0}, Allowed: []int{0}, Root: root}, port+"[[worker]]\ncore = 0")
	if !strings.Contains(errs, "worker[0].core: adaptive workers") {
		t.Errorf("bound to a core: %q", errs)
	}
}

func TestCheckNoCoreLeft(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n"})
	errs, _ := check(t, &Machine{Present: []int{0}, Allowed: []int{0}, Root: root}, port+"[[worker]]\npoll = \"spin\"\ncore = 0")
	if !strings.Contains(errs, "leave none of the 1 allowed cores") {
		t.Errorf("errors: %s", errs)
	}
}

func TestCheckModules(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/net/dev": " veth1: 0 0\n", "plug/fastpath-cong-mine": "code", "plug/fastpath-cong-free": "code", "plug/other": "other"})
	sum := sha256.Sum256([]byte("code"))
	good := hex.EncodeToString(sum[:])
	text := port + fmt.Sprintf(`
[modules]
plugin_dir = %q
[modules.rtx]
use = "list"
placement = "builtin"
fallback = "linear"
[modules.cong]
use = "mine"
placement = "process"
sha256 = %q
[[module]]
kind = "cong"
name = "free"
placement = "process"
[[module]]
kind = "cong"
name = "other"
placement = "process"
path = %q
sha256 = %q
[[module]]
kind = "cong"
name = "gone"
placement = "process"
[[module]]
kind = "cong"
name = "bbr"
placement = "process"
`, root+"/plug", good, root+"/plug/other", good)
	errs, _ := check(t, &Machine{Root: root}, text)
	other := sha256.Sum256([]byte("other"))
	want := strings.Join([]string{
		`f:11: modules.rtx.use: rtx list is not built in`,
		`f:13: modules.rtx.fallback: rtx linear is not built in`,
		`f:20: module[0].name: ` + root + `/plug/fastpath-cong-free needs sha256 = "` + good + `", or allow_unpinned = true`,
		`f:27: module[1].sha256: ` + root + `/plug/other has the checksum ` + hex.EncodeToString(other[:]),
		`f:30: module[2].name: cong gone is not built in, and there is no file for it in plugin_dir`,
	}, "\n")
	if diff := cmp.Diff(want, errs); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestCheckFiles(t *testing.T) {
	root := tree(t, map[string]string{"file": "", "proc/self/net/dev": " lo: 0 0\n"})
	errs, _ := check(t, &Machine{Root: root}, port+`
[[port]]
name = "d"
driver = "dpdk"
device = "0000:00:99.0"
addresses = ["10.8.0.1/24"]
[[app]]
kind = "http"
listen = "10.7.0.1:80"
root = "`+root+`/none"
[[app]]
kind = "http"
listen = "10.7.0.1:81"
root = "`+root+`/file"
[dpdk]
hugepages = "require"
`)
	for _, want := range []string{
		`f:5: port[0].interface: there is no interface "veth1"`, `f:11: port[1].device: there is no PCI device`,
		`f:16: app[0].root: stat `, `f:20: app[1].root: `, `is not a directory`, `f:22: dpdk.hugepages: no hugepage is free: echo 128 >`,
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
}

// TestCheckParams: a built-in module is asked about its parameters, wherever it runs; a file is not.
func TestCheckParams(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n", "mine": "code"})
	errs, _ := check(t, &Machine{Root: root}, port+`
[modules.cong]
use = "cubic"
placement = "builtin"
params = {n = 2,
  nope = 1}
[modules.rtx.params]
n = "1"
[modules.pace.params]
mood = true
[[module]]
kind = "cong"
name = "bbr"
placement = "process"
[module.params]
other = 1.5
[[module]]
kind = "cong"
name = "mine"
placement = "process"
path = "`+root+`/mine"
allow_unpinned = true
params = {nope = 1}
`)
	const want = `f:11: modules.cong.params.n: is not 1
f:12: modules.cong.params.nope: unknown parameter
f:15: modules.pace.params: in no mood
f:22: module[0].params.other: unknown parameter`
	if diff := cmp.Diff(want, errs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheckVdev(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n"})
	for vdev, want := range map[string]string{
		"net_af_packet0,iface=NOSUCH":              `f:5: port[0].vdev: there is no interface "NOSUCH": ip link`,
		"net_af_packet1,blocksz=4096,iface=NOSUCH": `f:5: port[0].vdev: there is no interface "NOSUCH": ip link`,
		"net_af_packet0,iface=veth1":               "",
		"net_tap0,iface=NOSUCH":                    "", // makes it
		"net_null0":                                "",
		"net_af_xdp0,start_queue=0,iface=NOSUCH":   `f:5: port[0].vdev: there is no interface "NOSUCH": ip link`,
		"net_af_packet0":                           "", // the driver will tell
	} {
		errs, _ := check(t, &Machine{Root: root, Free: []string{"2048kB"}}, `
[[port]]
name = "a"
driver = "dpdk"
vdev = "`+vdev+`"
addresses = ["10.7.0.1/24"]
`)
		if errs != want {
			t.Errorf("%s: %q, want %q", vdev, errs, want)
		}
	}
}

// TestCheckUnread: what could not be read has its error; the rest is checked all the same, and nothing is said of what depends on it.
func TestCheckUnread(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n"})
	m := &Machine{Present: []int{0, 1}, Allowed: []int{0, 1}, Root: root}
	for _, c := range []struct{ name, text, want string }{
		{"another key", "[tcp]\nbacklog = 0\n[modules.cong]\nuse = \"gone\"\n[modules.rtx.params]\nno = 1",
			"f:10: modules.cong.use: cong gone is not built in, and there is no file for it in plugin_dir\nf:12: modules.rtx.params.no: unknown parameter"},
		{"a guard of the module", "[modules.cong]\nlate = \"2h\"\nuse = \"gone\"", "f:9: modules.cong.use: cong gone is not built in, and there is no file for it in plugin_dir"},
		{"the name", "[modules.cong]\nuse = 5\nparams = {no = 1}", ""},
		{"the placement", "[modules.cong]\nuse = \"gone\"\nplacement = 5", ""},
		{"a misspelled placement", "[modules.cong]\nuse = \"gone\"\nplcement = \"process\"", ""},
		{"a parameter", "[modules.cong]\nparams = {n = [], no = 1}", ""},
		{"the core of one worker", "[[worker]]\npoll = \"spin\"\ncore = \"x\"\n[[worker]]\nport = \"a\"\npoll = \"spin\"\ncore = 7",
			"f:13: worker[1].core: core 7 does not exist (this machine has 0-1)"},
		{"how a worker polls", "[[worker]]\npoll = \"spn\"\ncore = 1", ""},
		{"a line", "[[app]]\nkind = \"http\"\nlisten = \"10.7.0.1:80\"\nroot = \"/none/such\"\n[modules.cong]\nuse = \"gone\"\nplacement = process",
			"f:10: app[0].root: stat /none/such: no such file or directory"},
	} {
		cfg, probs, err := examine("f", []byte(port+c.text+"\n"))
		if err != nil || len(probs) == 0 {
			t.Fatalf("%s: %v, %v", c.name, probs, err)
		}
		errs, _ := Check(cfg, m, builtin)
		if errs.Error() != c.want {
			t.Errorf("%s: the file has\n%v\nand the machine\n%v\nwant\n%v", c.name, probs, errs, c.want)
		}
	}
}

func TestFallbackFor(t *testing.T) {
	yes, no := func(string) bool { return true }, func(string) bool { return false }
	for _, tt := range []struct {
		u       Use
		kind    plugins.Kind
		builtin func(string) bool
		want    string
	}{
		{Use{Use: "bbr", Fallback: "reno"}, plugins.Cong, yes, "reno"}, {Use{Use: "bbr"}, plugins.Cong, yes, "bbr"},
		{Use{Use: "mine"}, plugins.Cong, no, "cubic"}, {Use{Use: "mine"}, plugins.Rtx, no, "btree"}, {Use{Use: "mine"}, plugins.Pace, no, "edt"},
	} {
		if got := tt.u.FallbackFor(tt.kind, tt.builtin); got != tt.want {
			t.Errorf("%v of %+v: %q, want %q", tt.kind, tt.u, got, tt.want)
		}
	}
}

// TestCheckBadFiles: a file with any of the known mistakes can be checked, and no problem comes twice.
func TestCheckBadFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.toml")
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for _, f := range files {
		c, probs, err := Examine(f)
		if err != nil || len(probs) == 0 {
			t.Fatalf("%s: %v, %v", f, probs, err)
		}
		errs, _ := Check(c, &Machine{Root: t.TempDir()}, builtin)
		for _, e := range errs {
			if slices.ContainsFunc(probs, func(p *Problem) bool { return p.Key == e.Key }) {
				t.Errorf("%v comes beside another error", e)
			}
		}
	}
}

// Modules that share a process are processes of one program, with the same processors.
func TestTogether(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n", "mine": "code", "same": "code", "other": "more code"})
	process := func(kind, file string) string {
		s := "[modules." + kind + "]\nplacement = \"process\"\n"
		if file != "" {
			s += "path = \"" + root + "/" + file + "\"\nallow_unpinned = true\n"
		}
		return s
	}
	for _, c := range []struct{ text, want string }{
		{process("rtx", "") + process("cong", ""), ""},
		{process("rtx", "mine") + process("cong", "same"), ""},
		{process("rtx", "mine") + process("cong", "other"), "modules.together[1]: rtx btree is in " + root + "/mine and cong bbr in " + root + "/other: modules of one process are in one program"},
		{process("rtx", "mine") + process("cong", ""), "modules.together[1]: rtx btree is in " + root + "/mine and cong bbr in this program"},
	} {
		errs, _ := check(t, &Machine{Root: root, Present: []int{0, 1}, Allowed: []int{0, 1}}, port+"\n[modules]\ntogether = [\"rtx\", \"cong\"]\n"+c.text)
		if c.want == "" && errs != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %q", c.text, errs)
		}
	}
	for together, want := range map[string]string{`["rtx"]`: "rtx alone cannot share a process", `["rtx", "cong", "rtx"]`: "rtx is there twice", `["rtx", "x"]`: "x",
		`["rtx", "pace"]`: "[modules.pace] has not placement"} {
		if _, err := Parse("x.toml", []byte(port+"\n[modules]\ntogether = "+together+"\n"+process("rtx", "")+process("cong", "")+"[modules.pace]\nplacement = \"builtin\"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("together = %s: %v", together, err)
		}
	}
	if _, err := Parse("x.toml", []byte(port+"\n[modules]\ntogether = [\"rtx\", \"cong\"]\n"+process("rtx", "")+process("cong", "")+"cpus = [1]")); err == nil ||
		!strings.Contains(err.Error(), "modules.together[1]: [modules.cong] has other cpus than [modules.rtx]") {
		t.Error(err)
	}
}

// Without a word of the configuration those kinds share a process that can: which is all, if it says nothing of modules.
func TestShared(t *testing.T) {
	dir := tree(t, map[string]string{"fastpath-rtx-btree": "code"})
	for text, want := range map[string][]string{
		"":                         {"rtx", "pace", "cong"},
		"[modules]\ntogether = []": {},
		"[modules]\ntogether = [\"rtx\", \"cong\"]":                                       {"rtx", "cong"},
		"[modules.rtx]\nplacement = \"builtin\"":                                          {"pace", "cong"},
		"[modules.rtx]\ncpus = [1]":                                                       {"pace", "cong"},
		"[modules.pace]\ncpus = [1]":                                                      {"rtx", "cong"},
		"[modules.pace]\ncpus = [1]\n[modules.cong]\ncpus = [1]":                          {"pace", "cong"},
		"[modules.cong]\npath = \"/mine\"\nallow_unpinned = true":                         {"rtx", "pace"},
		"[modules]\nplugin_dir = \"" + dir + "\"":                                         {"pace", "cong"},
		"[modules.rtx]\ncpus = [1]\n[modules.cong]\ncpus = [2]":                           nil,
		"[modules.rtx]\nplacement = \"builtin\"\n[modules.cong]\nplacement = \"builtin\"": nil,
	} {
		c, err := Parse("x.toml", []byte(port+"\n"+text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := c.Modules.Shared(); !slices.Equal(got, want) {
			t.Errorf("%s: %q share a process, want %q", text, got, want)
		}
	}
}

// The processors of modules exist, are ours, and no spinning worker's.
func TestModuleCPUs(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/net/dev": " veth1: 0 0\n"})
	m := &Machine{Present: []int{0, 1, 2, 3}, Allowed: []int{0, 1, 2}, Isolated: []int{1}, NoHz: []int{1}, Root: root}
	for cpus, want := range map[string]string{"[0, 2]": "", "[]": "", "[4]": "processor 4 does not exist", "[3]": "not allowed", "[1]": "belongs to a spinning worker"} {
		errs, _ := check(t, m, port+"\n[[worker]]\npoll = \"spin\"\ncore = 1\n[modules.rtx]\nplacement = \"process\"\ncpus = "+cpus)
		if want == "" && errs != "" || !strings.Contains(errs, want) {
			t.Errorf("cpus = %s: %q", cpus, errs)
		}
	}
	for text, want := range map[string]string{"[modules.cong]\ncpus = [1, 1]": "1 is there twice", "[modules.pace]\ncpus = [-1]": "out of range", "[modules]\nspin = \"2s\"": "out of range"} {
		if _, err := Parse("x.toml", []byte(port+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
