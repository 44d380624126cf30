package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// Addresses and interfaces of every world.
const (
	serverIP = "10.7.0.1"
	clientIP = "10.7.0.2"
	serverIf = "fp0" // the daemon's
	clientIf = "client0"
)

// Content of the generated files.
const seed = 7

// link is what lies between the client and the daemon.
type link struct {
	driver   string // "dpdk", "afpacket", "tap", or "virtio": DPDK, with testpmd between the daemon and the client
	mtu      int    // 0: 1500
	offloads bool   // the client's checksum and segmentation offloads are on
	queues   int    // of the daemon's port; 0: 1
	oneCPU   bool   // all processes run on one CPU, so that the kernel reorders nothing
	path     *memlink.Path
	sysctls  map[string]string // in the client's namespace
	workers  string            // [[worker]] sections
	modules  string            // [modules] and [[module]] sections; empty: cubic, linked in
	more     string            // further sections
	portKeys string            // further keys of the port
	addrs    []string          // further addresses of the port
	dhcp     bool              // the daemon asks for its address, and its applications listen on any
	v6       bool              // the applications listen on IPv6, and the peers use it
	httpKeys string            // further keys of the HTTP application
	virtio   *virtio           // with driver "virtio"
}

// world is a daemon, a client's namespace, and the link between them.
type world struct {
	*testing.T
	link
	client, server *netns.NS
	wire           *wire // nil on a clean link
	daemon         *process
	bridge         *process       // testpmd, with driver "virtio"
	bridgeIn       io.WriteCloser // its commands
	socket         string
	dir            string
}

// newWorld makes the link and starts the daemon. All of it ends with the test.
func newWorld(t *testing.T, l link) *world {
	t.Helper()
	need(t, "curl")
	needDriver(t, l.driver)
	if l.mtu == 0 {
		l.mtu = 1500
	}
	w := &world{T: t, link: l, dir: t.TempDir()}
	if l.oneCPU {
		pin(t)
	}
	w.socket = filepath.Join(w.dir, "control.sock")
	w.client = newNS(t, "client")
	for k, v := range l.sysctls {
		w.must(w.client.Sysctl(k, v))
	}
	// The kernel has an end of its own at the TAP device: the client itself, unless frames pass the wire.
	w.server = w.client
	if l.driver != "tap" || l.path != nil {
		w.server = newNS(t, "server")
	}
	w.must(w.server.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
	if l.driver != "tap" && l.path == nil && (l.virtio == nil || l.mtu > 1500) {
		w.veth(w.clientEnd(), w.otherEnd())
	}
	if l.driver != "tap" && l.path != nil {
		w.veth(w.otherEnd(), netns.End{NS: w.server, Name: "wire1"})
	}
	if l.path != nil {
		w.veth(w.clientEnd(), netns.End{NS: w.server, Name: "wire0"})
	}
	if l.v6 {
		w.addrs = append(w.addrs, serverIP6+"/64")
	}
	w.start()
	if l.driver == "tap" && l.path == nil {
		w.tapAddress()
	}
	if l.path != nil {
		to := "wire1"
		if l.driver == "tap" {
			to = serverIf
		}
		w.wire = newWire(t, w.server, "wire0", to, l.mtu, *l.path)
	}
	if l.v6 {
		w.address6Client()
	}
	return w
}

// serverIP and clientIP are the ends' addresses of the family that the peers use.
func (l *link) serverIP() string {
	if l.v6 {
		return serverIP6
	}
	return serverIP
}

func (l *link) clientIP() string {
	if l.v6 {
		return clientIP6
	}
	return clientIP
}

// at is a port of an address, as the configuration writes it.
func at(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

func newNS(t *testing.T, name string) *netns.NS {
	t.Helper()
	n, err := netns.New(name)
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

func (w *world) clientEnd() netns.End {
	e := netns.End{NS: w.client, Name: clientIf, Offloads: w.offloads, Addrs: []netip.Prefix{netip.MustParsePrefix(clientIP + "/24")}}
	if w.virtio != nil {
		e.MAC, _ = net.ParseMAC(virtioClientMAC)
	}
	return e
}

func (w *world) otherEnd() netns.End { return netns.End{NS: w.server, Name: serverIf} }

func (w *world) veth(a, b netns.End) {
	w.Helper()
	p, err := netns.Veth(a, b, w.mtu)
	w.must(err)
	w.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.Error(err)
		}
	})
}

// tapAddress gives the kernel's end of the TAP device its address.
func (w *world) tapAddress() {
	w.Helper()
	w.must(w.client.Do(func() error {
		l, err := netlink.LinkByName(serverIf)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(clientIP + "/24")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(l, a)
	}))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Ports of the applications.
const (
	portHTTP     = 80
	portEcho     = 7
	portDiscard  = 9
	portSource   = 19
	portIperf    = 5201 // to iperf3 on the daemon's loopback, over the kernel
	portKernel   = 8081 // to a backend on the daemon's loopback, over the kernel
	portFastpath = 8082 // to a backend at the client, over fastpath
	sourceSize   = 3 << 20
)

// config is the daemon's configuration.
func (w *world) config() string {
	var b strings.Builder
	port := map[string]string{
		"dpdk": fmt.Sprintf("driver = \"dpdk\"\nvdev = \"net_af_packet0,iface=%s,qpairs=%d\"\nmac = \"02:00:00:07:00:01\"\n",
			serverIf, max(w.queues, 1)),
		"afpacket": fmt.Sprintf("driver = \"afpacket\"\ninterface = %q\nmac = \"02:00:00:07:00:01\"\n", serverIf),
		"tap":      fmt.Sprintf("driver = \"tap\"\ninterface = %q\n", serverIf),
	}[w.driver]
	if w.virtio != nil {
		port = w.virtioPort()
	}
	listen, address := w.serverIP(), fmt.Sprintf("addresses = [\"%s\"]", strings.Join(append([]string{serverIP + "/24"}, w.addrs...), `", "`))
	if w.dhcp {
		listen, address = "0.0.0.0", "dhcp = true"
	}
	fmt.Fprintf(&b, "[[port]]\nname = \"p\"\n%smtu = %d\nqueues = %d\n%s\n%s", port, w.mtu, max(w.queues, 1), address, w.portKeys)
	fmt.Fprintf(&b, "[tcp]\ntime_wait = \"1s\"\n")
	fmt.Fprintf(&b, "[dpdk]\nfile_prefix = \"fpe2e\"\nhugepages = \"off\"\n")
	fmt.Fprintf(&b, "[control]\nsocket = %q\n[log]\nlevel = \"debug\"\n", w.socket)
	b.WriteString(w.workers)
	if w.modules != "" {
		b.WriteString(w.modules)
	} else {
		b.WriteString(linkedIn("cubic"))
	}
	app := func(kind string, port int, keys string) {
		fmt.Fprintf(&b, "[[app]]\nname = \"%s%d\"\nkind = %q\nlisten = \"%s\"\n%s\n", kind, port, kind, at(listen, port), keys)
	}
	app("http", portHTTP, fmt.Sprintf("upload = true\nseed = %d\n%s", seed, w.httpKeys))
	app("echo", portEcho, "")
	app("discard", portDiscard, "")
	app("source", portSource, fmt.Sprintf("seed = %d\nsize = \"%dB\"", seed, sourceSize))
	app("proxy", portIperf, fmt.Sprintf("backend = \"127.0.0.1:%d\"\nvia = \"kernel\"", portIperf))
	app("proxy", portKernel, fmt.Sprintf("backend = \"127.0.0.1:%d\"\nvia = \"kernel\"", portKernel))
	app("proxy", portFastpath, fmt.Sprintf("backend = \"%s\"\nvia = \"fastpath\"", at(w.clientIP(), portFastpath)))
	b.WriteString(w.more)
	return b.String()
}

// start writes the configuration, starts the daemon and waits until it answers.
func (w *world) start() {
	w.Helper()
	path := filepath.Join(w.dir, "fastpath.toml")
	w.must(os.WriteFile(path, []byte(w.config()), 0o644))
	bin, err := program()
	w.must(err)
	daemon := func() {
		w.daemon = startProcess(w.T, w.server, exec.Command(bin, "run", "-c", path))
		w.Cleanup(w.stop)
	}
	if w.virtio != nil {
		w.startVirtio(daemon)
	} else {
		daemon()
	}
	w.eventually(20*time.Second, func() error {
		var i control.Info
		return w.call(control.OpInfo, nil, &i)
	})
}

// stop ends the daemon, which has to end in order and to have lost no buffer on the way.
func (w *world) stop() {
	if w.daemon.ended() {
		return
	}
	w.must(w.daemon.cmd.Process.Signal(syscall.SIGTERM))
	if err := w.daemon.wait(20 * time.Second); err != nil {
		w.Errorf("the daemon did not end in order: %v", err)
	}
}

// call asks the daemon.
func (w *world) call(op string, args, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return call(ctx, w.socket, op, args, reply)
}

func call(ctx context.Context, socket, op string, args, reply any) error {
	c, err := control.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, op, args, reply)
}

// stat returns the daemon's counters.
func (w *world) stat() *control.StatReply {
	w.Helper()
	var s control.StatReply
	w.must(w.call(control.OpStat, nil, &s))
	return &s
}

// events returns the daemon's events so far.
func (w *world) events() (all []control.Event) {
	w.Helper()
	c, err := control.Dial(context.Background(), w.socket)
	w.must(err)
	defer c.Close()
	w.must(c.Stream(context.Background(), control.OpEvents, control.EventsRequest{}, func(b json.RawMessage) error {
		var e control.Event
		err := json.Unmarshal(b, &e)
		all = append(all, e)
		return err
	}, nil))
	return all
}

// eventually retries f until it succeeds or the time is over.
func (w *world) eventually(limit time.Duration, f func() error) {
	w.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if w.daemon.ended() {
			w.Fatalf("the daemon has ended: %v\n%s", err, w.daemon.tail(15))
		}
		if time.Now().After(end) {
			w.Fatalf("still not after %v: %v\n%s", limit, err, w.daemon.tail(15))
		}
	}
}

// dial connects from the client's namespace.
func (w *world) dial(port int) (*net.TCPConn, error) {
	return dialIn(w.client, w.serverIP(), port)
}

func dialIn(ns *netns.NS, ip string, port int) (c *net.TCPConn, err error) {
	err = ns.Do(func() error {
		c, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.ParseIP(ip), Port: port})
		return err
	})
	return c, err
}

// listen listens in a namespace until the test ends.
func (w *world) listen(ns *netns.NS, ip string, port int) *net.TCPListener {
	w.Helper()
	var l *net.TCPListener
	w.must(ns.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(ip), Port: port})
		return err
	}))
	w.Cleanup(func() { l.Close() })
	return l
}

func (w *world) url(path string) string { return "http://" + at(w.serverIP(), portHTTP) + path }

// process is a program that a test started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu  sync.Mutex
	log bytes.Buffer
}

// startProcess starts a program in a namespace. The test's end kills it, if it still runs then, and shows what it said if the test failed.
func startProcess(t *testing.T, ns *netns.NS, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p
	}
	cmd.Stderr = p
	cmd.WaitDelay = time.Second
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		if !p.ended() {
			_ = cmd.Process.Kill()
			<-p.done
		}
		if t.Failed() {
			t.Logf("%s said at the end:\n%s", filepath.Base(cmd.Path), p.tail(30))
		}
	})
	return p
}

// Write implements io.Writer for the program's output.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) tail(n int) string {
	lines := strings.Split(strings.TrimSpace(p.said()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait waits for the program's end and returns its error.
func (p *process) wait(limit time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		return fmt.Errorf("still running after %v", limit)
	}
}

// linkedIn is a configuration with the given congestion control, in which no module is a process.
func linkedIn(cong string) string {
	return fmt.Sprintf("[modules.cong]\nuse = %q\nplacement = \"builtin\"\n[modules.rtx]\nplacement = \"builtin\"\n[modules.pace]\nplacement = \"builtin\"\n", cong)
}
