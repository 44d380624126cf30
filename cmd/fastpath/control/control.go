// Package control is the daemon's control socket: the protocol, its server and client, and the types that it carries, which are
// also the JSON of `fastpath ctl … --json`.
//
// The socket is a unix stream socket with mode 0600. A request is one line of JSON, {"v":1,"op":"ss","args":{…}}; the answer is
// one line, {"data":{…}} or {"error":{"code":"…","message":"…"}}, and the next request may follow. The answers of the streaming
// operations (capture, events) are any number of lines {"item":{…}} before that line; the client ends a stream early by
// closing its sending side, and then still gets the last line.
//
// Names in JSON are in snake case and end in their unit: _ns (nanoseconds), _unix_ns (nanoseconds since 1970), _bytes, _bps
// (bits per second). What has no unit is a count; windows and buffers are in bytes, never in segments.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version is the version of the protocol. A daemon answers only requests of its own version.
const Version = 1

// MaxRequest is the largest request line in bytes.
const MaxRequest = 64 << 10

// Operations.
const (
	OpInfo    = "info"
	OpSS      = "ss"
	OpModules = "modules"
	OpSwap    = "swap"
	OpSet     = "set"
	OpStat    = "stat"
	OpEvents  = "events"
	OpCapture = "capture"
	OpFilter  = "filter"
)

// Handler is what the daemon implements. Its methods are called from several goroutines at once; ctx ends when the client goes
// away or the server is closed. An *Error is passed on with its code, any other error as CodeInternal.
type Handler interface {
	Info(ctx context.Context) (*Info, error)
	SS(ctx context.Context, r SSRequest) (*SSReply, error)
	Modules(ctx context.Context) (*ModulesReply, error)
	Swap(ctx context.Context, r SwapRequest) (*SwapReply, error)
	Set(ctx context.Context, r SetRequest) (*SetReply, error)
	Stat(ctx context.Context) (*StatReply, error)
	Filter(ctx context.Context, r FilterRequest) (*FilterReply, error)
	// Events calls emit for each event, oldest first; with Follow it goes on until ctx ends. emit blocks while the client is
	// slow: it is never to be called from a worker.
	Events(ctx context.Context, r EventsRequest, emit func(Event) error) error
	// Capture calls emit for each frame until Count is reached or ctx ends, and then returns its summary without an error. Frames
	// that arrive while emit blocks are to be dropped and counted.
	Capture(ctx context.Context, r CaptureRequest, emit func(Frame) error) (*CaptureSummary, error)
}

// Codes of an Error.
const (
	CodeBadRequest = "bad_request" // not JSON, unknown operation or field, bad argument
	CodeVersion    = "version"     // the request has another protocol version
	CodeDenied     = "denied"      // the client's user may not control the daemon
	CodeBusy       = "busy"        // too many clients
	CodeRefused    = "refused"     // understood, but cannot be done now: the message says why
	CodeInternal   = "internal"
)

// Error is an error that a client sees.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Refuse makes an Error with CodeRefused.
func Refuse(format string, args ...any) error {
	return &Error{CodeRefused, fmt.Sprintf(format, args...)}
}

// Request is a line from the client.
type Request struct {
	V    int             `json:"v"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Response is a line from the server. Exactly one field is set.
type Response struct {
	Item  json.RawMessage `json:"item,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	Error *Error          `json:"error,omitempty"`
}

// ParseRequest reads a request line and the arguments of its operation, which are of type SSRequest, SwapRequest, SetRequest, FilterRequest,
// EventsRequest or CaptureRequest, or nil. The error is an *Error.
func ParseRequest(line []byte) (op string, args any, err error) {
	var r Request
	if err := strict(line, &r); err != nil {
		return "", nil, badRequest("%v", err)
	}
	if r.V != Version {
		return "", nil, &Error{CodeVersion, fmt.Sprintf("the request has protocol version %d, this daemon speaks %d", r.V, Version)}
	}
	var check func() error
	switch r.Op {
	case OpInfo, OpModules, OpStat:
		args = &struct{}{}
	case OpSS:
		a := &SSRequest{}
		args, check = a, a.check
	case OpSwap:
		a := &SwapRequest{}
		args, check = a, a.check
	case OpSet:
		a := &SetRequest{}
		args, check = a, a.check
	case OpFilter:
		a := &FilterRequest{}
		args, check = a, a.check
	case OpEvents:
		a := &EventsRequest{}
		args, check = a, a.check
	case OpCapture:
		a := &CaptureRequest{}
		args, check = a, a.check
	default:
		return "", nil, badRequest("unknown operation %q", r.Op)
	}
	if len(r.Args) > 0 {
		if err := strict(r.Args, args); err != nil {
			return "", nil, badRequest("%s: %v", r.Op, err)
		}
	}
	if check != nil {
		if err := check(); err != nil {
			return "", nil, badRequest("%s: %v", r.Op, err)
		}
	}
	return r.Op, args, nil
}

func badRequest(format string, args ...any) error {
	return &Error{CodeBadRequest, fmt.Sprintf(format, args...)}
}

// asError returns err as it goes to the client.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{CodeInternal, err.Error()}
}

// strict decodes exactly one JSON value without unknown fields.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the request on its line")
	}
	return nil
}
