// Package param reads the parameters of the rtx and pace modules from their text form, against their documentation.
package param

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Reader gives typed access to parameters and collects all errors, each naming the module and the key.
type Reader struct {
	info plugins.Info
	p    plugins.Params
	errs []error
}

// Read starts reading p as the parameters of the module that info describes. A name that info does not list is an error.
func Read(info plugins.Info, p plugins.Params) *Reader {
	r := &Reader{info: info, p: p}
	for name := range p {
		if r.index(name) < 0 {
			r.fail(name, "unknown parameter")
		}
	}
	return r
}

func (r *Reader) index(name string) int {
	return slices.IndexFunc(r.info.Params, func(d plugins.Param) bool { return d.Name == name })
}

func (r *Reader) fail(name, format string, args ...any) {
	r.errs = append(r.errs, &plugins.ParamError{Module: r.info.Name, Param: name, Problem: fmt.Sprintf(format, args...)})
}

// text is the given or the default text. Asking for a parameter that is not documented is a bug of the module, and panics.
func (r *Reader) text(name string) string {
	if v, ok := r.p[name]; ok {
		return v
	}
	return r.info.Params[r.index(name)].Default
}

// within returns v, or records that it is out of range.
func within[T cmp.Ordered](r *Reader, name string, v, lo, hi T) T {
	if v < lo || v > hi {
		r.fail(name, "%v is not within %v…%v", v, lo, hi)
		return lo
	}
	return v
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
	}
	return within(r, name, v, lo, hi)
}

// Duration returns a duration within [lo, hi].
func (r *Reader) Duration(name string, lo, hi time.Duration) time.Duration {
	text := r.text(name)
	v, err := time.ParseDuration(text)
	if err != nil {
		r.fail(name, "%q is not a duration like \"200ms\"", text)
		return lo
	}
	return within(r, name, v, lo, hi)
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

// Err returns all errors found, in the order of their texts.
func (r *Reader) Err() error {
	slices.SortFunc(r.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(r.errs...)
}
