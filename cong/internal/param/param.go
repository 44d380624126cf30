// Package param reads a module's parameters from their text form, against the documentation of the parameters.
package param

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Reader gives typed access to parameters and collects all errors, each naming the module and the key.
type Reader struct {
	info plugins.Info
	p    plugins.Params
	errs []error
}

// Read starts reading p as the parameters of the module that info describes. Names that info does not list are errors.
func Read(info plugins.Info, p plugins.Params) *Reader {
	r := &Reader{info: info, p: p}
	var unknown []string
	for name := range p {
		if !slices.ContainsFunc(info.Params, func(d plugins.Param) bool { return d.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		r.fail(name, "unknown parameter")
	}
	return r
}

func (r *Reader) fail(name, format string, args ...any) {
	r.errs = append(r.errs, &plugins.ParamError{Module: r.info.Name, Param: name, Problem: fmt.Sprintf(format, args...)})
}

// text returns the given or the default text of a parameter. Asking for one that is not documented is a bug of the module.
func (r *Reader) text(name string) string {
	for _, d := range r.info.Params {
		if d.Name == name {
			if v, ok := r.p[name]; ok {
				return v
			}
			return d.Default
		}
	}
	panic("param: " + r.info.Name + " reads " + name + " but does not document it")
}

// Uint returns an unsigned integer within [lo, hi].
func (r *Reader) Uint(name string, lo, hi uint64) uint64 {
	text := r.text(name)
	v, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange): // all digits
		r.fail(name, "%s is not within %d…%d", text, lo, hi)
		return lo
	case err != nil:
		r.fail(name, "%q is not a whole number", text)
		return lo
	case v < lo || v > hi:
		r.fail(name, "%d is not within %d…%d", v, lo, hi)
		return lo
	}
	return v
}

// Bool returns a boolean.
func (r *Reader) Bool(name string) bool {
	text := r.text(name)
	v, err := strconv.ParseBool(text)
	if err != nil {
		r.fail(name, "%q is not true or false", text)
	}
	return v
}

// Check adds an error on a parameter if ok is false.
func (r *Reader) Check(ok bool, name, problem string) {
	if !ok {
		r.fail(name, "%s", problem)
	}
}

// Err returns all errors found.
func (r *Reader) Err() error { return errors.Join(r.errs...) }
