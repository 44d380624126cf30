// Package layout checks who may import whom. The rules are those of ARCHITECTURE.md; .golangci.yml repeats those that depguard can
// say, for editors.
package layout

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module that is checked.
const Module = "github.com/fastpath-tcp/fastpath"

// file is one Go source file.
type file struct {
	name    string // "stack/wire/tcp.go"
	test    bool
	foreign bool // of a module of its own inside the tree
	tags    string
	ast     *ast.File
	imports []string // ours are relative to the module: "stack/wire"
}

func (f *file) dir() string { return path.Dir(f.name) }

// Tree is all Go source below a directory, whatever build tags it has.
type Tree struct {
	files []*file
	fset  *token.FileSet
	// imports holds, for each package of ours, what its files other than tests import, of ours and of others.
	imports map[string]map[string]bool
}

// Scan reads the tree at fsys. Directories named testdata or vendor, or with a leading dot or underscore, are left out, as the go
// command does.
func Scan(fsys fs.FS) (*Tree, error) {
	t := &Tree{fset: token.NewFileSet(), imports: map[string]map[string]bool{}}
	var foreign []string // directories of other modules
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil && name != "." {
				foreign = append(foreign, name)
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		f, err := t.parse(name, src)
		if err != nil {
			return err
		}
		f.foreign = slices.ContainsFunc(foreign, func(dir string) bool { return under(name, dir) })
		t.add(f)
		return nil
	})
	return t, err
}

func (t *Tree) parse(name string, src []byte) (*file, error) {
	a, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{name: name, test: strings.HasSuffix(name, "_test.go"), ast: a}
	for _, s := range a.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return nil, err
		}
		if p == Module {
			p = "."
		}
		f.imports = append(f.imports, strings.TrimPrefix(p, Module+"/"))
	}
	for _, g := range a.Comments {
		for _, c := range g.List {
			if constraint.IsGoBuild(c.Text) {
				f.tags = c.Text
			}
		}
	}
	return f, nil
}

func (t *Tree) add(f *file) {
	t.files = append(t.files, f)
	if f.test || f.foreign {
		return
	}
	m := t.imports[f.dir()]
	if m == nil {
		m = map[string]bool{}
		t.imports[f.dir()] = m
	}
	for _, p := range f.imports {
		m[p] = true
	}
}

// under reports whether name is dir or lies below it.
func under(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func underAny(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return under(name, d) })
}

// reaches returns the chain of imports from package p to a package for which bad holds, nil if there is none.
func (t *Tree) reaches(p string, bad func(string) bool) []string {
	seen := map[string]bool{}
	var walk func(string) []string
	walk = func(p string) []string {
		if seen[p] {
			return nil
		}
		seen[p] = true
		for _, q := range slices.Sorted(maps.Keys(t.imports[p])) {
			if bad(q) {
				return []string{p, q}
			}
			if chain := walk(q); chain != nil {
				return append([]string{p}, chain...)
			}
		}
		return nil
	}
	return walk(p)
}

// Check returns what breaks the rules, in order.
func (t *Tree) Check() []string {
	var bad []string
	for _, f := range t.files {
		bad = append(bad, t.checkFile(f)...)
	}
	for _, p := range slices.Sorted(maps.Keys(t.imports)) {
		bad = append(bad, t.checkPackage(p)...)
	}
	slices.Sort(bad)
	return bad
}

// Directories with C in them.
var cgo = []string{"pmd/dpdk", "pmd/go-dpdk", "test/packetdrill"}

func (t *Tree) checkFile(f *file) (bad []string) {
	say := func(format string, args ...any) { bad = append(bad, f.name+": "+fmt.Sprintf(format, args...)) }
	for _, p := range f.imports {
		switch {
		case p == "C" && !underAny(f.name, cgo...):
			say("cgo only in %s", strings.Join(cgo, ", "))
		case p == "C" && under(f.name, "pmd/dpdk") && !strings.Contains(f.tags, "dpdk"):
			say("cgo without the build tag dpdk")
		case p == "unsafe" && !f.test && !underAny(f.name, cgo...) && !strings.HasSuffix(f.name, "_unsafe.go"):
			say("unsafe only in files named *_unsafe.go")
		case under(p, "pmd/dpdk") && !underAny(f.name, "cmd/fastpath", "pmd/dpdk"):
			say("only cmd/fastpath imports pmd/dpdk")
		}
	}
	if underAny(f.name, "stack", "pmd", "plugins", "cong") && !f.foreign && !f.test && !strings.Contains(path.Base(f.name), "clock") {
		for _, name := range clockCalls(f.ast) {
			say("time.%s outside a *clock*.go file: time is an argument", name)
		}
	}
	return bad
}

// clockCalls returns the functions of package time that f uses and that read a clock or wait for one in passing.
func clockCalls(f *ast.File) (calls []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" &&
				slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}, s.Sel.Name) {
				calls = append(calls, s.Sel.Name)
			}
		}
		return true
	})
	return calls
}

// rule says what packages below dirs may not reach, directly or through others.
type rule struct {
	dirs   []string
	except []string // packages below dirs that the rule does not hold for
	bad    func(p string) bool
	text   string
}

var rules = []rule{
	{
		dirs: []string{"plugins", "cong"},
		bad:  func(p string) bool { return under(p, "stack") && p != "stack/seq" || under(p, "pmd") },
		text: "modules import neither stack (but stack/seq) nor pmd",
	},
	{
		dirs: []string{"plugins"}, except: []string{"plugins/"},
		bad:  ours,
		text: "plugins holds types only and imports nothing of ours",
	},
	{
		dirs: []string{"stack/wire"},
		bad:  func(p string) bool { return ours(p) && p != "stack/seq" },
		text: "stack/wire imports nothing of ours but leaves",
	},
	{
		dirs: []string{"stack/seq"},
		bad:  ours,
		text: "stack/seq is a leaf",
	},
	{
		dirs: []string{"pmd"},
		bad:  func(p string) bool { return underAny(p, "stack", "cong", "cmd", "conf") },
		text: "drivers know nothing of the stack",
	},
	{
		dirs: []string{"stack", "plugins", "cong", "conf"},
		bad:  func(p string) bool { return under(p, "cmd") },
		text: "nothing depends on the command",
	},
	{
		dirs: []string{"stack", "plugins", "cong"},
		bad:  func(p string) bool { return under(p, "conf") || p == "github.com/pelletier/go-toml/v2" },
		text: "the stack and the modules do not read configurations",
	},
	{
		dirs: []string{"conf"},
		bad:  func(p string) bool { return underAny(p, "stack", "pmd", "cong") },
		text: "a configuration can be read without the stack",
	},
}

// ours reports whether p is a package of this module: others have a dot in their first element, or are of the standard library.
func ours(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return slices.Contains([]string{"pmd", "stack", "plugins", "cong", "cmd", "conf", "test"}, first)
}

func (t *Tree) checkPackage(p string) (bad []string) {
	for _, r := range rules {
		if !underAny(p, r.dirs...) || slices.ContainsFunc(r.except, func(e string) bool { return strings.HasPrefix(p, e) }) {
			continue
		}
		if chain := t.reaches(p, r.bad); chain != nil {
			bad = append(bad, fmt.Sprintf("%s: %s: %s", p, r.text, strings.Join(chain, " → ")))
		}
	}
	documented := slices.ContainsFunc(t.files, func(f *file) bool {
		return f.dir() == p && !f.test && f.ast.Doc != nil && documents(f.ast)
	})
	if !documented {
		bad = append(bad, fmt.Sprintf("%s: no file has a package comment", p))
	}
	return bad
}

// documents reports whether f's package comment begins as godoc wants it.
func documents(f *ast.File) bool {
	text := f.Doc.Text()
	return strings.HasPrefix(text, "Package "+f.Name.Name+" ") || f.Name.Name == "main" && strings.HasPrefix(text, "Command ")
}
