package conf

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxSyntaxErrors is the number of syntax errors after which parsing gives up: what follows is likely to be nonsense.
const maxSyntaxErrors = 10

// document is a parsed TOML file: its values, and the line of each key.
type document struct {
	file   string
	values map[string]any
	lines  map[string]int  // "port[0].addresses[1]" → line
	ends   []uint32        // offset of the end of each line
	broken bool            // it had syntax errors: keys may be missing for that reason
	odd    map[string]bool // tables with unknown keys: what was misspelled may be missing
	probs  Problems
}

func (d *document) errorf(line int, key, format string, args ...any) {
	d.probs = append(d.probs, &Problem{d.file, max(line, 1), key, fmt.Sprintf(format, args...)})
}

// line returns the line of key, or that of the nearest table around it.
func (d *document) line(key string) int {
	for key != "" {
		if l, ok := d.lines[key]; ok {
			return l
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 1
}

// bad reports whether key, or something inside it, has an error.
func (d *document) bad(key string) bool {
	for _, p := range d.probs {
		if rest, ok := strings.CutPrefix(p.Key, key); ok && (rest == "" || rest[0] == '[' || rest[0] == '.') {
			return true
		}
	}
	return false
}

// parse reads a TOML document. A line with a syntax error is noted, blanked out, and the rest read again, so that one run
// finds all of them.
func parse(file string, data []byte) *document {
	d := &document{file: file, lines: map[string]int{}, odd: map[string]bool{}}
	text := bytes.Clone(data)
	for last := 0; ; {
		d.values = nil
		err := toml.Unmarshal(text, &d.values)
		if err == nil {
			break
		}
		d.broken = true
		var de *toml.DecodeError
		if !errors.As(err, &de) {
			d.errorf(1, "", "%v", err)
			return d
		}
		line, _ := de.Position()
		d.errorf(line, keyOfLine(text, line), "%s", strings.TrimPrefix(strings.TrimPrefix(de.Error(), "toml: "), "toml: "))
		if len(d.probs) >= maxSyntaxErrors || line < last || !blank(text, line) {
			d.values = nil
			return d
		}
		last = line
	}
	d.index(text)
	return d
}

// blank overwrites line (from 1) with spaces; a table header takes its table along, whose keys would otherwise count as the
// previous table's. It reports whether there was anything to blank.
func blank(text []byte, line int) bool {
	start := 0
	for range line - 1 {
		i := bytes.IndexByte(text[start:], '\n')
		if i < 0 {
			return false
		}
		start += i + 1
	}
	lineEnd := func(from int) int {
		if i := bytes.IndexByte(text[from:], '\n'); i >= 0 {
			return from + i
		}
		return len(text)
	}
	isHeader := func(from, to int) bool { return bytes.HasPrefix(bytes.TrimLeft(text[from:to], " \t"), []byte("[")) }
	end := lineEnd(start)
	if isHeader(start, end) {
		for end < len(text) && !isHeader(end+1, lineEnd(end+1)) {
			end = lineEnd(end + 1)
		}
	}
	found := false
	for i := start; i < end; i++ {
		if c := text[i]; c != ' ' && c != '\n' {
			text[i] = ' '
			found = true
		}
	}
	return found
}

// keyOfLine guesses the key that a line with a syntax error is about: the table header above it and what stands before "=".
func keyOfLine(text []byte, line int) string {
	table, key := "", ""
	count := map[string]int{}
	for l := range bytes.Lines(text) {
		s := strings.TrimSpace(string(l))
		key = ""
		if name, ok := strings.CutPrefix(s, "[["); ok {
			name, _, _ = strings.Cut(name, "]")
			table = fmt.Sprintf("%s[%d]", strings.TrimSpace(name), count[name])
			count[name]++
		} else if name, ok := strings.CutPrefix(s, "["); ok {
			table, _, _ = strings.Cut(name, "]")
			table = strings.TrimSpace(table)
		} else if name, _, ok := strings.Cut(s, "="); ok && !strings.HasPrefix(s, "#") {
			key = strings.TrimSpace(name)
		}
		if line--; line == 0 {
			break
		}
	}
	if key == "" {
		return table
	}
	return join(table, key)
}

// index records the line of every key and array element of text, which is valid TOML.
func (d *document) index(text []byte) {
	for i, c := range text {
		if c == '\n' {
			d.ends = append(d.ends, uint32(i))
		}
	}
	var p unstable.Parser
	p.Reset(text)
	tables := map[string]int{} // number of elements of each array of tables
	prefix := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			prefix = ""
			it := e.Key()
			for it.Next() {
				k := it.Node()
				prefix = join(prefix, string(k.Data))
				if it.IsLast() && e.Kind == unstable.ArrayTable {
					tables[prefix]++
				}
				d.note(prefix, k)
				if n := tables[prefix]; n > 0 {
					prefix = fmt.Sprintf("%s[%d]", prefix, n-1)
					d.note(prefix, k)
				}
			}
		case unstable.KeyValue:
			d.indexKeyValue(prefix, e)
		}
	}
}

func (d *document) indexKeyValue(prefix string, kv *unstable.Node) {
	it := kv.Key()
	for it.Next() {
		prefix = join(prefix, string(it.Node().Data))
		d.note(prefix, it.Node())
	}
	d.indexValue(prefix, kv.Value())
}

func (d *document) indexValue(key string, v *unstable.Node) {
	it := v.Children()
	switch v.Kind {
	case unstable.Array:
		for i := 0; it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			elem := fmt.Sprintf("%s[%d]", key, i)
			if it.Node().Raw.Length > 0 {
				d.note(elem, it.Node())
			}
			d.indexValue(elem, it.Node())
			i++
		}
	case unstable.InlineTable:
		for it.Next() {
			if it.Node().Kind == unstable.KeyValue {
				d.indexKeyValue(key, it.Node())
			}
		}
	}
}

// note records the first line at which key is seen.
func (d *document) note(key string, n *unstable.Node) {
	if _, ok := d.lines[key]; !ok {
		i, _ := slices.BinarySearch(d.ends, n.Raw.Offset)
		d.lines[key] = i + 1
	}
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}
