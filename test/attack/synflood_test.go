package attack

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// 50 000 SYNs per second from addresses that never answer. The half-open connections are bounded, and what they cost ends with them.
func TestSYNFlood(t *testing.T) {
	for _, c := range []struct {
		name string
		from func(int) netip.Addr
	}{{"outside", Outside}, {"neighbours", Neighbour}} {
		t.Run(c.name, func(t *testing.T) {
			n := New(t, Config{})
			n.Serve(backlog)
			h := n.Ask(20_000)
			n.Idle(100 * time.Millisecond)
			n.Reset()
			rng := rand.New(rand.NewPCG(1, 1))
			most := uint64(0)
			n.perSecond(3*time.Second, 50_000, func(i int) {
				src := netip.AddrPortFrom(c.from(i%60_000), uint16(1024+rng.IntN(60000)))
				n.Inject(n.TCP(&Segment{Src: src, TCP: wire.TCP{Seq: rng.Uint32(), Flags: wire.SYN, Window: 65535}, Options: Usual}))
				if i%1000 == 0 {
					s := n.Stats().TCP
					most = max(most, s.Conns+s.SynRecvs)
				}
			})
			n.cost()
			h.Want(50, 2*time.Second)
			if most > backlog+128+2 {
				t.Errorf("%d connections", most)
			}
			if n.Out > n.In+6*(backlog+128) { // the SYN-ACKs of those that are remembered are sent again
				t.Errorf("%d frames were answered by %d", n.In, n.Out)
			}
			if s := n.Stats().TCP; n.OutBytes > n.InBytes*11/10 || n.MallocsPerTurn() > 2 {
				t.Errorf("%d bytes were answered by %d; %.1f allocations per turn; %+v", n.InBytes, n.OutBytes, n.MallocsPerTurn(), s)
			}
			if n.Peak > 1<<20 {
				t.Errorf("streams took %d bytes", n.Peak)
			}
			n.Idle(5 * time.Minute)
			if st := n.Stats(); st.TCP.Conns > 1 {
				t.Errorf("%d connections are left", st.TCP.Conns)
			}
		})
	}
}
