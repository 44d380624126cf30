package tcp_test

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// A reset for which there was no buffer goes out when there is one, though nothing else happens then, and meanwhile the stack does not
// spin.
func TestLateReset(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{}})
	l := p.Listen(1)
	f := p.Passive(l, 5000, "mss 1460", 1000)
	pool := p.StackPool()
	var taken []*pmd.Buf
	for b := pool.Get(); b != nil; b = pool.Get() {
		taken = append(taken, b)
	}
	f.Conn.Abort()
	p.Quiet(10 * time.Millisecond)
	for _, b := range taken {
		pool.Put(b)
	}
	f.Expect("R. 1:1(0) ack 1")
}
