package conf

import (
	"fmt"
	"reflect"
)

// Document is a TOML file of another kind than a configuration (a simulator's scenario), read by the same rules: each key must
// stand in the Go type, and all problems are reported at once with file, line and key.
type Document struct{ d *document }

// Decode reads data into the struct that v points to, whose fields have "toml" tags. file is used in errors only. What is wrong is
// kept for Err; the other values are set, so that the caller can go on checking.
func Decode(file string, data []byte, v any) *Document {
	d := &document{file: file, lines: map[string]int{}}
	if len(data) > maxFileSize {
		d.errorf(1, "", "more than %d bytes is too large", maxFileSize)
		return &Document{d}
	}
	d = parse(file, data)
	d.bind("", d.values, reflect.ValueOf(v).Elem())
	return &Document{d}
}

// Overlay sets the keys of the table at path (names of tables and indexes of arrays, from the root) in the struct that v points to
// and leaves its other fields. Decode has reported what is wrong with them.
func (doc *Document) Overlay(v any, path ...any) {
	var at any = doc.d.values
	for _, step := range path {
		switch step := step.(type) {
		case string:
			table, _ := at.(map[string]any)
			at = table[step]
		case int:
			list, _ := at.([]any)
			if step >= len(list) {
				return
			}
			at = list[step]
		}
	}
	table, _ := at.(map[string]any)
	quiet := &document{file: doc.d.file, lines: doc.d.lines, odd: map[string]bool{}}
	quiet.bind("", table, reflect.ValueOf(v).Elem())
}

// Has reports whether the document has key, such as "link.rate" or "flow[0].bytes".
func (doc *Document) Has(key string) bool {
	_, ok := doc.d.lines[key]
	return ok
}

// Errorf notes a problem with the value of key, or with the table around it if it is not there.
func (doc *Document) Errorf(key, format string, args ...any) {
	doc.d.probs = append(doc.d.probs, &Problem{doc.d.file, doc.d.line(key), key, fmt.Sprintf(format, args...)})
}

// Broken reports whether the document has syntax errors: keys may be missing for that reason.
func (doc *Document) Broken() bool { return doc.d.broken }

// Err returns all problems, of type Problems, in the order of lines; nil if there are none.
func (doc *Document) Err() error {
	doc.d.probs.Sort()
	return doc.d.probs.err()
}
