package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// virtio is a ring between the daemon and DPDK's testpmd, which carries its frames to and from an interface of the client's kernel.
type virtio struct {
	backend bool // the daemon is the device (net_vhost) and testpmd the driver (net_virtio_user); else the other way round
	listens bool // the daemon makes the socket, and testpmd connects
	packed  bool
	merge   bool // receive buffers may be merged
	chains  bool // testpmd sends what is longer than 2 KiB in several pieces: as a device to one buffer, as a driver by indirect descriptors
	partial bool // testpmd leaves TCP's checksums to the ring's other end
	tso     bool // testpmd's device takes large frames, which testpmd cuts for the client
}

func (v virtio) String() string {
	name := func(on bool, yes, no string) string {
		if on {
			return yes
		}
		return no
	}
	return strings.Join([]string{name(v.backend, "vhost", "virtio-user"), name(v.listens, "server", "client"), name(v.packed, "packed", "split"),
		name(v.merge, "merge", "single"), name(v.chains, "chains", "whole"), name(v.partial, "partial", "complete")}, "-")
}

const (
	virtioMAC       = "02:00:00:07:00:01"
	virtioClientMAC = "02:00:00:07:00:02"
)

func (w *world) virtioSocket() string { return filepath.Join(w.dir, "ring.sock") }

// front and back are the two ends as virtual devices. server: the end makes the socket.
func (w *world) front(server bool) string {
	flag := map[bool]int{true: 1}
	v := w.virtio
	return fmt.Sprintf("net_virtio_user0,path=%s,queues=1,server=%d,packed_vq=%d,mrg_rxbuf=%d", w.virtioSocket(), flag[server], flag[v.packed], flag[v.merge])
}

func (w *world) back(server bool) string {
	s := fmt.Sprintf("net_vhost0,iface=%s,queues=1", w.virtioSocket())
	if !server {
		s += ",client=1"
	}
	if w.virtio.tso {
		s += ",tso=1"
	}
	return s
}

// virtioPort is the daemon's port.
func (w *world) virtioPort() string {
	vdev := w.front(w.virtio.listens)
	if w.virtio.backend {
		vdev = w.back(w.virtio.listens)
	}
	return fmt.Sprintf("driver = \"dpdk\"\nvdev = %q\nmac = %q\n", vdev, virtioMAC)
}

// startBridge starts testpmd between the ring and the client. With the MTU of Ethernet it makes the client's interface itself, a TAP
// device; net_tap takes no larger one, so that those pass net_pcap on a veth pair.
func (w *world) startBridge() {
	w.Helper()
	v := w.virtio
	ns, outer := w.client, fmt.Sprintf("net_tap0,iface=%s,mac=%s", clientIf, virtioClientMAC)
	if w.mtu > 1500 {
		ns, outer = w.server, "net_pcap0,iface="+serverIf
	}
	inner := w.back(!v.listens)
	if v.backend {
		inner = w.front(!v.listens)
	}
	forward, commands := "io", ""
	if v.partial {
		forward = "csum" // its engine writes the sum of the pseudo-header, and leaves the rest to the port
		commands += "csum set tcp hw 1\ncsum set ip sw 1\n"
	}
	if v.tso {
		forward = "csum"
		commands += "csum set tcp hw 0\ncsum set ip hw 0\ntso set 1400 0\n"
	}
	if v.chains {
		commands += "port config 1 tx_offload multi_segs on\n"
		if v.backend {
			commands += "port config 1 rx_offload scatter on\n"
		}
	}
	if w.mtu > 1500 {
		commands += fmt.Sprintf("port config mtu 1 %d\n", w.mtu)
	}
	commands = "port stop all\n" + commands + "port start all\nset fwd " + forward + "\nstart\n"
	file := filepath.Join(w.dir, "testpmd.txt")
	w.must(os.WriteFile(file, []byte(commands), 0o644))
	args := []string{"--lcores", "0@(0-1),1@(0-1)", "--no-pci", "--no-huge", "-m", "160", "--no-telemetry", "--no-shconf", "--file-prefix", "fpe2e-testpmd",
		"--vdev", outer, "--vdev", inner, "--", "-i", "--cmdline-file", file, "--disable-link-check", "--no-lsc-interrupt", "--total-num-mbufs=6000",
		"--eth-peer=0," + virtioClientMAC, "--eth-peer=1," + virtioMAC}
	if w.mtu > 1500 && !v.chains {
		args = append(args, "--mbuf-size=9344")
	}
	cmd := exec.Command("stdbuf", append([]string{"-oL", "dpdk-testpmd"}, args...)...)
	stdin, err := cmd.StdinPipe() // its end would be testpmd's
	w.must(err)
	w.Cleanup(func() { stdin.Close() })
	w.bridge, w.bridgeIn = startProcess(w.T, ns, cmd), stdin
}

// awaitBridge waits until testpmd forwards, and sets the client's interface up.
func (w *world) awaitBridge() {
	w.Helper()
	w.eventually(20*time.Second, func() error {
		if w.bridge.ended() {
			w.Fatalf("testpmd has ended:\n%s", w.bridge.tail(15))
		}
		if !strings.Contains(w.bridge.said(), "packet forwarding - ports=2") {
			return errors.New("testpmd does not forward")
		}
		return nil
	})
	if w.mtu > 1500 {
		return
	}
	w.must(w.client.Do(func() error {
		l, err := netlink.LinkByName(clientIf)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(clientIP + "/24")
		if err != nil {
			return err
		}
		mac, err := net.ParseMAC(virtioClientMAC)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetHardwareAddr(l, mac), netlink.AddrAdd(l, a), netlink.LinkSetUp(l))
	}))
}

// startVirtio starts testpmd and the daemon, the end that makes the socket first.
func (w *world) startVirtio(daemon func()) {
	w.Helper()
	await := func() {
		w.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(w.virtioSocket()); err == nil {
				return
			}
			if time.Now().After(end) {
				w.Fatalf("%s is not made", w.virtioSocket())
			}
		}
	}
	if w.virtio.listens {
		daemon()
		await()
		w.startBridge()
	} else {
		w.startBridge()
		await()
		daemon()
	}
	w.Cleanup(func() {
		if w.Failed() && !w.bridge.ended() && !w.daemon.ended() {
			_, _ = io.WriteString(w.bridgeIn, "show port stats all\n")
			w.Logf("the daemon's port: %+v", w.stat().Ports[0])
		}
	})
	w.awaitBridge()
}

// stopBridge ends testpmd in order.
func (w *world) stopBridge() {
	w.Helper()
	_, err := io.WriteString(w.bridgeIn, "quit\n")
	w.must(err)
	if err := w.bridge.wait(20 * time.Second); err != nil {
		w.Errorf("testpmd: %v", err)
	}
}

// A virtioCase is a ring and an MTU.
type virtioCase struct {
	virtio
	mtu int
}

// virtioCases are all rings, or for each pair of properties at least one ring that has both.
func virtioCases() (cs []virtioCase) {
	if !*full {
		for _, bits := range []uint{0b0000111, 0b0001000, 0b0010001, 0b0011110, 0b1001110, 0b1101011, 0b1110100} {
			cs = append(cs, newVirtioCase(bits))
		}
		return cs
	}
	for bits := range uint(1 << 7) {
		if c := newVirtioCase(bits); !c.chains || c.mtu > 1500 && (c.merge || !c.backend) {
			cs = append(cs, c)
		}
	}
	return cs
}

func newVirtioCase(bits uint) virtioCase {
	bit := func(i int) bool { return bits>>i&1 != 0 }
	c := virtioCase{virtio{backend: bit(0), listens: bit(1), packed: bit(2), merge: bit(3), partial: bit(4), chains: bit(5)}, 1500}
	if bit(6) {
		c.mtu = 9000
	}
	return c
}

// TestVirtio has the client's kernel reach the daemon through a virtio ring: down and up, with a change of congestion control meanwhile.
func TestVirtio(t *testing.T) {
	need(t, "curl", "iperf3", "stdbuf", "dpdk-testpmd")
	for _, c := range virtioCases() {
		t.Run(fmt.Sprintf("%v-%d", c.virtio, c.mtu), func(t *testing.T) {
			w := newWorld(t, link{driver: "virtio", virtio: &c.virtio, mtu: c.mtu, httpKeys: `rate = "60Mbit/s"`,
				modules: linkedIn("bbr") + "[[module]]\nkind = \"cong\"\nname = \"cdg\"\n"})
			w.ping()
			const size = 4 << 20
			kernel := w.nstat()
			d := w.startDownload(size)
			d.reach(size / 3)
			var r control.SwapReply
			w.must(w.call(control.OpSwap, control.SwapRequest{Kind: "cong", Name: "cdg"}, &r))
			if r.From != "bbr" || r.To != "cdg" || r.Flows < 1 {
				t.Errorf("swap: %+v", r)
			}
			d.finish()
			w.upload(size)
			if c.mtu == 1500 { // net_pcap is too slow for it
				w.iperf(0)
			}
			moved := w.nstat().since(kernel)
			w.mustNotMove("transfers", moved, never)
			w.mustNotMove("transfers", moved, onlyCorrupt)
			w.mustNotDrop()
			w.settled()
			// The driver goes first: each end is still there while the other says goodbye.
			if c.backend {
				w.stopBridge()
			}
			w.stop()
			if !c.backend {
				w.stopBridge()
			}
		})
	}
}

// TestVirtioLarge has the daemon send large frames through a ring whose device takes them: they arrive, byte for byte, and a capture shows
// them as they are on a wire. With tso = false none are sent.
func TestVirtioLarge(t *testing.T) {
	need(t, "curl", "tshark", "stdbuf", "dpdk-testpmd")
	for _, keys := range []string{"", "tso = false\n"} {
		t.Run(map[bool]string{true: "on", false: "off"}[keys == ""], func(t *testing.T) {
			w := newWorld(t, link{driver: "virtio", virtio: &virtio{tso: true, merge: true}, portKeys: keys})
			offered := slices.Contains(w.stat().Ports[0].Offloads, "tso")
			if offered == (keys != "") {
				t.Errorf("offloads %v", w.stat().Ports[0].Offloads)
			}
			w.download(4 << 20)
			w.upload(1 << 20)
			if n := w.stat().Counters["tcp_large_frames"]; (n > 50) != offered {
				t.Errorf("%d large frames", n)
			}
			file := w.capture(200)
			for _, bad := range []string{"_ws.malformed", "tcp.len > 1460", "ip.len > 1500", "ip.checksum.status != 1", "ip.dst == " + clientIP + " && tcp.checksum.status != 1"} {
				if n := w.tshark(file, bad); n != 0 {
					t.Errorf("%d frames in the capture with %s", n, bad)
				}
			}
			w.mustNotDrop()
			w.settled()
			w.stop()
			w.stopBridge()
		})
	}
}

// mustNotDrop wants the daemon to have found no frame bad.
func (w *world) mustNotDrop() {
	w.Helper()
	s := w.stat()
	for _, name := range []string{"drop_tcp_checksum", "drop_ip_checksum", "drop_ip_length", "drop_tcp_short", "drop_tcp_offset"} {
		if n := s.Counters[name]; n != 0 {
			w.Errorf("%s = %d", name, n)
		}
	}
	if p := s.Ports[0]; p.RxErrors+p.TxErrors != 0 {
		w.Errorf("port: %d frames received in error, %d not sent", p.RxErrors, p.TxErrors)
	}
}

// TestVirtioUnfinished wants the frames of a driver, and of a device, that leaves checksums to the other end to be what they say: without
// this the other tests would not notice that nothing is left.
func TestVirtioUnfinished(t *testing.T) {
	need(t, "curl", "tshark", "stdbuf", "dpdk-testpmd")
	for _, backend := range []bool{false, true} {
		for _, partial := range []bool{false, true} {
			v := virtio{backend: backend, partial: partial}
			t.Run(v.String(), func(t *testing.T) {
				w := newWorld(t, link{driver: "virtio", virtio: &v})
				file := w.capture(500)
				bad, all := w.tshark(file, fromClient+" && tcp.checksum.status != 1"), w.tshark(file, fromClient)
				if all < 20 || partial && bad < all*9/10 || !partial && bad != 0 {
					t.Errorf("%d of %d frames of the client have an unfinished checksum", bad, all)
				}
				w.mustNotDrop()
			})
		}
	}
}

// TestVirtioRestart kills testpmd and starts it again: the daemon serves on, or says why it cannot.
func TestVirtioRestart(t *testing.T) {
	need(t, "curl", "stdbuf", "dpdk-testpmd")
	vs := []virtio{{}, {listens: true, packed: true}, {backend: true}}
	if *full {
		vs = append(vs, virtio{listens: true}, virtio{backend: true, listens: true}, virtio{packed: true}, virtio{backend: true, packed: true})
	}
	for _, v := range vs {
		t.Run(v.String(), func(t *testing.T) {
			w := newWorld(t, link{driver: "virtio", virtio: &v})
			w.download(1 << 20)
			// Something is on the way when the ring goes.
			d := w.startDownload(512 << 20)
			d.reach(1 << 20)
			w.must(w.bridge.cmd.Process.Signal(syscall.SIGKILL))
			_ = w.bridge.wait(10 * time.Second)
			w.linkIs(false)
			if !v.backend && !v.listens {
				w.eventually(10*time.Second, func() error {
					for _, e := range w.events() {
						if e.Kind == control.EventLink && strings.Contains(e.Message, "server=1") {
							return nil
						}
					}
					return errors.New("no event says how to have the ring back")
				})
				return
			}
			_ = d.cmd.Process.Kill()
			if !v.listens {
				w.must(os.Remove(w.virtioSocket())) // it had no time to
			}
			w.startBridge()
			w.awaitBridge()
			w.linkIs(true)
			w.download(1 << 20)
			w.upload(1 << 20)
			w.mustNotDrop()
		})
	}
}

// TestVirtioStop tells the daemon to stop while it waits for the driver or the device at the other end of its socket: it ends in order, says
// what it waited for, and leaves nothing.
func TestVirtioStop(t *testing.T) {
	need(t)
	needDriver(t, "dpdk")
	for _, v := range []virtio{{listens: true}, {}} {
		t.Run(v.String(), func(t *testing.T) {
			w := &world{T: t, server: newNS(t, "stop"), dir: t.TempDir(), link: link{virtio: &v}}
			file, socket := filepath.Join(w.dir, "fastpath.toml"), filepath.Join(w.dir, "control.sock")
			w.must(os.WriteFile(file, fmt.Appendf(nil, "[[port]]\nname = \"p\"\n%saddresses = [\"%s/24\"]\n[dpdk]\nhugepages = \"off\"\nmemory = \"64MiB\"\n[control]\nsocket = %q\n",
				w.virtioPort(), serverIP, socket), 0o644))
			connected := make(chan struct{})
			if !v.listens { // a device that says nothing
				l, err := net.Listen("unix", w.virtioSocket())
				w.must(err)
				defer l.Close()
				go func() {
					defer close(connected)
					if c, err := l.Accept(); err == nil {
						t.Cleanup(func() { c.Close() })
					}
				}()
			}
			bin, err := program()
			w.must(err)
			p := startProcess(t, w.server, exec.Command(bin, "run", "-c", file))
			w.daemon = p
			w.eventually(20*time.Second, func() error {
				if v.listens {
					_, err := os.Stat(w.virtioSocket())
					return err
				}
				select {
				case <-connected:
					return nil
				default:
					return errors.New("the daemon does not connect")
				}
			})
			began := time.Now()
			w.must(p.cmd.Process.Signal(syscall.SIGTERM))
			if err := p.wait(5 * time.Second); err != nil {
				t.Errorf("the daemon ended with %v", err)
			}
			t.Logf("it took %v:\n%s", time.Since(began).Round(time.Millisecond), p.said())
			want := []string{"stopped before it served", "told to stop before the other end of the socket had answered", w.virtioSocket()}
			if v.listens {
				want = append(want, "waiting for the other end of the socket")
			}
			for _, s := range want {
				if !strings.Contains(p.said(), s) {
					t.Errorf("the daemon does not say %q", s)
				}
			}
			for _, path := range []string{socket, w.virtioSocket()} {
				if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) && (v.listens || path == socket) {
					t.Errorf("%s is left: %v", path, err)
				}
			}
		})
	}
}

// linkIs waits until the daemon says so of its port.
func (w *world) linkIs(up bool) {
	w.Helper()
	w.eventually(15*time.Second, func() error {
		if p := w.stat().Ports[0]; p.LinkUp != up {
			return fmt.Errorf("link up: %v", p.LinkUp)
		}
		return nil
	})
}
