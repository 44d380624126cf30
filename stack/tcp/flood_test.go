package tcp_test

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
)

// The path of a SYN flood allocates nothing, whether a SYN finds room in the queue or is answered by a cookie.
func TestSynFloodAllocs(t *testing.T) {
	p := tcptest.New(t, tcptest.Config{Stack: stack.Config{Gateway: tcptest.PeerAddr}})
	p.Listen(100)
	s := newSpoofed(p)
	pool := p.PeerPool()
	var rx [8]*pmd.Buf
	var tx [1]*pmd.Buf
	one := func() {
		b := pool.Get()
		b.Append(s.next())
		tx[0] = b
		p.Exchange(tx[:], rx[:])
	}
	for range 2000 {
		one()
	}
	if n := testing.AllocsPerRun(2000, one); n != 0 {
		t.Errorf("%v allocations per SYN", n)
	}
	if st := p.Stats().TCP; st.SyncookiesSent < 3000 {
		t.Errorf("%d cookies sent", st.SyncookiesSent)
	}
}
