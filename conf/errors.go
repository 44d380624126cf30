package conf

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one thing that is wrong, or worth a warning, in a configuration.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // from 1
	Key     string `json:"key"`  // "port[0].mtu"; empty for a syntax error outside any key
	Message string `json:"message"`
}

// Error formats p as file:line: key: message.
func (p *Problem) Error() string {
	if p.Key == "" {
		return printable(fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message))
	}
	return printable(fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Key, p.Message))
}

// printable escapes what a terminal would obey rather than show: what stands in the file may be anything.
func printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case !unprintable(r):
			b.WriteRune(r)
		case r == utf8.RuneError && s[i] != "\uFFFD"[0]:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// Problems are all problems of a configuration, in order of lines. As an error it has one line for each.
type Problems []*Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Sort sorts by line.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
}

// err returns ps as an error, nil if there are none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
