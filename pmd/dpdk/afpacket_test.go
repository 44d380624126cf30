//go:build dpdk

package dpdk

import (
	"fmt"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"github.com/vishvananda/netlink"
)

// veth makes a veth pair in a namespace of its own.
func veth(t testing.TB) *netns.Pair {
	t.Helper()
	ns := namespace(t)
	v, err := netns.Veth(netns.End{NS: ns, Name: "va"}, netns.End{NS: ns, Name: "vb"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// openOn opens net_af_packet on an interface.
func openOn(t testing.TB, i netns.Interface, id int, args string, c Config) (p pmd.Port) {
	t.Helper()
	c.Vdev = fmt.Sprintf("net_af_packet%d,iface=%s%s", id, i.Name, args)
	if err := i.NS.Do(func() error {
		p = open(t, c)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAFPacket(t *testing.T) {
	pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
		v := veth(t)
		return openOn(t, v.A, 0, "", Config{}), openOn(t, v.B, 1, "", Config{})
	}, pmdtest.Options{TxRing: 8})
}

// TestAFPacketQueues spreads two queue pairs over a fanout group.
func TestAFPacketQueues(t *testing.T) {
	pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
		v := veth(t)
		return openOn(t, v.A, 0, ",qpairs=2", Config{Queues: 2}), openOn(t, v.B, 1, ",qpairs=2", Config{Queues: 2})
	}, pmdtest.Options{TxRing: 8})
}

// TestAFPacketNeverBlocks sends faster than a rate limit lets frames leave, so that they pile up in the kernel. The PMD by itself
// would wait for it.
func TestAFPacketNeverBlocks(t *testing.T) {
	v := veth(t)
	if err := v.A.NS.Run("tc", "qdisc", "replace", "dev", v.A.Name, "root", "tbf", "rate", "4mbit", "burst", "2kb", "latency", "10s"); err != nil {
		t.Skipf("tc makes no token bucket filter: %v", err)
	}
	a, b := openOn(t, v.A, 0, ",qdisc_bypass=0", Config{}), openOn(t, v.B, 1, "", Config{})
	qa, qb := a.Queue(0), b.Queue(0)
	frame := make([]byte, 1400)
	copy(frame, b.Info().MAC)
	taken, refused, slow := 0, 0, 0
	for refused < 1000 && taken < 1000 {
		f := qa.Pool().Get()
		f.Append(frame)
		start := time.Now()
		n, _ := qa.Poll([]*pmd.Buf{f}, nil)
		if time.Since(start) > 50*time.Millisecond {
			slow++
		}
		if n == 0 {
			refused++
			qa.Pool().Put(f)
		}
		taken += n
	}
	if refused == 0 || a.Stats().TxFull != uint64(refused) {
		t.Errorf("%d frames refused, TxFull is %d", refused, a.Stats().TxFull)
	}
	if slow > refused/20 { // now and then a busy machine lets one wait
		t.Errorf("%d of %d polls took longer than 50 ms", slow, taken+refused)
	}
	t.Logf("%d frames on their way, %d slow polls", taken, slow)

	got := 0
	rx := make([]*pmd.Buf, 32)
	for end := time.Now().Add(10 * time.Second); got < taken && time.Now().Before(end); {
		qa.Poll(nil, nil)
		_, n := qb.Poll(nil, rx)
		for _, f := range rx[:n] {
			qb.Pool().Put(f)
		}
		got += n
	}
	if got != taken {
		t.Errorf("%d frames taken, %d arrived", taken, got)
	}
}

// TestAFPacketLink follows the interface, of which the PMD says nothing.
func TestAFPacketLink(t *testing.T) {
	v := veth(t)
	a := openOn(t, v.A, 0, "", Config{})
	until(t, a.LinkUp)
	for _, state := range []string{"down", "up"} {
		if err := v.A.NS.Do(func() error {
			l, err := netlink.LinkByName(v.B.Name)
			if err == nil && state == "up" {
				return netlink.LinkSetUp(l)
			} else if err == nil {
				return netlink.LinkSetDown(l)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return a.LinkUp() == (state == "up") })
	}
	if i := a.Info(); i.Driver != "dpdk:net_af_packet" || i.MAC.String() != v.A.MAC.String() || i.MTU != 1500 {
		t.Errorf("%+v, want MAC %v", i, v.A.MAC)
	}
}

// TestAFPacketDrops sends more than the receiver's ring holds: the kernel's count of lost frames is the port's.
func TestAFPacketDrops(t *testing.T) {
	v := veth(t)
	a, b := openOn(t, v.A, 0, "", Config{}), openOn(t, v.B, 1, ",framecnt=64", Config{})
	frame := make([]byte, 100)
	copy(frame, b.Info().MAC)
	for range 200 {
		send(t, a, frame, nil)
	}
	if s := b.Stats(); s.RxDropped != 200-64 {
		t.Errorf("%+v", s)
	}
	got := 0
	rx := make([]*pmd.Buf, 64)
	until(t, func() bool {
		_, n := b.Queue(0).Poll(nil, rx)
		for _, f := range rx[:n] {
			b.Queue(0).Pool().Put(f)
		}
		got += n
		return got == 64
	})
	if s := b.Stats(); s.RxDropped != 200-64 || s.RxFrames != 64 { // the kernel counts anew after each question
		t.Errorf("%+v", s)
	}
}
