package docs

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	d := Parse("# Rules, and more\n\nSee `a/b.go` and [there](c.md#x).\n\n| what | file |\n|---|---|\n| one `f` | `g.go` |\n\n```sh\nmake `it`\n```\n\n| other |\n|---|\n")
	want := &Doc{
		Fences:   []Piece{{Line: 9, Text: "make `it`\n", Lang: "sh"}},
		Spans:    []Piece{{Line: 3, Text: "a/b.go"}, {Line: 7, Text: "f"}, {Line: 7, Text: "g.go"}},
		Links:    []Piece{{Line: 3, Text: "c.md#x"}},
		Headings: []Piece{{Line: 1, Text: "rules-and-more"}},
		Rows:     []Row{{Line: 7, Section: "rules-and-more", Header: []string{"what", "file"}, Cells: []string{"one `f`", "`g.go`"}}},
	}
	d.section, d.header = "", nil
	if diff := cmp.Diff(want, d, cmp.AllowUnexported(Doc{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestScan(t *testing.T) {
	c, err := Scan(fstest.MapFS{
		"a/b/c.go":       {Data: []byte("package b\ntype T[E any] struct{ n int }\nfunc (t *T[E]) M() {}\nfunc F() {}\nconst C = 1\ntype I interface{ Do() }\n")},
		"a/b/testdata/x": {Data: []byte("x")},
		".git/x.go":      {Data: []byte("not Go")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"T.M": true, "T.n": true, "b.F": true, "b.C": true, "b.T": true, "I.Do": true, "T.F": false, "b.M": false} {
		if has, ours := c.Has(name); has != want || !ours {
			t.Errorf("Has(%s) = %v, %v", name, has, ours)
		}
	}
	if _, ours := c.Has("http.Serve"); ours {
		t.Error("http.Serve is one of ours")
	}
	if !c.Declares("a/b/c.go", "T.M") || !c.Declares("a/b/c.go", "I.Do") || c.Declares("a/b/c.go", "T.F") || c.Declares("a/c.go", "F") {
		t.Error("Declares")
	}
	if diff := cmp.Diff(map[string]bool{"a/b": true}, c.Packages); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	for p, want := range map[string]bool{"a/b": true, "a/b/c.go": true, "c.go": true, "*.go": true, "a/c.go": false, "d.go": false, ".git/x.go": false} {
		if got := exists(c, p); got != want {
			t.Errorf("exists(%s) = %v", p, got)
		}
	}
	if _, err := Scan(fstest.MapFS{"a.go": {Data: []byte("not Go")}}); err == nil {
		t.Error("a file that is not Go")
	}
}
