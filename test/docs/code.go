package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// Code is what the Go source of a tree declares.
type Code struct {
	Files    map[string]bool     // every file and directory
	Packages map[string]bool     // directories with Go files
	inFile   map[string][]string // file → functions, "Type.Method" for methods
	names    map[string]bool     // "pkg.Name", "Type.Method", "Type.field"
	known    map[string]bool     // names of packages and types
}

// Scan reads the tree at fsys, without directories named testdata and those with a leading dot.
func Scan(fsys fs.FS) (*Code, error) {
	c := &Code{Files: map[string]bool{}, Packages: map[string]bool{}, inFile: map[string][]string{}, names: map[string]bool{}, known: map[string]bool{}}
	set := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		c.Files[name] = true
		if base := path.Base(name); d.IsDir() && name != "." && base[0] == '.' && base != ".ci" {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata/") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.Packages[path.Dir(name)] = true
		c.add(name, f)
		return nil
	})
	return c, err
}

func (c *Code) add(name string, f *ast.File) {
	pkg := strings.TrimSuffix(f.Name.Name, "_test")
	c.known[pkg] = true
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			full := d.Name.Name
			if d.Recv != nil {
				full = receiver(d.Recv.List[0].Type) + "." + full
				c.names[full] = true
			} else {
				c.names[pkg+"."+full] = true
			}
			c.inFile[name] = append(c.inFile[name], full)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				c.spec(name, pkg, s)
			}
		}
	}
}

func (c *Code) spec(file, pkg string, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			c.names[pkg+"."+n.Name] = true
		}
	case *ast.TypeSpec:
		t := s.Name.Name
		c.names[pkg+"."+t], c.known[t] = true, true
		switch u := s.Type.(type) {
		case *ast.InterfaceType:
			for _, m := range u.Methods.List {
				for _, n := range m.Names {
					c.names[t+"."+n.Name] = true
					c.inFile[file] = append(c.inFile[file], t+"."+n.Name)
				}
			}
		case *ast.StructType:
			for _, m := range u.Fields.List {
				for _, n := range m.Names {
					c.names[t+"."+n.Name] = true
				}
			}
		}
	}
}

// receiver is the name of a receiver's type, without pointer and type parameters.
func receiver(e ast.Expr) string {
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// Declares reports whether a file declares a function: "Name" or "Type.Method".
func (c *Code) Declares(file, function string) bool {
	for _, f := range c.inFile[file] {
		if f == function {
			return true
		}
	}
	return false
}

// Has reports whether "package.Name", "Type.Method" or "Type.field" is declared somewhere; ours is false if neither a package nor a
// type of the tree has the first name.
func (c *Code) Has(name string) (has, ours bool) {
	first, _, _ := strings.Cut(name, ".")
	return c.names[name], c.known[first]
}
