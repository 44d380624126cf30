package stack

import (
	"fmt"
	"math/rand/v2"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// workerOf is the worker that c lives on.
func (s *Stack) workerOf(c *tcp.Conn) *Worker {
	for _, w := range s.workers {
		if c.Of(w.engine) {
			return w
		}
	}
	return nil
}

// Info returns a snapshot of c, taken between two turns of its worker. After the connection's end it has the last figures and the state
// CLOSED. It fails only with ErrClosed.
func (s *Stack) Info(c *tcp.Conn) (i tcp.Info, err error) {
	w := s.workerOf(c)
	if w == nil || !w.do(func() { i = w.engine.Info(c) }) {
		return i, ErrClosed
	}
	i.Worker = w.index
	return i, nil
}

// Give makes module index the owner of one connection, at once or, before the connection is established, from its beginning. Others keep
// theirs. In place of a module that is late or dead, the fallback gets it. It fails with tcp.Aborted after the connection's end.
func (s *Stack) Give(c *tcp.Conn, k plugins.Kind, index int) (err error) {
	w := s.workerOf(c)
	if w == nil || !w.do(func() { err = w.engine.Give(c, k, index) }) {
		return ErrClosed
	}
	return err
}

// Module returns the index of the module with the given name. One that is linked in (package builtin) and not attached yet is attached,
// with its default parameters.
func (s *Stack) Module(k plugins.Kind, name string) (index int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index = -1
	if !s.workers[0].do(func() { index = s.workers[0].engine.Find(k, name) }) {
		return 0, ErrClosed
	}
	if index >= 0 {
		return index, nil
	}
	entry, ok := builtin.Find(k, name)
	if !ok {
		return 0, fmt.Errorf("stack: no %v module %q is attached or linked in (linked in are %v)", k, name, builtin.Names(k))
	}
	per := make([]any, len(s.workers))
	for i := range per {
		if per[i], err = entry.New(nil, rand.Uint64()); err != nil {
			return 0, fmt.Errorf("stack: %v module %s: %w", k, name, err)
		}
	}
	return s.attach(k, name, per)
}
