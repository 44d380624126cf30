//go:build dpdk

package ethdev

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/yerden/go-dpdk/eal"
	"github.com/yerden/go-dpdk/mempool"
)

// TestPort takes net_null through its life. EAL starts once in a process, so this is one test.
func TestPort(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("DPDK needs root")
	}
	prefix := fmt.Sprintf("go-dpdk-test-%d", os.Getpid())
	args := []string{"test", "--lcores", "0", "--no-huge", "-m", "64", "--no-shconf", "--no-telemetry", "--no-pci", "--file-prefix", prefix, "--vdev", "net_null0"}
	t.Cleanup(func() {
		os.Remove("/var/run/dpdk/" + prefix)
		os.Remove("/var/run/dpdk") // fails while others have something in it
	})
	if n, err := eal.Init(args); err != nil || n != len(args)-1 {
		t.Fatalf("Init: %d, %v", n, err)
	}
	if _, err := eal.Init(args); !errors.Is(err, syscall.EALREADY) {
		t.Errorf("second Init: %v", err)
	}
	if _, err := GetPortByName("net_null1"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("no such port: %v", err)
	}
	p, err := GetPortByName("net_null0")
	if err != nil {
		t.Fatal(err)
	}
	var info DevInfo
	if err := p.InfoGet(&info); err != nil || info.DriverName() != "net_null" {
		t.Fatalf("driver %q, %v", info.DriverName(), err)
	}
	if err := Port(99).InfoGet(&info); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("no such port: %v", err)
	}

	if _, err := mempool.CreateMbufPool("odd", 64, 2048, mempool.OptPrivateDataSize(7)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("odd private size: %v", err)
	}
	mp, err := mempool.CreateMbufPool("pool", 256, 2176, mempool.OptCacheSize(0), mempool.OptPrivateDataSize(8))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mempool.CreateMbufPool("pool", 256, 2176); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("name in use: %v", err)
	}
	c, err := mempool.CreateCache(mempool.OptCacheSize(32))
	if err != nil {
		t.Fatal(err)
	}
	c.Flush(mp)
	c.Free()

	if err := p.DevConfigure(2000, 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("2000 queues: %v", err)
	}
	for _, err := range []error{
		p.DevConfigure(1, 1, OptRxMode(RxMode{MTU: 1400}), OptTxMode(TxMode{}), OptRss(RssConf{Key: make([]byte, 40)})),
		p.RxqSetup(0, 128, mp, OptSocket(max(0, p.SocketID()))),
		p.TxqSetup(0, 128),
		p.Start(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var mac MACAddr
	if err := p.MACAddrGet(&mac); err != nil || len(mac.HardwareAddr()) != 6 || mac.HardwareAddr()[0]&3 != 2 {
		t.Errorf("MAC %v, %v", mac.HardwareAddr(), err)
	}
	if l, err := p.EthLinkGetNowait(); err != nil || !l.Status() {
		t.Errorf("link %v, %v", l.Status(), err)
	}
	var s Stats
	if err := p.StatsGet(&s); err != nil || *s.Cast() != (GoStats{}) {
		t.Errorf("%+v, %v", s.Cast(), err)
	}
	p.Stop()
	p.Close()
	if err := p.InfoGet(&info); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("closed port: %v", err)
	}
	mp.Free()
	if err := eal.Cleanup(); err != nil {
		t.Error(err)
	}
}
