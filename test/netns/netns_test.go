package netns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
}

func newNS(t *testing.T) *NS {
	t.Helper()
	n, err := New("self")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestVethJoinsNamespaces(t *testing.T) {
	needRoot(t)
	a, b := newNS(t), newNS(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	p, err := Veth(
		End{NS: a, Name: "left", MAC: mac, Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}},
		End{NS: b, Name: "right", Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}, Offloads: true}, 1400)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.A.MAC.String() != mac.String() || len(p.B.MAC) != 6 {
		t.Errorf("addresses are %v and %v", p.A.MAC, p.B.MAC)
	}
	var l net.Listener
	if err := b.Do(func() (err error) { l, err = net.Listen("tcp4", "10.9.0.2:0"); return }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	var c net.Conn
	if err := a.Do(func() (err error) { c, err = net.Dial("tcp4", l.Addr().String()); return }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	for _, tc := range []struct {
		ns   *NS
		name string
		want string
	}{{a, "left", "1400"}, {b, "right", "1400"}} {
		out, err := tc.ns.Command("cat", "/sys/class/net/"+tc.name+"/mtu").Output()
		if err != nil || strings.TrimSpace(string(out)) != tc.want {
			t.Errorf("MTU of %s is %q, %v", tc.name, out, err)
		}
	}
}

func TestOffloads(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip("needs ethtool to look at the switches")
	}
	n := newNS(t)
	if _, err := Veth(End{NS: n, Name: "off"}, End{NS: n, Name: "on", Offloads: true}, 0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"off": "off", "on": "on"} {
		out, err := n.Command("ethtool", "-k", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"tx-checksumming", "tx-tcp-segmentation", "tx-tcp6-segmentation", "generic-segmentation-offload", "scatter-gather"} {
			if !strings.Contains(string(out), f+": "+want) {
				t.Errorf("%s of %s is not %s:\n%s", f, name, want, out)
			}
		}
		if name == "off" && !strings.Contains(string(out), "generic-receive-offload: off") {
			t.Errorf("generic-receive-offload is not off:\n%s", out)
		}
	}
}

func TestHostEnd(t *testing.T) {
	needRoot(t)
	n := newNS(t)
	p, err := Veth(End{}, End{NS: n, Name: "eth0"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(p.A.Name); err != nil {
		t.Errorf("host end: %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	var missing netlink.LinkNotFoundError
	if _, err := netlink.LinkByName(p.A.Name); !errors.As(err, &missing) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSysctl(t *testing.T) {
	needRoot(t)
	n := newNS(t)
	if err := n.Sysctl("net.ipv4.ip_default_ttl", "77"); err != nil {
		t.Fatal(err)
	}
	out, err := n.Command("cat", "/proc/sys/net/ipv4/ip_default_ttl").Output()
	if err != nil || strings.TrimSpace(string(out)) != "77" {
		t.Errorf("the parameter is %q, %v", out, err)
	}
	if own, _ := os.ReadFile("/proc/sys/net/ipv4/ip_default_ttl"); strings.TrimSpace(string(own)) == "77" {
		t.Error("the host's parameter changed")
	}
	if err := n.Run("false"); err == nil {
		t.Error("Run of a command that fails returned no error")
	}
}

// deadPID returns the id of a process that has ended.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestStale leaves behind what a killed process would, and things that only look like it.
func TestStale(t *testing.T) {
	needRoot(t)
	pid := deadPID(t)
	stale := &NS{name: fmt.Sprintf("fastpath-self-%d-1", pid)}
	stale.path = filepath.Join(dir, stale.name)
	if err := stale.create(); err != nil {
		t.Fatal(err)
	}
	unbound := filepath.Join(dir, fmt.Sprintf("fastpath-self-%d-2", pid)) // killed between file and mount
	foreign := filepath.Join(dir, fmt.Sprintf("fastpath-%d", pid))        // not our form
	living := filepath.Join(dir, fmt.Sprintf("fastpath-self-%d-2", os.Getppid()))
	for _, f := range []string{unbound, foreign, living} {
		if err := os.WriteFile(f, nil, 0o444); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(f)
	}
	p, err := Veth(End{}, End{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, err := netlink.LinkByName(p.A.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetAlias(l, fmt.Sprintf("%s%d", aliasPrefix, pid)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStale(); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[string]bool{stale.path: false, unbound: false, foreign: true, living: true} {
		if _, err := os.Stat(f); (err == nil) != want {
			t.Errorf("%s: exists: %v, want %v", f, err == nil, want)
		}
	}
	if _, err := netlink.LinkByName(p.A.Name); err == nil {
		t.Error("the stale interface is still there")
	}
}

func TestNewRefusesPrefix(t *testing.T) {
	for _, p := range []string{"", "a-b", "a/b", "a b"} {
		if n, err := New(p); err == nil {
			t.Errorf("New(%q) made %s", p, n.Name())
		}
	}
}
