//go:build dpdk

package dpdk

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"github.com/vishvananda/netlink"
)

// virtio joins a vhost-user backend and a virtio_user front end.
func virtio(t *testing.T, c Config) (back, front pmd.Port) {
	sock := filepath.Join(t.TempDir(), "vhost.sock")
	c.Vdev = "net_vhost0,iface=" + sock
	back = open(t, c)
	c.Vdev = "net_virtio_user0,path=" + sock
	return back, open(t, c)
}

func TestVirtio(t *testing.T) {
	pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) { return virtio(t, Config{}) }, pmdtest.Options{TxRing: 64})
}

// TestVirtioLarge sends large frames over rings whose device takes them: they leave in many buffers and arrive in one.
func TestVirtioLarge(t *testing.T) {
	for _, ring := range []string{"", ",packed_vq=1"} {
		pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
			sock := filepath.Join(t.TempDir(), "vhost.sock")
			back := open(t, Config{Vdev: "net_vhost0,tso=1,iface=" + sock, BufSize: 65535, Buffers: 512, Ring: 64})
			front := open(t, Config{Vdev: "net_virtio_user0,path=" + sock + ring})
			if i := front.Info(); i.Caps&pmd.TSO == 0 || i.MaxTSO < 60000 {
				t.Fatalf("capabilities %b, MaxTSO %d", i.Caps, i.MaxTSO)
			}
			return back, front
		}, pmdtest.Options{Only: "Large"})
	}
}

// TestTap joins two taps by a bridge.
func TestTap(t *testing.T) {
	pmdtest.Run(t, func(t *testing.T) (a, b pmd.Port) {
		ns := namespace(t)
		if err := ns.Do(func() error {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
			if err := netlink.LinkAdd(bridge); err != nil {
				return err
			}
			a = open(t, Config{Vdev: "net_tap0,iface=t0"})
			b = open(t, Config{Vdev: "net_tap1,iface=t1"})
			errs := []error{ns.Sysctl("net/ipv6/conf/all/disable_ipv6", "1")}
			for i, name := range []string{"t0", "t1"} {
				l, err := netlink.LinkByName(name)
				if err != nil {
					return err
				}
				// With the port's own address on the kernel's side, the bridge would keep the port's frames to itself.
				mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}
				errs = append(errs, netlink.LinkSetHardwareAddr(l, mac), netlink.LinkSetMaster(l, bridge), netlink.LinkSetUp(l))
			}
			return errors.Join(append(errs, netlink.LinkSetUp(bridge))...)
		}); err != nil {
			t.Fatal(err)
		}
		return a, b
	}, pmdtest.Options{TxRing: 8, Async: true, DropsUncounted: true})
}

// namespace makes a network namespace.
func namespace(t testing.TB) *netns.NS {
	t.Helper()
	needRoot(t)
	ns, err := netns.New("dpdk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// TestRing sends frames round net_ring's loopback, zero copy, and keeps more of them out than the pool's free list holds.
func TestRing(t *testing.T) {
	p := open(t, Config{Vdev: "net_ring0"})
	q := p.Queue(0)
	rx := make([]*pmd.Buf, 64)
	next, seen := byte(0), byte(0)
	for turn := range 2000 {
		var tx []*pmd.Buf
		for range min(q.TxRoom(), 1+turn%64) {
			b := q.Pool().Get()
			if b == nil {
				t.Fatalf("turn %d: no buffer", turn)
			}
			b.SetLen(60 + int(next))
			b.Bytes()[59] = next
			next++
			tx = append(tx, b)
		}
		ntx, nrx := q.Poll(tx, rx)
		if ntx != len(tx) {
			t.Fatalf("turn %d: Poll took %d of %d", turn, ntx, len(tx))
		}
		for _, b := range rx[:nrx] {
			if b.Len() != 60+int(seen) || b.Bytes()[59] != seen {
				t.Fatalf("turn %d: frame %d has length %d and says %d", turn, seen, b.Len(), b.Bytes()[59])
			}
			seen++
			q.Pool().Put(b)
		}
	}
	for seen != next {
		_, nrx := q.Poll(nil, rx)
		if nrx == 0 {
			t.Fatalf("%d frames are missing", next-seen)
		}
		for _, b := range rx[:nrx] {
			seen++
			q.Pool().Put(b)
		}
	}
	if s := p.Stats(); s.RxFrames != s.TxFrames || s.RxBytes != s.TxBytes || s.RxErrors+s.TxErrors+s.RxDropped != 0 {
		t.Errorf("%+v", s)
	}
}
