package pmd

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Track turns on recording where each buffer is taken, for leak reports. It costs some hundred nanoseconds per buffer.
func (p *Pool) Track(on bool) { p.track.Store(on) }

// LeakError says which buffers did not return to their pool.
type LeakError struct {
	Pool  string
	Count int            // negative if more buffers came back than there are
	Sites map[string]int // where they were taken, if the pool was tracked

	pool *Pool
}

func (e *LeakError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "pmd: pool %s: %d buffers leaked", e.Pool, e.Count)
	for _, site := range slices.Sorted(maps.Keys(e.Sites)) {
		fmt.Fprintf(&s, "\n  %d taken at %s", e.Sites[site], site)
	}
	return s.String()
}

// CheckLeaks returns a *LeakError if buffers are neither free nor with the driver. Only the owner calls it.
func (p *Pool) CheckLeaks() error {
	if e := p.leaks(); e != nil {
		return e
	}
	return nil
}

func (p *Pool) leaks() *LeakError {
	p.Collect()
	out := len(p.bufs) - len(p.free) - int(p.outside.Load())
	if out == 0 {
		return nil
	}
	e := &LeakError{Pool: p.name, Count: out, Sites: map[string]int{}, pool: p}
	for i := range p.bufs {
		if b := &p.bufs[i]; b.taken && len(b.site) > 0 {
			e.Sites[where(b.site)]++
		}
	}
	return e
}

// callers records the call stack above the pool's or buffer's method in site, reusing its memory.
func callers(site []uintptr) []uintptr {
	const depth = 8
	if cap(site) < depth {
		site = make([]uintptr, depth)
	}
	site = site[:depth]
	return site[:runtime.Callers(3, site)]
}

func where(pc []uintptr) string {
	var s []string
	frames := runtime.CallersFrames(pc)
	for {
		f, more := frames.Next()
		s = append(s, fmt.Sprintf("%s:%d", f.Function, f.Line))
		if !more || len(s) == 5 {
			return strings.Join(s, " < ")
		}
	}
}

// watched are the pools made while watching is on. Tests turn it on (pmdtest.Main) so that no leak passes unseen, whoever
// ignored the error of Close.
var watched struct {
	on    atomic.Bool
	mu    sync.Mutex
	live  map[*Pool]struct{}
	leaks map[*Pool]*LeakError
}

// Watch tracks all pools made from now on and remembers what they leak. It is for tests.
func Watch() {
	watched.mu.Lock()
	defer watched.mu.Unlock()
	watched.live, watched.leaks = map[*Pool]struct{}{}, map[*Pool]*LeakError{}
	watched.on.Store(true)
}

// Watched returns an error that names the pools made since Watch that were never unmapped (a port was not closed) and the
// leaks of those that were.
func Watched() error {
	watched.mu.Lock()
	defer watched.mu.Unlock()
	var errs []error
	for p := range watched.live {
		errs = append(errs, fmt.Errorf("pmd: pool %s was not unmapped: its port is still open", p.name))
	}
	for _, e := range watched.leaks {
		errs = append(errs, e)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Forgive removes the leak that err reports from what Watched returns, for tests that leak on purpose.
func Forgive(err error) {
	var e *LeakError
	if errors.As(err, &e) {
		watched.mu.Lock()
		defer watched.mu.Unlock()
		delete(watched.leaks, e.pool)
	}
}

func watch(p *Pool) {
	if !watched.on.Load() {
		return
	}
	p.Track(true)
	watched.mu.Lock()
	defer watched.mu.Unlock()
	watched.live[p] = struct{}{}
}

func unwatch(p *Pool) {
	if !watched.on.Load() {
		return
	}
	watched.mu.Lock()
	defer watched.mu.Unlock()
	if _, ok := watched.live[p]; !ok {
		return
	}
	delete(watched.live, p)
	if e := p.leaks(); e != nil {
		watched.leaks[p] = e
	}
}
