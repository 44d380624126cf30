//go:build dpdk

package dpdk

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// veth makes a veth pair in a namespace of its own.
func veth(t testing.TB) *netns.Pair {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	ns, err := netns.New("dpdk")
	if err != nil {
		t.Fatal(err)
	}
	v, err := netns.Veth(netns.End{NS: ns, Name: "a"}, netns.End{NS: ns, Name: "b"}, 0)
	if err != nil {
		t.Fatal(errors.Join(err, ns.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(v.Close(), ns.Close()); err != nil {
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
	}, pmdtest.Options{TxRing: 16})
}
