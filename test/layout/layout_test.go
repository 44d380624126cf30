package layout

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestLayout: the tree keeps the rules.
func TestLayout(t *testing.T) {
	tree, err := Scan(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.imports) < 20 || tree.imports["stack/seq"] == nil {
		t.Fatalf("only %d packages were found", len(tree.imports))
	}
	for _, bad := range tree.Check() {
		t.Error(bad)
	}
}

// TestRules: each rule is found broken where it is broken, and nowhere else.
func TestRules(t *testing.T) {
	src := func(pkg string, imports ...string) *fstest.MapFile {
		s := "// Package " + pkg + " is.\npackage " + pkg + "\n"
		for _, i := range imports {
			if !strings.Contains(i, ".") && ours(i) {
				i = Module + "/" + i
			}
			s += "import _ \"" + i + "\"\n"
		}
		return &fstest.MapFile{Data: []byte(s)}
	}
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const c = "import \"C\"\n"
	for _, tt := range []struct {
		name  string
		files fstest.MapFS
		want  []string
	}{
		{"good", fstest.MapFS{
			"plugins/p.go": src("plugins", "time"), "cong/c.go": src("cong", "plugins"), "plugins/rtx/r.go": src("rtx", "plugins", "stack/seq"),
			"stack/seq/s.go": src("seq"), "stack/wire/w.go": src("wire", "stack/seq"), "pmd/p.go": src("pmd", "plugins"),
			"stack/s.go": src("stack", "pmd", "cong", "plugins/rtx"), "conf/c.go": src("conf", "plugins", "github.com/pelletier/go-toml/v2"),
			"cmd/fastpath/main.go":    text("// Command fastpath is.\npackage main\nimport _ \"" + Module + "/pmd/dpdk\"\n"),
			"cmd/fastpath/d/d.go":     src("d", "pmd/dpdk"),
			"pmd/dpdk/d.go":           text("//go:build dpdk\n\n// Package dpdk is.\npackage dpdk\n" + c + "import _ \"unsafe\"\n"),
			"pmd/go-dpdk/go.mod":      text("module x\n"),
			"pmd/go-dpdk/eal/eal.go":  text("package eal\n" + c + "import _ \"unsafe\"\n"),
			"pmd/ring_unsafe.go":      src("pmd", "unsafe"),
			"pmd/p_test.go":           src("pmd", "unsafe", "stack"), // tests may
			"stack/clock_linux.go":    text("package stack\nimport \"time\"\nvar now = time.Now\n"),
			"stack/d.go":              text("package stack\nimport \"time\"\nconst tick = time.Millisecond\n"),
			"plugins/example/go.mod":  text("module y\n"),
			"plugins/example/main.go": src("main", "stack"),
			"stack/testdata/x.go":     text("not Go"),
		}, nil},
		{"cgo", fstest.MapFS{"stack/s.go": text("// Package stack is.\npackage stack\n" + c)},
			[]string{"stack/s.go: cgo only in pmd/dpdk, pmd/go-dpdk, test/packetdrill"}},
		{"cgo in a test", fstest.MapFS{"stack/s.go": src("stack"), "stack/s_test.go": text("package stack\n" + c)},
			[]string{"stack/s_test.go: cgo only in pmd/dpdk, pmd/go-dpdk, test/packetdrill"}},
		{"cgo without tag", fstest.MapFS{"pmd/dpdk/d.go": text("// Package dpdk is.\npackage dpdk\n" + c)},
			[]string{"pmd/dpdk/d.go: cgo without the build tag dpdk"}},
		{"unsafe", fstest.MapFS{"stack/s.go": src("stack", "unsafe")}, []string{"stack/s.go: unsafe only in files named *_unsafe.go"}},
		{"unsafe in an example", fstest.MapFS{"plugins/example/go.mod": text("module x"), "plugins/example/m.go": src("main", "unsafe")},
			[]string{"plugins/example/m.go: unsafe only in files named *_unsafe.go"}},
		{"dpdk", fstest.MapFS{"pmd/dpdk/d.go": src("dpdk"), "test/sim/a.go": src("sim", "pmd/dpdk")},
			[]string{"test/sim/a.go: only cmd/fastpath imports pmd/dpdk"}},
		{"clock", fstest.MapFS{"cong/c.go": text("// Package cong is.\npackage cong\nimport \"time\"\nfunc f() { time.Sleep(1) }\n")},
			[]string{"cong/c.go: time.Sleep outside a *clock*.go file: time is an argument"}},
		{"module imports stack", fstest.MapFS{"stack/s.go": src("stack"), "cong/bbr/b.go": src("bbr", "stack")},
			[]string{"cong/bbr: modules import neither stack (but stack/seq) nor pmd: cong/bbr → stack"}},
		{"module reaches pmd", fstest.MapFS{"pmd/p.go": src("pmd"), "stack/seq/s.go": src("seq", "pmd"), "plugins/rtx/r.go": src("rtx", "stack/seq")},
			[]string{"plugins/rtx: modules import neither stack (but stack/seq) nor pmd: plugins/rtx → stack/seq → pmd", "stack/seq: stack/seq is a leaf: stack/seq → pmd"}},
		{"types import", fstest.MapFS{"cong/c.go": src("cong"), "plugins/p.go": src("plugins", "cong")},
			[]string{"plugins: plugins holds types only and imports nothing of ours: plugins → cong"}},
		{"wire", fstest.MapFS{"pmd/p.go": src("pmd"), "stack/wire/w.go": src("wire", "pmd")},
			[]string{"stack/wire: stack/wire imports nothing of ours but leaves: stack/wire → pmd"}},
		{"pmd", fstest.MapFS{"stack/wire/w.go": src("wire"), "pmd/tap/t.go": src("tap", "stack/wire")},
			[]string{"pmd/tap: drivers know nothing of the stack: pmd/tap → stack/wire"}},
		{"cmd", fstest.MapFS{"cmd/x/x.go": src("x"), "stack/s.go": src("stack", "cmd/x")},
			[]string{"stack: nothing depends on the command: stack → cmd/x"}},
		{"conf", fstest.MapFS{"conf/c.go": src("conf", "stack"), "stack/s.go": src("stack")},
			[]string{"conf: a configuration can be read without the stack: conf → stack"}},
		{"toml", fstest.MapFS{"stack/s.go": src("stack", "github.com/pelletier/go-toml/v2")},
			[]string{"stack: the stack and the modules do not read configurations: stack → github.com/pelletier/go-toml/v2"}},
		{"doc", fstest.MapFS{"cong/c.go": text("// cong is.\npackage cong\n"), "pmd/p.go": text("package pmd\n"), "pmd/p_test.go": src("pmd")},
			[]string{"cong: no file has a package comment", "pmd: no file has a package comment"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree, err := Scan(tt.files)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tree.Check()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanErrors(t *testing.T) {
	if _, err := Scan(fstest.MapFS{"a.go": {Data: []byte("not Go")}}); err == nil {
		t.Error("a file that is not Go")
	}
}
