package stack_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// cable is a port whose link goes up and down.
type cable struct {
	pmd.Port
	up bool
}

func (c *cable) LinkUp() bool { return c.up }

// TestLinkUp: when the link comes back the stack's address is announced again (RFC 5227, 2.3), twice, by one worker.
func TestLinkUp(t *testing.T) {
	clock := &ticks{1e9}
	a, b, err := memlink.New(memlink.Config{Bufs: pool, Ring: 64, Now: clock.Now, Virtual: true})
	if err != nil {
		t.Fatal(err)
	}
	port := &cable{a, true}
	s, err := stack.New(stack.Config{Port: port, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, Clock: clock, Seed: 1,
		Workers: make([]stack.WorkerConfig, 3)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		var rx [64]*pmd.Buf
		_, n := b.Queue(0).Poll(nil, rx[:])
		for _, f := range rx[:n] {
			f.Free()
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	// pass lets time pass and counts announcements.
	pass := func(d time.Duration) (n int) {
		for end := clock.now.Add(d); clock.now < end; clock.now = clock.now.Add(50 * time.Millisecond) {
			for s.Turn() {
			}
			var rx [64]*pmd.Buf
			_, k := b.Queue(0).Poll(nil, rx[:])
			for _, f := range rx[:k] {
				var p wire.Packet
				if d := wire.Parse(f.Bytes(), &p, false); d != wire.DropNone || p.EtherType != wire.EtherTypeARP {
					t.Errorf("another frame: %v", d)
				}
				if arp, _ := wire.ParseARP(p.Payload); arp.SPA == arp.TPA && arp.SPA == [4]byte{10, 0, 0, 1} {
					n++
				}
				f.Free()
			}
		}
		return n
	}
	if n := pass(10 * time.Second); n != 2 {
		t.Errorf("%d announcements at the start", n)
	}
	port.up = false
	if n := pass(time.Second); n != 0 {
		t.Errorf("%d announcements without a link", n)
	}
	port.up = true
	if n := pass(10 * time.Second); n != 2 {
		t.Errorf("%d announcements after the link came back", n)
	}
	if n := s.Stats()[0].L3; n.LinkUps != 1 || n.LinkDowns != 1 {
		t.Errorf("counted %d downs and %d ups", n.LinkDowns, n.LinkUps)
	}
}
