package tcp

// Tuning is what an application has set of a connection otherwise than the engine's settings. Zero fields mean those. Connections
// share it: it does not change, another takes its place (Conn.Tune).
type Tuning struct {
	RecvBuffer int // bytes that wait for the reader (SO_RCVBUF); the buffer then does not size itself
}

var noTuning Tuning

// Tuned returns what the application has set. The caller does not change it.
func (c *Conn) Tuned() *Tuning {
	if t := c.tune.Load(); t != nil {
		return t
	}
	return &noTuning
}

// Tune changes what the application has set.
func (c *Conn) Tune(change func(*Tuning)) {
	for {
		old := c.tune.Load()
		t := *c.Tuned()
		change(&t)
		if c.tune.CompareAndSwap(old, &t) {
			break
		}
	}
	c.kick(kickOption)
}
