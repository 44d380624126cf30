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
			r.fail(name, errors.New("unknown parameter"))
		}
	}
	return r
}

func (r *Reader) index(name string) int {
	return slices.IndexFunc(r.info.Params, func(d plugins.Param) bool { return d.Name == name })
}

func (r *Reader) fail(name string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s: %w", r.info.Name, name, err))
}

// text is the given or the default text. Asking for a parameter that is not documented is a bug of the module, and panics.
func (r *Reader) text(name string) string {
	if v, ok := r.p[name]; ok {
		return v
	}
	return r.info.Params[r.index(name)].Default
}

// within returns v, or records why it is unusable.
func within[T cmp.Ordered](r *Reader, name string, v T, err error, lo, hi T) T {
	if err == nil && (v < lo || v > hi) {
		err = fmt.Errorf("%v is not within %v…%v", v, lo, hi)
	}
	if err != nil {
		r.fail(name, err)
		return lo
	}
	return v
}

// Uint returns an unsigned integer within [lo, hi].
func (r *Reader) Uint(name string, lo, hi uint64) uint64 {
	v, err := strconv.ParseUint(r.text(name), 10, 64)
	return within(r, name, v, err, lo, hi)
}

// Duration returns a duration within [lo, hi].
func (r *Reader) Duration(name string, lo, hi time.Duration) time.Duration {
	v, err := time.ParseDuration(r.text(name))
	return within(r, name, v, err, lo, hi)
}

// Bool returns a boolean.
func (r *Reader) Bool(name string) bool {
	v, err := strconv.ParseBool(r.text(name))
	if err != nil {
		r.fail(name, err)
	}
	return v
}

// Err returns all errors found, in the order of their texts.
func (r *Reader) Err() error {
	slices.SortFunc(r.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(r.errs...)
}
