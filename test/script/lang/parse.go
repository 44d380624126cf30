package lang

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parser is a recursive-descent parser with one token of look-ahead. Errors are panics with an *Error.
type parser struct {
	lex   lexer
	tok   token
	last  int // end of the token before
	event *Event
}

// Parse reads a script. defines are words with a value, as from --define on the command line. An error is an *Error.
func Parse(src string, defines map[string]string) (s *Script, err error) {
	p := &parser{lex: lexer{src: src, line: 1, defines: map[string]string{}}}
	for k, v := range defines {
		p.lex.defines[k] = v
	}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			s, err = nil, e
		}
	}()
	p.advance()
	return p.script(), nil
}

func (p *parser) advance() {
	p.last = p.lex.pos
	p.tok = p.lex.next()
}

func (p *parser) fail(format string, args ...any) {
	panic(&Error{Line: p.tok.line, Text: fmt.Sprintf(format, args...)})
}

func (p *parser) unsupported(what string) {
	panic(&Error{Line: p.tok.line, Text: what, Unsupported: true})
}

func (t token) String() string {
	if t.kind == tEOF {
		return "the end of the file"
	}
	return strconv.Quote(t.text)
}

func (p *parser) is(text string) bool {
	return (p.tok.kind == tChar || p.tok.kind == tWord) && p.tok.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.advance()
		return true
	}
	return false
}

func (p *parser) want(text string) {
	if !p.accept(text) {
		p.fail("want %q, not %v", text, p.tok)
	}
}

func (p *parser) take(k kind, what string) token {
	t := p.tok
	if t.kind != k {
		p.fail("want %s, not %v", what, t)
	}
	p.advance()
	return t
}

// number takes a decimal or hexadecimal number of at most max.
func (p *parser) number(what string, max uint64) uint64 {
	t := p.tok
	if t.kind != tInt && t.kind != tHex {
		p.fail("want %s, not %v", what, t)
	}
	v, err := strconv.ParseUint(t.text, 0, 64)
	if t.kind == tInt {
		v, err = strconv.ParseUint(t.text, 10, 64)
	}
	if err != nil || v > max {
		p.fail("%s %s is out of range", what, t.text)
	}
	p.advance()
	return v
}

func (p *parser) script() *Script {
	s := new(Script)
	for p.tok.kind == tOption {
		name, value, _ := strings.Cut(p.tok.text, "=")
		if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
			value = value[1 : len(value)-1]
		}
		s.Options = append(s.Options, Option{Line: p.tok.line, Name: name, Value: value})
		if name == "define" {
			k, v, ok := strings.Cut(value, "=")
			if !ok {
				p.fail("--define=%s: want NAME=VALUE", value)
			}
			if _, ok := p.lex.defines[k]; !ok { // the command line goes first
				p.lex.defines[k] = v
			}
		}
		p.advance()
	}
	if p.tok.kind == tCommand { // the init command has no time
		s.Events = append(s.Events, &Event{Line: p.tok.line, Kind: Relative, Command: p.tok.text, Text: "`" + p.tok.text + "`"})
		p.advance()
	}
	for p.tok.kind != tEOF {
		s.Events = append(s.Events, p.oneEvent())
	}
	return s
}

func (p *parser) oneEvent() *Event {
	start := p.tok.pos
	e := &Event{Line: p.tok.line}
	p.event = e
	if p.tok.kind == tCommand { // the cleanup command has none either
		e.Kind = Relative
	} else {
		p.time(e)
	}
	switch {
	case p.is("<") || p.is(">"):
		e.Packet = p.packet()
	case p.tok.kind == tCommand:
		e.Command = p.tok.text
		p.advance()
	case p.tok.kind == tCode:
		e.Code, e.isCode = p.tok.text, true
		p.advance()
	case p.tok.kind == tWord || p.tok.kind == tEllipsis:
		e.Call = p.call()
	default:
		p.fail("want a packet, a call, a command or code, not %v", p.tok)
	}
	if e.Kind >= Any && (e.Packet == nil || e.Packet.In) {
		panic(&Error{Line: e.Line, Text: "only a packet that is expected may have * or a range as its time"})
	}
	e.Text = strings.Join(strings.Fields(p.lex.src[start:p.last]), " ")
	return e
}

func (p *parser) time(e *Event) {
	if p.accept("*") {
		e.Kind = Any
		return
	}
	rel := p.accept("+")
	e.At = p.seconds()
	if rel {
		e.Kind = Relative
	}
	if !p.accept("~") {
		return
	}
	if rel {
		p.want("+")
	}
	e.Until = p.seconds()
	e.Kind = AbsoluteRange
	if rel {
		e.Kind = RelativeRange
	}
	if e.Until < e.At {
		p.fail("the range of times is backwards")
	}
}

// seconds takes a time and returns microseconds.
func (p *parser) seconds() int64 {
	t := p.tok
	if t.kind != tInt && t.kind != tFloat {
		p.fail("want a time, not %v", t)
	}
	f, err := strconv.ParseFloat(t.text, 64)
	if err != nil || f < 0 || f > 1e9 {
		p.fail("bad time %s", t.text)
	}
	p.advance()
	return int64(math.Round(f * 1e6))
}

// call: [... END] name(args) = result [ERRNO (text)]
func (p *parser) call() *Call {
	c := new(Call)
	if p.tok.kind == tEllipsis {
		p.advance()
		c.Blocking = true
		if p.accept("+") { // some write the end relative to the start
			c.End = p.seconds()
		} else {
			c.End = p.seconds()
		}
	}
	c.Name = p.take(tWord, "the name of a call").text
	p.want("(")
	if !p.is(")") {
		c.Args = p.exprs(0)
	}
	p.want(")")
	p.want("=")
	c.Result = p.expr(0)
	if p.tok.kind == tWord {
		c.Errno = p.tok.text
		p.advance()
	}
	if p.accept("(") { // a note, such as the error's text
		for !p.accept(")") {
			if p.tok.kind == tEOF {
				p.fail("note without an end")
			}
			p.advance()
		}
	}
	return c
}

const maxDepth = 50

func (p *parser) exprs(depth int) (list []Expr) {
	for {
		list = append(list, p.expr(depth))
		if !p.accept(",") {
			return list
		}
	}
}

func (p *parser) expr(depth int) Expr {
	if depth > maxDepth {
		p.fail("nested too deep")
	}
	e := p.term(depth)
	if !p.is("|") {
		return e
	}
	or := Expr{Kind: Or, List: []Expr{e}}
	for p.accept("|") {
		or.List = append(or.List, p.term(depth))
	}
	return or
}

func (p *parser) term(depth int) Expr {
	t := p.tok
	switch {
	case t.kind == tEllipsis:
		p.advance()
		return Expr{Kind: Ellipsis}
	case t.kind == tInt || t.kind == tHex:
		p.advance()
		v, err := strconv.ParseInt(t.text, map[bool]int{true: 10, false: 0}[t.kind == tInt], 64)
		if err != nil {
			u, err := strconv.ParseUint(t.text, map[bool]int{true: 10, false: 0}[t.kind == tInt], 64)
			if err != nil {
				p.fail("number %s is out of range", t.text)
			}
			v = int64(u)
		}
		return Expr{Kind: Int, Int: v}
	case t.kind == tString:
		e := Expr{Kind: String}
		for p.tok.kind == tString {
			s, err := strconv.Unquote(`"` + strings.ReplaceAll(p.tok.text, "\n", `\n`) + `"`)
			if err != nil {
				p.fail("bad text %q", p.tok.text)
			}
			e.Text += s
			p.advance()
		}
		if p.tok.kind == tEllipsis { // "text"...: more may follow
			p.advance()
		}
		return e
	case t.kind == tWord:
		p.advance()
		if p.accept("(") {
			e := Expr{Kind: Func, Text: t.text}
			if !p.is(")") {
				e.List = p.exprs(depth + 1)
			}
			p.want(")")
			return e
		}
		return Expr{Kind: Word, Text: t.text}
	case p.accept("["):
		e := Expr{Kind: Array}
		if !p.is("]") {
			e.List = p.exprs(depth + 1)
		}
		p.want("]")
		return e
	case p.accept("{"):
		return p.group(depth)
	}
	p.fail("want an expression, not %v", t)
	return Expr{}
}

// group: a structure of name=value or name(...)=value, or a list.
func (p *parser) group(depth int) Expr {
	e := Expr{Kind: Group}
	for {
		v := p.expr(depth + 1)
		if (v.Kind == Word || v.Kind == Func) && p.accept("=") {
			f := p.expr(depth + 1)
			e.Fields = append(e.Fields, Field{Name: v.Text, Val: f})
		} else {
			e.List = append(e.List, v)
		}
		if !p.accept(",") {
			break
		}
	}
	p.want("}")
	return e
}
