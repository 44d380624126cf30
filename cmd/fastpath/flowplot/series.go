// Package flowplot samples a connection of a running daemon and draws its figures over time.
package flowplot

import (
	"context"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// Series are the figures of one connection over time, with the moments that a plot shows. Its methods may be called concurrently.
type Series struct {
	// Socket is the daemon's control socket, Select which connections are looked at; without states, all with data under way. Of several the one
	// that has sent most is taken.
	Socket string
	Select control.SSRequest

	mu    sync.Mutex
	at    []time.Time
	conns []control.Conn
	marks []mark
}

// mark is a moment that the plot shows.
type mark struct {
	at   time.Time
	text string
}

// Every is how often Follow looks at the connection.
const Every = 50 * time.Millisecond

// Follow samples until ctx ends. A daemon that does not answer leaves a gap.
func (s *Series) Follow(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = s.Sample(ctx)
		}
	}
}

// Sample looks once, and reports whether there is a connection that has sent anything.
func (s *Series) Sample(ctx context.Context) (bool, error) {
	c, err := control.Dial(ctx, s.Socket)
	if err != nil {
		return false, err
	}
	defer c.Close()
	r := s.Select
	if len(r.States) == 0 {
		r.States = []string{control.StateEstablished, control.StateFinWait1, control.StateCloseWait}
	}
	var reply control.SSReply
	if err := c.Call(ctx, control.OpSS, r, &reply); err != nil {
		return false, err
	}
	var best *control.Conn
	for i := range reply.Conns {
		if best == nil || reply.Conns[i].SentBytes > best.SentBytes {
			best = &reply.Conns[i]
		}
	}
	if best == nil || best.SentBytes == 0 {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Unix(0, reply.TimeUnixNS))
	s.conns = append(s.conns, *best)
	return true, nil
}

// Mark adds a moment to the plot.
func (s *Series) Mark(at time.Time, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = append(s.marks, mark{at, text})
}

// Last is the last sample; the zero Conn if there is none.
func (s *Series) Last() (c control.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.conns); n > 0 {
		c = s.conns[n-1]
	}
	return c
}

// Len is the number of samples, and the time between the first and the last one.
func (s *Series) Len() (n int, span time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = len(s.at); n > 0 {
		span = s.at[n-1].Sub(s.at[0])
	}
	return n, span
}
