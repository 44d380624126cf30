package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd/dpdk"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// lan is a daemon on one end of a veth pair. At the other, in a namespace of its own, is the kernel's TCP.
type lan struct {
	*testDaemon
	ns  *netns.NS
	dir string
}

const lanConfig = `
[[port]]
name = "veth"
%s
mac = "02:00:00:08:00:01" # the kernel's end must not answer for us
addresses = ["10.8.0.1/24"]
[[app]]
name = "web"
kind = "http"
listen = "10.8.0.1:80"
size = "1GiB"
seed = 4
rate = "200Mbit/s"
upload = true
[[app]]
name = "echo"
kind = "echo"
listen = "10.8.0.1:7"
` + patientModules + `
[shutdown]
drain = "4s"
`

// Drivers of the daemon's end, by the lines of the configuration that choose them.
const (
	viaAFPacket = "driver = \"afpacket\"\ninterface = \"%s\""
	viaDPDK     = "driver = \"dpdk\"\nvdev = \"net_af_packet0,iface=%s\""
)

func newLAN(t *testing.T, driver string) *lan {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace and packet sockets")
	}
	for _, tool := range []string{"curl", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	ns, err := netns.New("daemon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	veth, err := netns.Veth(netns.End{}, netns.End{NS: ns, Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.8.0.2/24")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := veth.Close(); err != nil {
			t.Error(err)
		}
	})
	return &lan{start(t, fmt.Sprintf(lanConfig, fmt.Sprintf(driver, veth.A.Name))), ns, t.TempDir()}
}

// client starts a command at the other end, which ends within a minute in any case.
func (l *lan) client(name string, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	l.t.Helper()
	cmd = l.ns.Command("timeout", append([]string{"60", name}, args...)...)
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return cmd, out
}

// flow waits for a connection with traffic of which the modules, in their processes, have said all that they say.
func (l *lan) flow(state string) (found *control.Conn) {
	l.t.Helper()
	if !eventually(20*time.Second, func() bool {
		r := call[control.SSReply](l.testDaemon, control.OpSS, control.SSRequest{States: []string{state}, LocalPort: 80})
		if len(r.Conns) == 1 {
			found = &r.Conns[0]
		}
		return found != nil && found.AckedBytes > 4<<20 && found.DeliveryBPS > 0 && found.PacingBPS > 0
	}) {
		l.t.Fatalf("no connection with traffic and modules that answer: %+v", found)
	}
	return found
}

func sumFile(t *testing.T, file string) (int, string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(b)
	return len(b), hex.EncodeToString(s[:])
}

// The kernel's curl downloads while congestion control is swapped and its process killed.
func TestKernelDownload(t *testing.T) { download(newLAN(t, viaAFPacket)) }

var dpdkUsed bool

// The same on a port of DPDK.
func TestKernelDownloadDPDK(t *testing.T) {
	if !dpdk.Available {
		t.Skip("built without DPDK (-tags dpdk)")
	}
	if dpdkUsed {
		t.Skip("DPDK starts once per process, and a daemon that stops ends it")
	}
	l := newLAN(t, viaDPDK)
	dpdkUsed = true
	download(l)
}

func download(l *lan) {
	t := l.t
	t.Helper()
	const size = 64 << 20 // 2.7 s
	file := filepath.Join(l.dir, "got")
	curl, out := l.client("curl", "-sS", "-o", file, fmt.Sprintf("http://10.8.0.1/blob?size=%d&seed=4", size))
	c := l.flow(control.StateEstablished)
	if c.Cong != "bbr" || c.Rtx != "btree" || c.Pace != "edt" || !c.SACK || !c.Timestamps || !c.WScale || c.CwndBytes == 0 || c.SRTTNS == 0 || c.MinRTTNS == 0 ||
		c.DeliveryBPS == 0 || c.PacingBPS == 0 || c.MSSBytes != 1448 || len(c.CongInfo) < 3 || c.Peer.Addr() != netip.MustParseAddr("10.8.0.2") {
		t.Errorf("ss: %+v", c)
	}
	s := call[control.SwapReply](l.testDaemon, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "cdg"})
	if s.From != "bbr" || s.Flows != 1 || s.GapNS <= 0 || s.GapNS > int64(time.Second) {
		t.Errorf("swap: %+v", s)
	}
	if c := l.flow(control.StateEstablished); c.Cong != "cdg" {
		t.Errorf("after the swap the flow has %s", c.Cong)
	}
	m := l.module("cong", "cdg")
	if err := unix.Kill(m.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.event(control.EventDead, "cong/cdg")
	l.event(control.EventReturn, "cong/cdg serves 1 flow again")
	if back := l.module("cong", "cdg"); back.State != control.ModuleActive || back.Restarts != 1 || back.PID == m.PID || back.Flows != 1 {
		t.Errorf("after the restart: %+v", back)
	}
	if c := l.flow(control.StateEstablished); c.Cong != "cdg" || c.AckedBytes >= size {
		t.Errorf("after the restart: %+v", c)
	}
	if err := curl.Wait(); err != nil {
		t.Fatalf("curl: %v\n%s", err, out)
	}
	if n, sum := sumFile(t, file); n != size || sum != apps.ContentSHA256(4, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
}

// curl uploads, and a stream comes back as it was sent.
func TestKernelUpload(t *testing.T) {
	l := newLAN(t, viaAFPacket)
	const size = 64 << 20
	file := filepath.Join(l.dir, "data")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(apps.ContentReader(8, size)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	curl, out := l.client("curl", "-sS", "-T", file, "http://10.8.0.1/upload")
	if err := curl.Wait(); err != nil {
		t.Fatalf("curl: %v\n%s", err, out)
	}
	var u apps.Uploaded
	if err := json.Unmarshal(out.Bytes(), &u); err != nil || u.Bytes != size || u.SHA256 != apps.ContentSHA256(8, size) {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := exec.LookPath("nc"); err != nil {
		t.Skip("the rest needs nc")
	}
	small := filepath.Join(l.dir, "small")
	text := strings.Repeat("echo\n", 20000)
	if err := os.WriteFile(small, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nc, out := l.client("sh", "-c", "nc -N 10.8.0.1 7 < "+small)
	if err := nc.Wait(); err != nil {
		t.Errorf("nc: %v", err)
	}
	if out.String() != text {
		t.Errorf("echo returned %d of %d bytes", out.Len(), len(text))
	}
}

// A download that fits into the time to drain is finished after Stop, one that does not is reset; an idle daemon sleeps; the link's
// state makes events.
func TestKernelStop(t *testing.T) {
	l := newLAN(t, viaAFPacket)
	checkIdle(t)
	if err := l.ns.Run("ip", "link", "set", "eth0", "down"); err != nil {
		t.Fatal(err)
	}
	l.event(control.EventLink, "is down")
	if err := l.ns.Run("ip", "link", "set", "eth0", "up"); err != nil {
		t.Fatal(err)
	}
	l.event(control.EventLink, "is up")

	const size = 32 << 20 // 1.3 s
	file := filepath.Join(l.dir, "got")
	short, shortOut := l.client("curl", "-sS", "-o", file, fmt.Sprintf("http://10.8.0.1/blob?size=%d&seed=4", size))
	l.flow(control.StateEstablished)
	long, longOut := l.client("curl", "-sS", "-o", "/dev/null", "http://10.8.0.1/") // 1 GiB
	if !eventually(20*time.Second, func() bool {                                    // a server that stops answers no request that it has not read yet
		n := 0
		for _, c := range call[control.SSReply](l.testDaemon, control.OpSS, control.SSRequest{LocalPort: 80}).Conns {
			if c.SentBytes > 0 {
				n++
			}
		}
		return n == 2
	}) {
		t.Fatal("the second connection does not come")
	}
	began := time.Now()
	if err := l.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if took := time.Since(began); took < 2*time.Second || took > 8*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if err := short.Wait(); err != nil {
		n, _ := sumFile(t, file)
		t.Errorf("the short download: %v after %d bytes\n%s", err, n, shortOut)
	} else if n, sum := sumFile(t, file); n != size || sum != apps.ContentSHA256(4, size) {
		t.Errorf("the short download: %d bytes with hash %s", n, sum)
	}
	if err := long.Wait(); err == nil || !strings.Contains(longOut.String(), "eset") { // "Connection reset by peer", "reset by peer"
		t.Errorf("the long download: %v\n%s", err, longOut)
	}
}

// All connections that are left when the time to drain is over are reset, however many they are.
func TestKernelResets(t *testing.T) {
	l := newLAN(t, viaAFPacket)
	l.conf.Shutdown.Drain = 0
	conns := make([]net.Conn, 600)
	err := l.ns.Do(func() (err error) {
		for i := range conns {
			if conns[i], err = net.DialTimeout("tcp4", "10.8.0.1:7", 5*time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range conns {
		if c != nil {
			defer c.Close()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if !eventually(20*time.Second, func() bool {
		return call[control.StatReply](l.testDaemon, control.OpStat, nil).Gauges["tcp_conns"] == uint64(len(conns))
	}) {
		t.Fatal("not all connections are there")
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	lost := 0
	for _, c := range conns {
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			lost++
			if lost == 10 {
				break
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d connections or more were not reset", lost)
	}
}
