package tcp

import (
	"sync"
	"sync/atomic"
)

// mailbox is where applications leave messages for a worker: a lock-free stack of connections, each in it at most once.
type mailbox struct {
	_    [64]byte
	head atomic.Pointer[Conn]
	_    [56]byte
	wake func() // called after a push onto an empty mailbox
}

func (m *mailbox) push(c *Conn) {
	for {
		h := m.head.Load()
		c.mailNext = h
		if m.head.CompareAndSwap(h, c) {
			if h == nil {
				m.wake()
			}
			return
		}
	}
}

// take empties the mailbox and returns its connections in order of arrival, linked by mailNext.
func (m *mailbox) take() *Conn {
	if m.head.Load() == nil {
		return nil
	}
	var first *Conn
	for c := m.head.Swap(nil); c != nil; {
		next := c.mailNext
		c.mailNext = first
		first, c = c, next
	}
	return first
}

// Waiter is where one application goroutine waits. The zero value is ready. Between waits it holds no channel, so that idle
// connections stay small.
type Waiter struct {
	armed atomic.Uint32
	ch    chan struct{}
}

var channels = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

// Arm prepares to wait. After it the caller must look once more whether what it waits for has come, and then call Wait or Disarm.
// Only one goroutine at a time may use a Waiter.
func (w *Waiter) Arm() {
	w.ch = channels.Get().(chan struct{})
	w.armed.Store(1)
}

// Wait waits for the next Wake.
func (w *Waiter) Wait() {
	<-w.ch
	w.release()
}

// WaitOr waits for the next Wake or until done is closed; it reports whether there was a wake.
func (w *Waiter) WaitOr(done <-chan struct{}) bool {
	select {
	case <-w.ch:
		w.release()
		return true
	case <-done:
		w.Disarm()
		return false
	}
}

// Disarm ends what Arm began, without a wait.
func (w *Waiter) Disarm() {
	if !w.armed.CompareAndSwap(1, 0) {
		<-w.ch // somebody is waking us
	}
	w.release()
}

func (w *Waiter) release() {
	channels.Put(w.ch)
	w.ch = nil
}

// Armed reports whether a goroutine waits.
func (w *Waiter) Armed() bool { return w.armed.Load() != 0 }

// Wake ends the wait, if there is one.
func (w *Waiter) Wake() {
	if w.armed.Load() != 0 && w.armed.CompareAndSwap(1, 0) {
		w.ch <- struct{}{} // has room: one wake per Arm
	}
}
