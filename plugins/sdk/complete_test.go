package sdk

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// exported are the exported constants and types that a file declares.
func exported(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			}
		}
	}
	names = deleteUnexported(names)
	if len(names) == 0 {
		t.Fatalf("%s declares nothing", file)
	}
	return names
}

func deleteUnexported(names []string) (kept []string) {
	for _, n := range names {
		if ast.IsExported(n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// An author of any kind of module finds everything here: each name of the records' packages has its own.
func TestComplete(t *testing.T) {
	for _, k := range []struct{ records, here, prefix, factory string }{
		{"../../cong/cong.go", "cong.go", "", "NewCong"}, {"../rtx/records.go", "rtx.go", "Rtx", "NewRtx"}, {"../pace/records.go", "pace.go", "Pace", "NewPace"},
	} {
		have := map[string]bool{}
		for _, n := range exported(t, k.here) {
			have[n] = true
		}
		for _, n := range exported(t, k.records) {
			want := k.prefix + n
			switch {
			case n == "New":
				want = k.factory
			case n == "Module" && k.prefix == "":
				want = "CongModule"
			}
			if !have[want] {
				t.Errorf("%s has no %s, for %s of %s", k.here, want, n, k.records)
			}
		}
	}
}
