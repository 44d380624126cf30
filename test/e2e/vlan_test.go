package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/tap"
)

// The VLAN of these tests.
const (
	vlanID       = 100
	vlanServerIP = "10.8.0.1"
	vlanClientIP = "10.8.0.2"
	vlanIf       = "client100"
)

const vlanConfig = `
[[port]]
name = "v"
parent = "p"
vlan = 100
addresses = ["10.8.0.1/24"]
[[app]]
name = "vweb"
kind = "http"
listen = "10.8.0.1:80"
upload = true
`

// TestVLAN: the kernel's VLAN interface and its parent reach the daemon's at once, over one port.
func TestVLAN(t *testing.T) {
	for name, l := range map[string]link{
		"afpacket":           {driver: "afpacket"},
		"afpacket, offloads": {driver: "afpacket", offloads: true},
		"dpdk":               {driver: "dpdk"},
		"tap":                {driver: "tap"},
		"spin":               {driver: "afpacket", workers: "[[worker]]\npoll = \"spin\"\ncore = 1\nport = \"p\"\n[[worker]]\npoll = \"spin\"\ncore = 1\nport = \"v\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l.more = vlanConfig
			w := newWorld(t, l)
			w.addVLAN()
			const size = 4 << 20
			get := func(ip string) error {
				got := w.curl(fmt.Sprintf("http://%s/blob?size=%d&seed=3", ip, size))
				if len(got) != size {
					return fmt.Errorf("%s: %d bytes", ip, len(got))
				}
				w.same(ip, got, 3, size)
				return nil
			}
			var wg sync.WaitGroup
			errs := make([]error, 4)
			for i, ip := range []string{serverIP, vlanServerIP, serverIP, vlanServerIP} {
				wg.Go(func() { errs[i] = get(ip) })
			}
			wg.Wait()
			for _, err := range errs {
				w.must(err)
			}
			w.uploaded(w.curl("-T", w.contentFile(5, size), "http://"+vlanServerIP+"/upload"), 5, size)
			ports := map[string]control.PortStat{}
			for _, p := range w.stat().Ports {
				ports[p.Name] = p
				if p.RxFrames == 0 || p.TxBytes < 2*size {
					t.Errorf("port %s: %+v", p.Name, p)
				}
			}
			if ports["p"].MAC != ports["v"].MAC || ports["v"].MTUBytes != 1500 {
				t.Errorf("%+v", ports)
			}
			// The VLAN is one of its own: its address is not reached without the tag.
			if out := w.client.Run("ip", "route", "replace", vlanServerIP+"/32", "via", serverIP); out != nil {
				t.Fatal(out)
			}
			if out, err := w.client.Command("curl", "-sS", "--max-time", "1", "http://"+vlanServerIP+"/").CombinedOutput(); err == nil || !strings.Contains(string(out), "timed out") {
				t.Errorf("reached without a tag: %v, %s", err, out)
			}
		})
	}
}

// addVLAN gives the client a VLAN interface: the kernel's own, or, if the kernel was built without, a TAP device whose frames a tagger
// carries.
func (w *world) addVLAN() {
	w.Helper()
	below := clientIf
	if w.driver == "tap" {
		below = serverIf
	}
	err := w.client.Do(func() error {
		parent, err := netlink.LinkByName(below)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = vlanIf, parent.Attrs().Index
		v := &netlink.Vlan{LinkAttrs: attrs, VlanId: vlanID, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		a, err := netlink.ParseAddr(vlanClientIP + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(v, a); err != nil {
			return err
		}
		return netlink.LinkSetUp(v)
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		w.Log("this kernel has no VLAN interfaces (CONFIG_VLAN_8021Q): a tagger stands in")
		w.startTagger(below)
		return
	}
	w.must(err)
}

// startTagger makes the TAP device and carries frames between it and the interface below, which has them tagged.
func (w *world) startTagger(below string) {
	w.Helper()
	up, err := tap.Open(tap.Config{Name: vlanIf, NetNSPath: w.client.Path(), NoOffloads: true, NoTxCsum: true, MTU: w.mtu,
		HostAddrs: []netip.Prefix{netip.MustParsePrefix(vlanClientIP + "/24")}})
	w.must(err)
	down, err := afpacket.Open(afpacket.Config{Interface: below, NetNSPath: w.client.Path(), Promiscuous: true})
	w.must(err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		fds := []unix.PollFd{{Fd: int32(up.Queue(0).WakeFD()), Events: unix.POLLIN}, {Fd: int32(down.Queue(0).WakeFD()), Events: unix.POLLIN}}
		for {
			select {
			case <-stop:
				return
			default:
			}
			moved := carry(up.Queue(0), down.Queue(0), func(f []byte) []byte {
				return append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0, vlanID), f[12:]...)
			})
			moved = carry(down.Queue(0), up.Queue(0), func(f []byte) []byte {
				if len(f) < 18 || f[12] != 0x81 || f[13] != 0 || f[14]&15 != 0 || f[15] != vlanID {
					return nil
				}
				return append(append([]byte(nil), f[:12]...), f[16:]...)
			}) || moved
			if !moved {
				unix.Poll(fds, 1) //nolint:errcheck // interrupted or timed out: look again
			}
		}
	})
	w.Cleanup(func() {
		close(stop)
		wg.Wait()
		w.must(errors.Join(up.Close(), down.Close()))
	})
}

// carry moves frames from one queue to another, changed by f, which returns nil for those to leave.
func carry(from, to pmd.Queue, f func([]byte) []byte) bool {
	var rx [batch]*pmd.Buf
	_, n := from.Poll(nil, rx[:])
	var tx []*pmd.Buf
	for _, b := range rx[:n] {
		if out := f(b.Bytes()); out != nil {
			if b.Flags&pmd.RxPartial != 0 {
				complete(out)
			}
			if c := to.Pool().Get(); c != nil {
				c.Append(out)
				tx = append(tx, c)
			}
		}
		b.Free()
	}
	for len(tx) > 0 {
		n, _ := to.Poll(tx, nil)
		tx = tx[n:]
	}
	to.Poll(nil, nil)
	return n > 0
}
