package docs

import (
	"bytes"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

const root = "../.."

// documents are those that are checked.
var documents = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "plugins/example/README.md", "pmd/go-dpdk/README.md", "vagrant/README.md"}

func read(t *testing.T, name string) *Doc {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return Parse(string(b))
}

func scan(t *testing.T) *Code {
	t.Helper()
	c, err := Scan(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Packages) < 20 || !c.Declares("stack/worker.go", "Worker.turn") {
		t.Fatalf("only %d packages were found", len(c.Packages))
	}
	return c
}

// each calls f for each document.
func each(t *testing.T, f func(t *testing.T, name string, d *Doc)) {
	for _, name := range documents {
		t.Run(name, func(t *testing.T) { f(t, name, read(t, name)) })
	}
}

// pathLike matches code spans that can only be meant as a path, or as the pattern of one.
var pathLike = regexp.MustCompile(`^[\w*-][\w.*-]*(/[\w.*-]+)+/?$|^[\w*-]+\.(go|md|toml|yml)$|^go\.(mod|sum)$`)

// made are directories that building and running make.
var made = []string{"bin/", "demo-out/"}

// TestPaths: what is named as a path exists, seen from the repository's root or from the document's directory.
func TestPaths(t *testing.T) {
	code := scan(t)
	each(t, func(t *testing.T, name string, d *Doc) {
		for _, s := range d.Spans {
			p := strings.TrimSuffix(s.Text, "/")
			first, _, _ := strings.Cut(p, "/")
			switch {
			case !pathLike.MatchString(s.Text), strings.Contains(first, ".") && first != p: // a host's name: an import path
			case slices.ContainsFunc(made, func(dir string) bool { return strings.HasPrefix(s.Text, dir) }), isStandard(p):
			case !exists(code, p) && !exists(code, path.Join(path.Dir(name), p)):
				t.Errorf("%s:%d: there is no %s", name, s.Line, s.Text)
			}
		}
	})
}

// isStandard reports whether p is a package of the standard library.
func isStandard(p string) bool {
	st, err := os.Stat(filepath.Join(goroot(), "src", p))
	return strings.Contains(p, "/") && err == nil && st.IsDir()
}

// goroot asks the go command: a test built with -trimpath does not know.
var goroot = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out))
})

// exists reports whether p names a file or directory of the tree. A pattern or a name without a directory may be anywhere.
func exists(c *Code, p string) bool {
	if c.Files[p] {
		return true
	}
	for f := range c.Files {
		if strings.HasPrefix(p, "testdata/") && strings.HasSuffix(f, "/"+p) { // many packages have one
			return true
		}
		if ok, _ := path.Match(p, path.Base(f)); ok {
			return true
		}
	}
	return false
}

// TestLinks: links within the repository have a target.
func TestLinks(t *testing.T) {
	code := scan(t)
	each(t, func(t *testing.T, name string, d *Doc) {
		for _, l := range d.Links {
			if strings.Contains(l.Text, "://") {
				continue
			}
			file, section, _ := strings.Cut(l.Text, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if !code.Files[target] {
				t.Errorf("%s:%d: link to %s, which does not exist", name, l.Line, target)
				continue
			}
			if section == "" {
				continue
			}
			if !slices.ContainsFunc(read(t, target).Headings, func(h Piece) bool { return h.Text == section }) {
				t.Errorf("%s:%d: %s has no heading %q", name, l.Line, target, section)
			}
		}
	})
}

var qualified = regexp.MustCompile(`^(\w+)\.(\w+)$`)

// TestNames: names such as `Engine.Output` and `stack.Stack` are declared.
func TestNames(t *testing.T) {
	code := scan(t)
	seen := 0
	each(t, func(t *testing.T, name string, d *Doc) {
		for _, s := range d.Spans {
			if !qualified.MatchString(s.Text) || pathLike.MatchString(s.Text) {
				continue
			}
			has, ours := code.Has(s.Text)
			if ours && !has {
				t.Errorf("%s:%d: %s is not declared anywhere", name, s.Line, s.Text)
			}
			if has {
				seen++
			}
		}
	})
	if seen < 40 {
		t.Errorf("only %d names were found", seen)
	}
}

// TestFunctions: in tables with the columns "function" and "file" each function is declared in one of the row's files.
func TestFunctions(t *testing.T) {
	code := scan(t)
	seen := 0
	for _, r := range read(t, "ARCHITECTURE.md").Rows {
		fn, file := slices.Index(r.Header, "function"), slices.Index(r.Header, "file")
		if fn < 0 || file < 0 {
			continue
		}
		files := SpansOf(r.Cells[file])
		for _, f := range SpansOf(r.Cells[fn]) {
			seen++
			if !slices.ContainsFunc(files, func(file string) bool { return code.Declares(file, f) }) {
				t.Errorf("ARCHITECTURE.md:%d: %s is not declared in %v", r.Line, f, files)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d functions were found", seen)
	}
}

// TestPackages: the map of packages holds every package once, and no other.
func TestPackages(t *testing.T) {
	want := map[string]bool{}
	for p := range scan(t).Packages {
		if strings.HasPrefix(p, "pmd/go-dpdk/") {
			p = "pmd/go-dpdk" // one line stands for the module
		}
		want[p] = true
	}
	var got []string
	for _, r := range read(t, "ARCHITECTURE.md").Rows {
		if r.Section == "packages" {
			got = append(got, SpansOf(r.Cells[0])...)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Errorf("the packages of ARCHITECTURE.md (-tree +document):\n%s", diff)
	}
}

// commands are the command lines in a document's spans and shell blocks.
func commands(d *Doc) (list []Piece) {
	for _, s := range d.Spans {
		list = append(list, s)
	}
	for _, f := range d.Fences {
		if f.Lang != "sh" {
			continue
		}
		for i, l := range strings.Split(f.Text, "\n") {
			l, _, _ = strings.Cut(l, " #")
			list = append(list, Piece{Line: f.Line + 1 + i, Text: strings.TrimSpace(l)})
		}
	}
	return list
}

// TestCommands: commands and flags of fastpath, and targets of make, exist.
func TestCommands(t *testing.T) {
	targets := match(t, `(?m)^([a-z0-9-]+):`, "Makefile")
	uses := match(t, `Use: +"([a-z]+)`, "cmd/fastpath/*.go")
	for _, one := range []string{"bulk", "rr", "cps", "idle"} {
		uses[one] = true // made by newBenchOne from the names of package bench
	}
	flags := match(t, `"([a-z][a-z-]+)"`, "cmd/fastpath/*.go")
	seen := 0
	each(t, func(t *testing.T, name string, d *Doc) {
		for _, c := range commands(d) {
			words := strings.Fields(c.Text)
			if len(words) < 2 {
				continue
			}
			switch strings.TrimPrefix(words[0], "bin/") {
			case "make":
				seen++
				if w := words[1]; !targets[w] {
					t.Errorf("%s:%d: make has no target %s", name, c.Line, w)
				}
			case "fastpath":
				seen++
				n := 1
				if words[1] == "ctl" || words[1] == "bench" {
					n = 2
				}
				for _, w := range words[1:min(len(words), n+1)] {
					if !uses[w] && w != strings.ToUpper(w) {
						t.Errorf("%s:%d: fastpath has no command %s: %s", name, c.Line, w, c.Text)
					}
				}
				for _, w := range words {
					if f, ok := strings.CutPrefix(w, "--"); ok && !flags[f] && f != "help" {
						t.Errorf("%s:%d: fastpath has no flag %s: %s", name, c.Line, w, c.Text)
					}
				}
			}
		}
	})
	if seen < 20 {
		t.Errorf("only %d commands were found", seen)
	}
}

// match returns what the first group of re matches in the files.
func match(t *testing.T, re, pattern string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	set := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(re).FindAllStringSubmatch(string(b), -1) {
			set[m[1]] = true
		}
	}
	return set
}

// TestLists: the README's tables name every driver and every module that is linked in.
func TestLists(t *testing.T) {
	spans := map[string]map[string]bool{} // section → code spans of its tables
	for _, r := range read(t, "README.md").Rows {
		for _, c := range r.Cells {
			for _, s := range SpansOf(c) {
				if spans[r.Section] == nil {
					spans[r.Section] = map[string]bool{}
				}
				spans[r.Section][s] = true
			}
		}
	}
	for _, d := range []string{conf.DriverDPDK, conf.DriverAFPacket, conf.DriverTap, conf.DriverMemlink, conf.DriverPcap} {
		if !spans["drivers"][d] {
			t.Errorf("README.md: no driver %s", d)
		}
	}
	for _, m := range builtin.All() {
		if !spans["modules"][m.Info.Kind.String()] || !spans["modules"][m.Info.Name] {
			t.Errorf("README.md: no module %v/%s", m.Info.Kind, m.Info.Name)
		}
	}
}

// TestConfigurations: configurations in the README load.
func TestConfigurations(t *testing.T) {
	seen := 0
	for _, f := range read(t, "README.md").Fences {
		if f.Lang == "toml" {
			seen++
			if _, err := conf.Parse(fmt.Sprintf("README.md, block on line %d", f.Line), []byte(f.Text)); err != nil {
				t.Error(err)
			}
		}
	}
	if seen == 0 {
		t.Error("there is none")
	}
}

// TestModule: the module's shape in ARCHITECTURE.md is the code's.
func TestModule(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(root, "plugins/plugins.go"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range read(t, "ARCHITECTURE.md").Fences {
		for line := range strings.Lines(f.Text) {
			if f.Lang == "go" {
				seen++
				if !bytes.Contains(src, []byte(line)) {
					t.Errorf("ARCHITECTURE.md:%d: not in plugins/plugins.go: %s", f.Line, line)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("there is none")
	}
}

// maxLines is how long the embedding example may be, without blank lines.
const maxLines = 20

// TestEmbedding: the README's program is short and formatted. That it is the one in test/embed, which builds and serves, is tested in
// test/e2e.
func TestEmbedding(t *testing.T) {
	seen := 0
	for _, f := range read(t, "README.md").Fences {
		if f.Lang != "go" {
			continue
		}
		seen++
		lines := strings.FieldsFunc(f.Text, func(r rune) bool { return r == '\n' }) // leaves out empty ones
		if len(lines) > maxLines {
			t.Errorf("README.md:%d: %d lines, want at most %d", f.Line, len(lines), maxLines)
		}
		if formatted, err := format.Source([]byte(f.Text)); err != nil || string(formatted) != f.Text {
			t.Errorf("README.md:%d: it is not formatted: %v", f.Line, err)
		}
	}
	if seen != 1 {
		t.Errorf("the README has %d Go programs, want 1", seen)
	}
}

// TestEmbed: the embedding program passes vet, and so builds, as a module of its own.
func TestEmbed(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is needed to build the program: ", err)
	}
	cmd := exec.Command(tool, "vet", ".")
	cmd.Dir = filepath.Join(root, "test/embed")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
