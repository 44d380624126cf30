package pmdtest

import (
	"github.com/fastpath-tcp/fastpath/pmd"
	"golang.org/x/sys/unix"
)

// testWake wants the wake descriptor, where there is one, to become readable for each frame that arrives, and not to stay so.
func testWake(p *pair) {
	for _, s := range p.sides() {
		for q := range s.port.NumQueues() {
			if s.port.Queue(q).WakeFD() < 0 {
				p.Skipf("%s: queue %d has no wake descriptor", s.info.Name, q)
			}
		}
	}
	for range 5 {
		for _, s := range p.sides() {
			p.drain()
			s.peer.wake(s)
		}
	}
}

// wake parks s, sends it a frame, and wants to be woken for it.
func (s *side) wake(from *side) {
	s.p.Helper()
	for !s.park() {
		s.turn()
	}
	count := s.count
	bs := from.some(0, 1, func(int) int { return 100 })
	if !until(patience, func() bool { bs = from.offer(0, bs); return len(bs) == 0 }) {
		s.p.Fatalf("%s takes no frame", from.info.Name)
	}
	if !until(patience, func() bool {
		if s.readable(10) {
			s.unpark()
			s.turn()
			for s.count == count && !s.park() { // woken for a foreign frame
				s.turn()
			}
		}
		return s.count > count
	}) {
		s.unpark()
		s.turn()
		s.p.Fatalf("%s was not woken for a frame (it then found %d)", s.info.Name, s.count-count)
	}
	if !until(patience, func() bool { s.turn(); return !s.readable(0) }) {
		s.p.Fatalf("%s: the wake descriptor stays readable", s.info.Name)
	}
}

// park parks all queues and reports whether they were all empty.
func (s *side) park() bool {
	empty := true
	for q := range s.port.NumQueues() {
		if k, ok := s.port.Queue(q).(pmd.Parker); ok && !k.Park() {
			empty = false
		}
	}
	if !empty {
		s.unpark()
	}
	return empty
}

func (s *side) unpark() {
	for q := range s.port.NumQueues() {
		if k, ok := s.port.Queue(q).(pmd.Parker); ok {
			k.Unpark()
		}
	}
}

// readable waits for one of the wake descriptors for at most ms milliseconds.
func (s *side) readable(ms int) bool {
	fds := make([]unix.PollFd, s.port.NumQueues())
	for q := range fds {
		fds[q] = unix.PollFd{Fd: int32(s.port.Queue(q).WakeFD()), Events: unix.POLLIN}
	}
	n, err := unix.Poll(fds, ms)
	return err == nil && n > 0
}
