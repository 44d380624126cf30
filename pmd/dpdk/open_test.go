//go:build dpdk

package dpdk

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// TestOpenErrors wants each error to name the setting and, where DPDK knows why, DPDK's reason.
func TestOpenErrors(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"nothing", Config{}, []string{"vdev or device"}},
		{"both", Config{Vdev: "net_null0", Device: "0000:00:03.0"}, []string{`vdev = "net_null0"`, `device = "0000:00:03.0"`}},
		{"driver", Config{Vdev: "net_nosuch0"}, []string{`port net_nosuch0`, `vdev = "net_nosuch0"`, "no DPDK driver"}},
		{"memif", Config{Vdev: "net_memif0,role=server,id=0"}, []string{`vdev = "net_memif0,role=server,id=0"`, "net_memif is refused", "can crash", "not supported"}},
		{"interface", Config{Name: "wan", Vdev: "net_af_packet0,iface=nosuch0"}, []string{`port wan`, `vdev = "net_af_packet0,iface=nosuch0"`, "DPDK: ", "SIOCGIFINDEX", "No such device", "the PMD refused it"}},
		{"argument", Config{Vdev: "net_null0,nosuch=1"}, []string{`vdev = "net_null0,nosuch=1"`, "DPDK: "}},
		{"queues", Config{Vdev: "net_af_packet0,iface=lo", Queues: 2}, []string{"queues = 2", "1 queue pairs", "add qpairs=2 to vdev"}},
		{"queues of a ring", Config{Vdev: "net_vhost0,iface=" + filepath.Join(t.TempDir(), "ring"), Queues: 2}, []string{"queues = 2", "1 queue pairs", "add queues=2 to vdev"}},
		{"no other end", Config{Vdev: "net_virtio_user0,path=" + filepath.Join(t.TempDir(), "ring")}, []string{"start the other end first", "server=1"}},
		{"nobody listens", Config{Vdev: "net_virtio_user0,path=" + deserted(t)}, []string{"nobody listens on the socket: start the other end first"}},
		{"mtu", Config{Vdev: "net_af_packet0,iface=lo", MTU: 9000}, []string{"mtu = 9000", "DPDK: "}},
		{"mtu range", Config{Vdev: "net_null0", MTU: 70000}, []string{"mtu = 70000", "between"}},
		{"buffers", Config{Vdev: "net_ring0", Buffers: 100}, []string{"buffers = 100", "at least"}},
		{"memory", Config{Vdev: "net_null0", Buffers: 1 << 20}, []string{"no memory for the buffers", "buffers = 1048576", "memory"}},
		{"buffer size", Config{Vdev: "net_af_packet0,iface=lo", BufSize: 512}, []string{"buf_size = 512", "DPDK: ", "will not fit in mbuf"}},
		{"ring", Config{Vdev: "net_null0", Ring: 40000}, []string{"ring = 40000"}},
		{"mac", Config{Vdev: "net_null0", MAC: net.HardwareAddr{1, 0, 0, 0, 0, 1}}, []string{`mac = "01:00:00:00:00:01"`}},
		{"PCI", Config{Device: "0000:00:1f.7"}, []string{`device = "0000:00:1f.7"`, "no such PCI device", "lspci"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_ = open(t, Config{Vdev: "net_null7"}) // EAL is started by a good port
			p, err := Open(t.Context(), config(c.cfg))
			if err == nil {
				p.Close()
				t.Fatal("Open succeeded")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q", w)
				}
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%T is no *Error", err)
			}
			t.Log(err)
		})
	}
}

// deserted is a socket on which nobody listens any more.
func deserted(t *testing.T) string {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "ring"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return l.Addr().String()
}

// TestReopen opens and closes one device many times, a good one after a bad one, and looks for what stays behind.
func TestReopen(t *testing.T) {
	fds := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	v := veth(t)
	openOn(t, v.A, 0, "", Config{}).Close()
	before := fds()
	for range 20 {
		// Nearly all of the memory: a pool that stays behind is one too many.
		p := openOn(t, v.A, 0, "", Config{Buffers: 40000})
		if err := v.A.NS.Do(func() error {
			_, err := Open(t.Context(), config(Config{Vdev: "net_af_packet0,iface=" + v.A.Name}))
			return err
		}); !errors.Is(err, syscall.EEXIST) {
			t.Errorf("a second port on the same device: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if p.LinkUp() || p.Stats() != (pmd.Stats{}) {
			t.Errorf("closed port: link %v, %+v", p.LinkUp(), p.Stats())
		}
	}
	if n := fds(); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
}

func TestMACAndMTU(t *testing.T) {
	v := veth(t)
	mac := net.HardwareAddr{2, 0, 0, 0xaa, 0xbb, 0xcc}
	if i := openOn(t, v.A, 0, "", Config{MAC: mac, MTU: 1300, Name: "wan"}).Info(); !bytes.Equal(i.MAC, mac) || i.MTU != 1300 || i.Name != "wan" {
		t.Errorf("%+v", i)
	}
	var got string
	if err := v.A.NS.Do(func() error {
		i, err := net.InterfaceByName(v.A.Name)
		got = fmt.Sprint(i.MTU, i.HardwareAddr)
		return err
	}); err != nil || got != "1300 "+mac.String() {
		t.Errorf("the interface has %s, error %v", got, err)
	}
}

// TestInterfaceMTU takes over the MTU of the kernel's interface.
func TestInterfaceMTU(t *testing.T) {
	v := veth(t)
	if err := v.A.NS.Run("ip", "link", "set", "dev", v.A.Name, "mtu", "1280"); err != nil {
		t.Fatal(err)
	}
	if mtu := openOn(t, v.A, 0, "", Config{}).Info().MTU; mtu != 1280 {
		t.Errorf("MTU %d", mtu)
	}
}

// TestShutdown ends EAL in a process of its own: it cannot be started again.
func TestShutdown(t *testing.T) {
	needRoot(t)
	if os.Getenv("FASTPATH_TEST_SHUTDOWN") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestShutdown$", "-test.v")
		cmd.Env = append(os.Environ(), "FASTPATH_TEST_SHUTDOWN=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("ended well")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	c := config(Config{Vdev: "net_null0"})
	c.EAL.FilePrefix = fmt.Sprintf("fastpathtest%d", os.Getpid())
	if err := Shutdown(); err != nil {
		t.Error(err)
	}
	p, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := Shutdown(); err == nil || !strings.Contains(err.Error(), "net_null0") {
		t.Errorf("with an open port: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := Shutdown(); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), c); !errors.Is(err, ErrShutdown) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := os.Stat("/var/run/dpdk/" + c.EAL.FilePrefix); !os.IsNotExist(err) {
		t.Errorf("EAL's folder: %v", err)
	}
	t.Log("ended well")
}

// TestEALErrors tries command lines that EAL refuses, each in a process of its own.
func TestEALErrors(t *testing.T) {
	needRoot(t)
	cases := map[string]struct {
		eal  EAL
		want []string
	}{
		"args":      {EAL{Args: []string{"--no-such-flag"}}, []string{`args = ["--no-such-flag"]`}},
		"memory":    {EAL{Hugepages: HugepagesOff, Memory: 1 << 50}, []string{"memory = 1125899906842624", "DPDK: "}},
		"hugepages": {EAL{Hugepages: HugepagesRequire, Memory: 1 << 50}, []string{`hugepages = "require"`, "MB of hugepages are free: echo 536870912 > /proc/sys/vm/nr_hugepages"}},
		"word":      {EAL{Hugepages: "perhaps"}, []string{`hugepages = "perhaps"`, "want auto, require or off"}},
	}
	if name := os.Getenv("FASTPATH_TEST_EAL"); name != "" {
		_, err := Open(t.Context(), Config{Vdev: "net_null0", EAL: cases[name].eal})
		_, again := Open(t.Context(), Config{Vdev: "net_null0", EAL: cases[name].eal})
		if err == nil || again == nil || again.Error() != err.Error() {
			t.Fatalf("first %v, then %v", err, again)
		}
		t.Logf("refused: %v", err)
		return
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestEALErrors$", "-test.v")
			cmd.Env = append(os.Environ(), "FASTPATH_TEST_EAL="+name)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			_, refused, _ := strings.Cut(string(out), "refused: ")
			for _, w := range c.want {
				if !strings.Contains(refused, w) {
					t.Errorf("the error does not say %q", w)
				}
			}
			t.Log(refused)
		})
	}
}
