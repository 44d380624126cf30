// Package lang reads packetdrill scripts: https://github.com/google/packetdrill describes the language in Syntax.md. A script is a list of
// events, each with a time and an action: a packet that is sent to the stack or expected from it, a system call with its result,
// a shell command, or an assertion on the figures of the connection.
package lang

import (
	"fmt"
	"strings"
)

// Script is a parsed file.
type Script struct {
	Options []Option
	Events  []*Event
}

// Option is a line of the form --name=value.
type Option struct {
	Line        int
	Name, Value string
}

// TimeKind says what the times of an event mean.
type TimeKind uint8

// Kinds of times.
const (
	Absolute      TimeKind = iota // At, since the script's start
	Relative                      // At, since the event before
	Any                           // whenever it happens
	AbsoluteRange                 // between At and Until
	RelativeRange
)

// Event is one statement. Exactly one of Packet, Call, Command and Code is there.
type Event struct {
	Line      int
	Kind      TimeKind
	At, Until int64 // µs
	Text      string

	Packet  *Packet
	Call    *Call
	Command string // between backticks
	Code    string // between %{ and }%
	isCode  bool
}

// IsCode reports whether the event is an assertion.
func (e *Event) IsCode() bool { return e.isCode }

// Proto is what a packet carries.
type Proto uint8

// Protocols.
const (
	TCP Proto = iota
	UDP
	ICMP
)

// Values of Packet.ECN.
const (
	ECNAny = -1 // not said
	NotECT = 0
	ECT1   = 1
	ECT0   = 2
	CE     = 3
	ECT01  = 4 // either of the two
)

// Packet is a packet of a script. Numbers that are not said are -1.
type Packet struct {
	In    bool // sent to the stack
	Proto Proto

	ECN, TOS, TTL    int
	FlowLabel        int
	SrcPort, DstPort uint16 // 0: the flow's own

	Flags    uint16
	ACE      int // the three flags as a number
	Seq      uint32
	Len      int
	Ack      uint32
	Win      int
	Urg      uint16
	Opts     []Opt
	AnyOpts  bool // <...>
	ICMPType string
	ICMPCode string
	MTU      int
	Echoed   Proto
	EchoSeq  uint32
	EchoLen  int
}

// Kinds of TCP options.
const (
	OptEOL     = 0
	OptNOP     = 1
	OptMSS     = 2
	OptWScale  = 3
	OptSACKOK  = 4
	OptSACK    = 5
	OptTS      = 8
	OptFO      = 34
	OptAccECN0 = 172
	OptAccECN1 = 174
	OptExp     = 254
)

// Opt is one TCP option.
type Opt struct {
	Kind     uint8
	Num      uint32 // mss, wscale
	Val, Ecr uint32
	Blocks   [][2]uint32
	Data     []byte // cookie, or the counters of AccECN
}

// Call is a system call.
type Call struct {
	Name     string
	Args     []Expr
	Result   Expr
	Errno    string // with Result -1
	Blocking bool
	End      int64 // µs: when a blocking call returns, counted as the time of its event
}

// ExprKind is the kind of an Expr.
type ExprKind uint8

// Kinds of expressions.
const (
	Ellipsis ExprKind = iota
	Int
	Word
	String
	Or    // List joined by |
	Array // [List]
	Group // {List} or {Fields}
	Func  // Text(List)
)

// Expr is an argument or a result.
type Expr struct {
	Kind   ExprKind
	Int    int64
	Text   string
	List   []Expr
	Fields []Field
}

// Field is a member of a structure.
type Field struct {
	Name string
	Val  Expr
}

// Field returns the member with that name, or nil.
func (e *Expr) Field(name string) *Expr {
	for i := range e.Fields {
		if e.Fields[i].Name == name {
			return &e.Fields[i].Val
		}
	}
	return nil
}

func (e Expr) String() string {
	join := func(sep string) string {
		s := make([]string, len(e.List))
		for i := range e.List {
			s[i] = e.List[i].String()
		}
		return strings.Join(s, sep)
	}
	switch e.Kind {
	case Ellipsis:
		return "..."
	case Int:
		return fmt.Sprint(e.Int)
	case Word:
		return e.Text
	case String:
		return fmt.Sprintf("%q", e.Text)
	case Or:
		return join("|")
	case Array:
		return "[" + join(", ") + "]"
	case Func:
		return e.Text + "(" + join(", ") + ")"
	}
	if len(e.Fields) == 0 {
		return "{" + join(", ") + "}"
	}
	s := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		s[i] = f.Name + "=" + f.Val.String()
	}
	return "{" + strings.Join(s, ", ") + "}"
}

// Error is a mistake in a script, or something of the language that this package does not know.
type Error struct {
	Line        int
	Text        string // what is wrong
	Unsupported bool
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }
