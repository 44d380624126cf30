package rfc

import (
	"flag"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fastpath-tcp/fastpath/test/docs"
)

const (
	root    = "../.."
	scripts = "test/script/testdata/"
)

var update = flag.Bool("update", false, "rewrite stack/RFC9293.md")

func scan(t *testing.T) *Cited {
	t.Helper()
	c, err := Scan(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Code) < 40 || len(c.ReqCode) < 20 || len(c.tests) < 200 {
		t.Fatalf("only %d RFCs, %d requirements, %d tests were found", len(c.Code), len(c.ReqCode), len(c.tests))
	}
	return c
}

// Every MUST of RFC 9293 is cited where the code obeys it and in a test, or there is a reason; the document says what is so.
func TestRequirements(t *testing.T) {
	b, err := os.ReadFile("testdata/rfc9293.txt")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ReadList(string(b))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range l.Reqs {
		if want := "MUST-" + strconv.Itoa(i+1); r.ID != want {
			t.Fatalf("%s is at the place of %s", r.ID, want)
		}
	}
	if len(l.Reqs) != 69 {
		t.Errorf("%d requirements; RFC 9293 has 69", len(l.Reqs))
	}
	for _, s := range l.Join(scan(t)) {
		t.Error(s)
	}
	const name = root + "/stack/RFC9293.md"
	if *update {
		if err := os.WriteFile(name, []byte(l.Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(got), l.Markdown()); d != "" {
		t.Errorf("stack/RFC9293.md is not current; go test ./test/rfc -update (-file +code):\n%s", d)
	}
}

// cited matches the numbers in a row's first cell.
var cited = regexp.MustCompile(`\d+`)

// rows calls f for each row of stack/README.md's tables below a heading, with the RFCs that it is about.
func rows(t *testing.T, heading string, f func(row docs.Row, numbers []int)) {
	t.Helper()
	b, err := os.ReadFile(root + "/stack/README.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range docs.Parse(string(b)).Rows {
		if (r.Section == "left-out") != (heading == "left-out") || r.Header[0] != "RFC" {
			continue
		}
		var numbers []int
		for _, m := range cited.FindAllString(r.Cells[0], -1) {
			k, _ := strconv.Atoi(m)
			numbers = append(numbers, k)
		}
		if len(numbers) == 0 || len(r.Cells) != len(r.Header) {
			t.Errorf("stack/README.md:%d: %d cells, RFCs %v", r.Line, len(r.Cells), numbers)
			continue
		}
		f(r, numbers)
		n++
	}
	if n == 0 {
		t.Errorf("stack/README.md has no table of RFCs (%s)", heading)
	}
}

// The table names the RFCs that the code cites and no others, and its tests exist and cite them.
func TestTable(t *testing.T) {
	c := scan(t)
	listed := map[int]bool{}
	rows(t, "", func(r docs.Row, numbers []int) {
		for _, n := range numbers {
			if listed[n] {
				t.Errorf("stack/README.md:%d: RFC %d is there twice", r.Line, n)
			}
			listed[n] = true
			if len(c.Code[n]) == 0 {
				t.Errorf("stack/README.md:%d: no code cites RFC %d", r.Line, n)
			}
		}
		tests := docs.SpansOf(r.Cells[len(r.Cells)-1])
		if len(tests) == 0 {
			t.Errorf("stack/README.md:%d: RFC %v has no tests", r.Line, numbers)
		}
		for _, s := range tests {
			if err := c.citedBy(s, numbers); err != "" {
				t.Errorf("stack/README.md:%d: %s", r.Line, err)
			}
		}
	})
	for n, files := range c.Code { // tests may cite others, such as a yardstick
		if !listed[n] {
			t.Errorf("%s cites RFC %d, which is not in stack/README.md", files[0], n)
		}
	}
	rows(t, "left-out", func(r docs.Row, numbers []int) {
		for _, n := range numbers {
			if len(c.Code[n]) > 0 {
				t.Errorf("stack/README.md:%d: RFC %d is said to be left out, and %s cites it", r.Line, n, c.Code[n][0])
			}
		}
	})
}

// citedBy says what is wrong with a test that a row names: "directory.TestName", or a directory or file of packet scripts.
// Where tests cite the RFC these must be among them.
func (c *Cited) citedBy(name string, numbers []int) string {
	file, ok := c.tests[name]
	if !ok {
		if _, err := fs.Stat(os.DirFS(root), scripts+name); err != nil {
			return "there is no test " + name
		}
		file = scripts + name
	}
	some := false
	for _, n := range numbers {
		for _, f := range c.Tests[n] {
			if f == file || path.Dir(f) == file {
				return ""
			}
			some = true
		}
	}
	if !some { // no test cites it
		return ""
	}
	return "the file of " + name + " does not cite the RFC"
}

// What a scan finds, and what it complains about.
func TestScan(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	c, err := Scan(fstest.MapFS{
		"stack/a.go":           text("package a\n\n// So it is (RFC\n// 1122, 4.2; RFC 9293, 3.8.6 and MUST-1).\nvar t = time.RFC3339 // RFC 9293, MUST-3\n"),
		"stack/a_test.go":      text("package a\n\n// RFC 9293, MUST-1.\nfunc TestA(t *testing.T) {}\n"),
		"test/rfc/x.go":        text("// RFC 1234\n"),
		"stack/x.md":           text("RFC 1234"),
		scripts + "rfc1/b.pkt": text("// RFC 768, 3\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Cited{
		Code: map[int][]string{1122: {"stack/a.go"}, 9293: {"stack/a.go"}}, Tests: map[int][]string{9293: {"stack/a_test.go"}, 768: {scripts + "rfc1/b.pkt"}},
		ReqCode: map[string][]string{"MUST-1": {"stack/a.go"}, "MUST-3": {"stack/a.go"}}, ReqTests: map[string][]string{"MUST-1": {"stack/a_test.go"}},
		Clauses: map[string][]string{"3.8.6": {"stack/a.go"}}, tests: map[string]string{"stack.TestA": "stack/a_test.go"},
	}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(Cited{})); d != "" {
		t.Error(d)
	}
	l, err := ReadList("# x\nsections: 3.1\nMUST-1 one\n  no: why\nMUST-2 two\nMUST-4 four\nno: why\n")
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Join(l.Join(c), "\n")
	for _, s := range []string{"MUST-1 is said not to be met", "MUST-2 (two): no code", "cites MUST-3, which is not in the list", "3.8.6: there is no such section"} {
		if !strings.Contains(bad, s) {
			t.Errorf("no complaint %q in:\n%s", s, bad)
		}
	}
	if strings.Contains(bad, "MUST-4") {
		t.Error(bad)
	}
	if _, err := ReadList("MUST-1 one\nwhat\n"); err == nil {
		t.Error("a bad line was taken")
	}
}
