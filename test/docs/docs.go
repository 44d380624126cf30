// Package docs reads the project's documents, so that tests can hold them to the code: their code spans, fenced blocks, tables
// and links.
package docs

import (
	"regexp"
	"strings"
)

// Piece is a part of a document and the line on which it begins.
type Piece struct {
	Line int
	Text string
	Lang string // of a fenced block
}

// Doc is a Markdown document.
type Doc struct {
	Fences   []Piece // fenced blocks
	Spans    []Piece // code spans outside fenced blocks
	Links    []Piece // targets of links outside fenced blocks
	Headings []Piece // their anchors
	Rows     []Row   // of tables

	// Where the reader is: below this heading, in a table with this header, in this block.
	section string
	header  []string
	fence   *Piece
}

// Row is a row of a table.
type Row struct {
	Line    int
	Section string   // anchor of the heading above it
	Header  []string // cells of the table's first row
	Cells   []string
}

var (
	span    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.*)`)
	divider = regexp.MustCompile(`^\|[-|: ]+\|$`)
)

// Parse reads a document.
func Parse(text string) *Doc {
	d := &Doc{}
	for i, line := range strings.Split(text, "\n") {
		d.line(i+1, line)
	}
	return d
}

func (d *Doc) line(n int, s string) {
	if lang, ok := strings.CutPrefix(strings.TrimSpace(s), "```"); ok {
		if d.fence == nil {
			d.fence = &Piece{Line: n, Lang: lang}
		} else {
			d.Fences = append(d.Fences, *d.fence)
			d.fence = nil
		}
		return
	}
	if d.fence != nil {
		d.fence.Text += s + "\n"
		return
	}
	for _, m := range span.FindAllStringSubmatch(s, -1) {
		d.Spans = append(d.Spans, Piece{Line: n, Text: m[1]})
	}
	for _, m := range link.FindAllStringSubmatch(s, -1) {
		d.Links = append(d.Links, Piece{Line: n, Text: m[1]})
	}
	if m := heading.FindStringSubmatch(s); m != nil {
		d.section = anchor(m[1])
		d.Headings = append(d.Headings, Piece{Line: n, Text: d.section})
	}
	d.row(n, s)
}

func (d *Doc) row(n int, s string) {
	switch {
	case !strings.HasPrefix(s, "|"):
		d.header = nil
	case divider.MatchString(s):
	default:
		cells := strings.Split(strings.Trim(s, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if d.header == nil {
			d.header = cells
			return
		}
		d.Rows = append(d.Rows, Row{Line: n, Section: d.section, Header: d.header, Cells: cells})
	}
}

// anchor is the name by which links find a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// SpansOf returns the code spans of a line or cell.
func SpansOf(s string) (spans []string) {
	for _, m := range span.FindAllStringSubmatch(s, -1) {
		spans = append(spans, m[1])
	}
	return spans
}
