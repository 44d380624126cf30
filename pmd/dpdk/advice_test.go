//go:build dpdk

package dpdk

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// TestUnfinishedWarning wants a warning where the other end of a veth pair leaves checksums unfinished, or where it cannot be seen.
func TestUnfinishedWarning(t *testing.T) {
	for _, c := range []struct {
		name            string
		offloads, apart bool
		want            string
	}{
		{"off", false, false, ""},
		{"on", true, false, "ethtool -K vb tx off tso off gso off"},
		{"elsewhere", false, true, "ethtool -K PEER tx off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := namespace(t)
			b := a
			if c.apart {
				b = namespace(t)
			}
			v, err := netns.Veth(netns.End{NS: a, Name: "va"}, netns.End{NS: b, Name: "vb", Offloads: c.offloads}, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { v.Close() })
			got := strings.Join(openOn(t, v.A, 0, "", Config{}).(pmd.Adviser).Warnings(), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

// TestLinkAdvice wants advice only for the role that does not connect again.
func TestLinkAdvice(t *testing.T) {
	for _, c := range []struct {
		name, args string
		advice     bool
	}{
		{"net_virtio_user0", "path=/s", true},
		{"net_virtio_user0", "path=/s,server=0", true},
		{"net_virtio_user0", "path=/s,queues=1,server=1", false},
		{"net_vhost0", "iface=/s,client=1", false},
	} {
		p := &Port{dev: device{bus: "vdev", name: c.name, args: c.args}}
		if got := p.LinkAdvice(); (got != "") != c.advice {
			t.Errorf("%s,%s: %q", c.name, c.args, got)
		}
	}
}

// TestVirtioMAC gives both ends of a ring an address of the configuration's, which neither device takes by itself, and a large MTU.
func TestVirtioMAC(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "vhost.sock")
	for _, c := range []struct{ vdev, mac string }{{"net_vhost0,iface=" + sock, "02:00:00:00:00:0a"}, {"net_virtio_user0,path=" + sock, "02:00:00:00:00:0b"}} {
		mac, err := net.ParseMAC(c.mac)
		if err != nil {
			t.Fatal(err)
		}
		if i := open(t, Config{Vdev: c.vdev, MAC: mac, MTU: 9000}).Info(); i.MAC.String() != c.mac || i.MTU != 9000 {
			t.Errorf("%s: %+v", c.vdev, i)
		}
	}
}
