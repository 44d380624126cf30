package main

import (
	"errors"
	"regexp"
	"strings"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/test/script/posix"
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Code between %{ and }% is Python, of which scripts use assertions on the fields of TCP_INFO. It is run as Starlark, with assert made a
// function.

// codeState are the variables that code has set.
type codeState struct{ globals starlark.StringDict }

var assertion = regexp.MustCompile(`(?m)(^|[;:])([ \t]*)assert\b[ \t]*([^;\n]*)`)

func (r *runner) runCode(text string) error {
	env := starlark.StringDict{"_assert": starlark.NewBuiltin("assert", assertFunc)}
	for k, v := range r.code.globals {
		env[k] = v
	}
	for k, v := range codeSymbols {
		env[k] = starlark.MakeInt(v)
	}
	r.fields(env)
	src := assertion.ReplaceAllString(dedent(text), "${1}${2}_assert(${3})")
	opts := &syntax.FileOptions{TopLevelControl: true, GlobalReassign: true, While: true}
	thread := &starlark.Thread{Name: "code", Print: func(*starlark.Thread, string) {}}
	thread.SetMaxExecutionSteps(1e6)
	globals, err := starlark.ExecFileOptions(opts, thread, "code", src, env)
	if err != nil {
		return codeError(text, err)
	}
	if r.code.globals == nil {
		r.code.globals = starlark.StringDict{}
	}
	for k, v := range globals {
		r.code.globals[k] = v
	}
	return nil
}

func codeError(text string, err error) error {
	var undefined resolve.ErrorList
	var syn syntax.Error
	var eval *starlark.EvalError
	switch {
	case errors.As(err, &undefined):
		return unsupported("code: %s", undefined[0].Msg)
	case errors.As(err, &syn):
		return unsupported("code: %s", syn.Msg)
	case errors.As(err, &eval):
		return failf("%s\n  %s", strings.TrimSpace(text), eval.Msg)
	}
	return err
}

// dedent strips what surrounds the code and the first line's indentation.
func dedent(text string) string {
	lines := strings.Split(strings.Trim(text, " \t\r\n"), "\n")
	indent := ""
	for _, l := range lines[1:] {
		if t := strings.TrimLeft(l, " \t"); t != "" {
			indent = l[:len(l)-len(t)]
			break
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(strings.TrimPrefix(lines[i], indent), "\r")
	}
	return strings.Join(lines, "\n") + "\n"
}

func assertFunc(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	if len(args) > 0 && bool(args[0].Truth()) {
		return starlark.None, nil
	}
	text := "assertion failed"
	for _, a := range args[min(1, len(args)):] {
		text += ": " + a.String()
	}
	return nil, errors.New(text)
}

// Numbers of Linux.
var codeSymbols = map[string]int{
	"TCP_ESTABLISHED": 1, "TCP_SYN_SENT": 2, "TCP_SYN_RECV": 3, "TCP_FIN_WAIT1": 4, "TCP_FIN_WAIT2": 5, "TCP_TIME_WAIT": 6, "TCP_CLOSE": 7,
	"TCP_CLOSE_WAIT": 8, "TCP_LAST_ACK": 9, "TCP_LISTEN": 10, "TCP_CLOSING": 11,
	"TCP_CA_Open": 0, "TCP_CA_Disorder": 1, "TCP_CA_CWR": 2, "TCP_CA_Recovery": 3, "TCP_CA_Loss": 4,
	"TCPI_OPT_TIMESTAMPS": 1, "TCPI_OPT_SACK": 2, "TCPI_OPT_WSCALE": 4, "TCPI_OPT_ECN": 8, "TCPI_OPT_ECN_SEEN": 16, "TCPI_OPT_SYN_DATA": 32,
}

// info is the present flow's connection.
func (r *runner) info() tcp.Info {
	none := tcp.Info{State: tcp.Closed.String()}
	if r.cur == nil {
		return none
	}
	for _, list := range [][]tcp.Info{r.w.Stack.Conns(), r.w.Stack.TimeWaits()} {
		for _, i := range list {
			if i.Local.Port() == r.cur.localPort && i.Remote.Port() == r.cur.remotePort {
				return i
			}
		}
	}
	return none
}

// fields sets the names of TCP_INFO that we have.
func (r *runner) fields(env starlark.StringDict) {
	i := r.info()
	for name, v := range posix.Fields(&i) {
		env["tcpi_"+name] = starlark.MakeUint64(v)
	}
}
