// Package rfc finds the clauses of RFCs that the code and its tests cite, so that a test can hold the lists in stack/README.md and
// stack/RFC9293.md to them.
package rfc

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Cited is what the files of a tree cite: file names, in order.
type Cited struct {
	Code, Tests       map[int][]string    // by number of an RFC
	ReqCode, ReqTests map[string][]string // by requirement of RFC 9293, such as "MUST-58"
	Clauses           map[string][]string // by section of RFC 9293
	tests             map[string]string   // "directory.TestName" → file
}

var (
	// comment joins the lines of a comment.
	comment     = regexp.MustCompile(`\n[ \t]*(//|#)?[ \t]*`)
	number      = regexp.MustCompile(`\bRFCs? (\d{3,5})\b`)
	requirement = regexp.MustCompile(`\b(MUST|SHLD|MAY|REC)-[0-9]+\b`)
	clause      = regexp.MustCompile(`\bRFC 9293, (3(?:\.\d+)+)`)
	testFunc    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// Scan reads the Go files and packet scripts of a tree, without this package.
func Scan(fsys fs.FS) (*Cited, error) {
	c := &Cited{
		Code: map[int][]string{}, Tests: map[int][]string{}, ReqCode: map[string][]string{}, ReqTests: map[string][]string{},
		Clauses: map[string][]string{}, tests: map[string]string{},
	}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && path.Base(name)[0] == '.' || name == "test/rfc" {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(name); ext != ".go" && ext != ".pkt" {
			return nil
		}
		b, err := fs.ReadFile(fsys, name)
		if err == nil {
			c.add(name, string(b))
		}
		return err
	})
	return c, err
}

// isTest reports whether a file is there for tests only.
func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") || strings.HasSuffix(path.Dir(name), "test")
}

func (c *Cited) add(name, text string) {
	byNumber, byReq := c.Code, c.ReqCode
	if isTest(name) {
		byNumber, byReq = c.Tests, c.ReqTests
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			c.tests[path.Dir(name)+"."+m[1]] = name
		}
	}
	text = comment.ReplaceAllString(text, " ")
	for _, m := range number.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		note(byNumber, n, name)
	}
	for _, r := range requirement.FindAllString(text, -1) {
		note(byReq, r, name)
	}
	for _, m := range clause.FindAllStringSubmatch(text, -1) {
		note(c.Clauses, m[1], name)
	}
}

func note[K comparable](m map[K][]string, k K, file string) {
	if !slices.Contains(m[k], file) {
		m[k] = append(m[k], file)
	}
}

// Requirement is a numbered requirement of RFC 9293.
type Requirement struct {
	ID, Title   string
	No, Partly  string // why it is not met, or not all of it
	Code, Tests []string
}

// List is the list of requirements, and of the RFC's sections.
type List struct {
	Reqs     []Requirement
	Sections []string
}

// ReadList reads testdata/rfc9293.txt.
func ReadList(text string) (*List, error) {
	l := &List{}
	for i, line := range strings.Split(text, "\n") {
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case first == "" || first == "#":
		case first == "sections:":
			l.Sections = strings.Fields(rest)
		case requirement.MatchString(first) && rest != "":
			l.Reqs = append(l.Reqs, Requirement{ID: first, Title: rest})
		case len(l.Reqs) > 0 && first == "no:" && rest != "":
			l.Reqs[len(l.Reqs)-1].No = rest
		case len(l.Reqs) > 0 && first == "partly:" && rest != "":
			l.Reqs[len(l.Reqs)-1].Partly = rest
		default:
			return nil, fmt.Errorf("line %d: %q", i+1, line)
		}
	}
	return l, nil
}

// Join fills in who cites each requirement, and returns what contradicts the list.
func (l *List) Join(c *Cited) (bad []string) {
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	known := map[string]bool{}
	for i := range l.Reqs {
		r := &l.Reqs[i]
		known[r.ID] = true
		r.Code, r.Tests = c.ReqCode[r.ID], c.ReqTests[r.ID]
		switch {
		case r.No != "" && len(r.Code) > 0:
			say("%s is said not to be met, and %s cites it", r.ID, r.Code[0])
		case r.No != "":
		case len(r.Code) == 0:
			say("%s (%s): no code cites it, and no reason is given", r.ID, r.Title)
		case len(r.Tests) == 0:
			say("%s (%s): no test cites it", r.ID, r.Title)
		}
	}
	for _, m := range [...]map[string][]string{c.ReqCode, c.ReqTests} {
		for id, files := range m {
			if strings.HasPrefix(id, "MUST-") && !known[id] {
				say("%s cites %s, which is not in the list", files[0], id)
			}
		}
	}
	for s, files := range c.Clauses {
		if !slices.Contains(l.Sections, s) {
			say("%s cites RFC 9293, %s: there is no such section", files[0], s)
		}
	}
	slices.Sort(bad)
	return bad
}

// Markdown is the list as a document.
func (l *List) Markdown() string {
	var b strings.Builder
	met, partly := 0, 0
	for _, r := range l.Reqs {
		switch {
		case r.Partly != "":
			partly++
		case r.No == "":
			met++
		}
	}
	fmt.Fprintf(&b, `# Requirements of RFC 9293

The requirements that appendix B of RFC 9293 calls MUST, in our words, and the files that obey them: the lines there cite them. Of %d,
%d are met, %d in part; what is missing is said below. Made by `+"`go test ./test/rfc -update`"+` from `+"`test/rfc/testdata/rfc9293.txt`"+` and the
code; the test fails for one that nothing cites and no reason excuses.

| | requirement | code | tests |
|---|---|---|---|
`, len(l.Reqs), met, partly)
	for _, r := range l.Reqs {
		code := files(r.Code)
		if r.No != "" {
			code = "not: " + r.No
		} else if r.Partly != "" {
			code += "; in part: " + r.Partly
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.ID, r.Title, code, files(r.Tests))
	}
	return b.String()
}

// files lists the first three of the names.
func files(names []string) string {
	var s []string
	for i, n := range names {
		if i == 3 {
			s = append(s, "…")
			break
		}
		s = append(s, "`"+strings.TrimPrefix(n, "test/script/testdata/")+"`")
	}
	return strings.Join(s, ", ")
}
