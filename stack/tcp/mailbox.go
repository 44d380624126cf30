package tcp

import "sync/atomic"

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

// Waiter is where one application goroutine waits. The zero value is ready.
type Waiter struct {
	armed atomic.Uint32
	ch    chan struct{}
}

// Arm prepares to wait and returns the channel that gets a token at the next wake. After Arm the caller must look once more whether
// what it waits for has come. Only one goroutine at a time may use a Waiter.
func (w *Waiter) Arm() <-chan struct{} {
	if w.ch == nil {
		w.ch = make(chan struct{}, 1)
	}
	w.armed.Store(1)
	return w.ch
}

// Disarm says that nobody waits any more. A token that came meanwhile stays, so a later wait may end early once.
func (w *Waiter) Disarm() { w.armed.Store(0) }

// Armed reports whether a goroutine waits.
func (w *Waiter) Armed() bool { return w.armed.Load() != 0 }

// Wake ends the wait, if there is one.
func (w *Waiter) Wake() {
	if w.armed.Load() != 0 && w.armed.CompareAndSwap(1, 0) {
		select {
		case w.ch <- struct{}{}:
		default:
		}
	}
}
