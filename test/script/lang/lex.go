package lang

import (
	"strings"
)

type kind uint8

const (
	tEOF kind = iota
	tInt
	tHex
	tFloat
	tWord
	tString
	tCommand
	tCode
	tOption
	tEllipsis
	tChar
)

type token struct {
	kind kind
	text string
	line int
	pos  int // offset of its first byte
}

// lexer cuts a script into tokens. A word that --define gave a value counts as that.
type lexer struct {
	src     string
	pos     int
	line    int
	defines map[string]string
}

func (l *lexer) fail(text string) { panic(&Error{Line: l.line, Text: text}) }

// skip passes white space and comments.
func (l *lexer) skip() {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch {
		case rest[0] == '\n':
			l.line++
			l.pos++
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r':
			l.pos++
		case rest[0] == '#' || strings.HasPrefix(rest, "//"):
			if n := strings.IndexByte(rest, '\n'); n >= 0 {
				l.pos += n
			} else {
				l.pos = len(l.src)
			}
		case strings.HasPrefix(rest, "/*"):
			l.until(2, "*/", "comment without an end")
		default:
			return
		}
	}
}

// until passes n bytes and all up to end, and returns what is between.
func (l *lexer) until(n int, end, missing string) string {
	i := strings.Index(l.src[l.pos+n:], end)
	if i < 0 {
		l.fail(missing)
	}
	s := l.src[l.pos+n : l.pos+n+i]
	l.pos += n + i + len(end)
	l.line += strings.Count(s, "\n")
	return s
}

// quoted passes a text between two of its first byte, in which a backslash protects the next.
func (l *lexer) quoted() string {
	q := l.src[l.pos]
	for i := l.pos + 1; i < len(l.src); i++ {
		switch l.src[i] {
		case '\\':
			i++
		case q:
			s := l.src[l.pos+1 : i]
			l.line += strings.Count(s, "\n")
			l.pos = i + 1
			return s
		}
	}
	l.fail("text without an end")
	return ""
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func allOf(s string, f func(byte) bool) bool {
	for i := range len(s) {
		if !f(s[i]) {
			return false
		}
	}
	return s != ""
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func (l *lexer) next() token {
	l.skip()
	t := token{line: l.line, pos: l.pos}
	if l.pos == len(l.src) {
		return t
	}
	rest := l.src[l.pos:]
	c := rest[0]
	switch {
	case strings.HasPrefix(rest, "..."):
		l.pos += 3
		t.kind, t.text = tEllipsis, "..."
	case strings.HasPrefix(rest, "%{"):
		t.kind, t.text = tCode, l.until(2, "}%", "%{ without }%")
	case strings.HasPrefix(rest, "--") && len(rest) > 2 && isWord(rest[2]):
		t.kind, t.text = tOption, l.option()
	case c == '"':
		t.kind, t.text = tString, l.quoted()
	case c == '`':
		t.kind, t.text = tCommand, l.quoted()
	case isWord(c) || c == '.' && len(rest) > 1 && isDigit(rest[1]) || c == '-' && len(rest) > 1 && (isDigit(rest[1]) || rest[1] == '.' && len(rest) > 2 && isDigit(rest[2])):
		l.word(&t)
	default:
		l.pos++
		t.kind, t.text = tChar, rest[:1]
	}
	return t
}

// word passes a number or a word; the longer reading counts.
func (l *lexer) word(t *token) {
	rest := l.src[l.pos:]
	n := 0
	if rest[0] == '-' {
		n++
	}
	for n < len(rest) && isWord(rest[n]) {
		n++
	}
	digits := strings.TrimPrefix(rest[:n], "-")
	if (digits == "" || allOf(digits, isDigit)) && n+1 < len(rest) && rest[n] == '.' && isDigit(rest[n+1]) {
		for n++; n < len(rest) && isDigit(rest[n]); n++ {
		}
		t.kind = tFloat
	} else if allOf(digits, isDigit) {
		t.kind = tInt
	} else if strings.HasPrefix(digits, "0x") && allOf(digits[2:], isHex) && rest[0] != '-' {
		t.kind = tHex
	} else {
		t.kind = tWord
		if rest[0] == '-' { // the digits alone are a number
			for n = 1; isDigit(rest[n]); n++ {
			}
			t.kind = tInt
		}
	}
	t.text = rest[:n]
	l.pos += n
	if v, ok := l.defines[t.text]; ok && t.kind == tWord {
		t.text = v
		if len(v) >= 2 && (v[0] == '"' || v[0] == '`') && v[len(v)-1] == v[0] {
			t.text, t.kind = v[1:len(v)-1], tString
			if v[0] == '`' {
				t.kind = tCommand
			}
		} else if allOf(v, isDigit) {
			t.kind = tInt
		}
	}
}

// option passes --name=value; the value ends at white space outside of quotes.
func (l *lexer) option() string {
	i := l.pos + 2
	var quote byte
	for ; i < len(l.src); i++ {
		c := l.src[i]
		if quote != 0 {
			if c == quote {
				quote = 0
			}
			if c == '\n' {
				l.line++
			}
			continue
		}
		if c == '"' || c == '`' {
			quote = c
		} else if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			break
		}
	}
	s := l.src[l.pos+2 : i]
	l.pos = i
	return s
}
