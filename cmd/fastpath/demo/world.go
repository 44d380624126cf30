package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// network is where the demo happens: a namespace with the kernel's TCP as the client, and one for the daemon.
type network struct {
	client, daemon *netns.NS
	veth           *netns.Pair
	server         netip.AddrPort
	clientAddr     netip.Prefix
}

func (d *demo) network(context.Context) (err error) {
	n := &d.net
	addr := d.conf.Ports[0].Addresses[0]
	n.server = netip.AddrPortFrom(addr.Addr(), d.conf.Apps[0].Listen.Port())
	n.clientAddr = netip.PrefixFrom(addr.Addr().Next(), addr.Bits())
	if n.client, err = netns.New("client"); err != nil {
		return err
	}
	if d.o.Driver == "tap" { // the client is the kernel behind the TAP device
		n.daemon = n.client
		return nil
	}
	if n.daemon, err = netns.New("daemon"); err != nil {
		return err
	}
	n.veth, err = netns.Veth(
		netns.End{NS: n.client, Name: clientIf, Addrs: []netip.Prefix{n.clientAddr}},
		netns.End{NS: n.daemon, Name: serverIf}, 1500)
	return err
}

// tapAddress gives the kernel's end of the TAP device its address, once the daemon has made the device.
func (n *network) tapAddress() error {
	return n.client.Do(func() error {
		l, err := netlink.LinkByName(serverIf)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(n.clientAddr.String())
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

func (n *network) close() error {
	var errs []error
	if n.veth != nil {
		errs = append(errs, n.veth.Close())
	}
	if n.daemon != nil && n.daemon != n.client {
		errs = append(errs, n.daemon.Close())
	}
	if n.client != nil {
		errs = append(errs, n.client.Close())
	}
	return errors.Join(errs...)
}

// server is the daemon's process.
type server struct {
	cmd    *exec.Cmd
	log    bytes.Buffer
	socket string
	gone   context.CancelCauseFunc // told when the process has ended
	exited chan struct{}
	err    error // after exited: how it ended; nil for status 0
}

// stopTimeout is how long the daemon may take to stop.
const stopTimeout = 15 * time.Second

// daemon starts `fastpath run` and waits until it answers.
func (d *demo) daemon(ctx context.Context, path string) error {
	s := &d.server
	s.socket = d.conf.Control.Socket
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o755); err != nil {
		return err
	}
	d.huge.sweep(d.say.event)
	if d.o.Driver == "dpdk" {
		d.huge.reserve(d.say.event)
	}
	s.cmd = exec.Command(d.o.Program, "run", "-c", path)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	// An interrupt goes to the demo, which stops the daemon in order; the demo's sudden death stops it, too.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.net.daemon.Start(s.cmd); err != nil {
		s.cmd = nil
		return err
	}
	s.exited = make(chan struct{})
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
		s.gone(s.ended())
	}()
	d.say.event("started fastpath run -c " + path)
	var info control.Info
	if err := d.eventually(ctx, 20*time.Second, func() error { return s.call(ctx, control.OpInfo, nil, &info) }); err != nil {
		return err
	}
	if d.o.Driver == "tap" {
		if err := d.net.tapAddress(); err != nil {
			return err
		}
	}
	d.result.Version = info.Version
	// The module's process must serve before it is swapped.
	return d.eventually(ctx, 10*time.Second, func() error {
		_, err := d.module(ctx, "bbr")
		return err
	})
}

// eventually retries f until it succeeds, the daemon exits, or the time is over.
func (d *demo) eventually(ctx context.Context, limit time.Duration, f func() error) error {
	end := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.server.exited:
			return d.server.ended()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ended says how the daemon ended, which it should not have.
func (s *server) ended() error { return fmt.Errorf("the daemon has ended: %v", s.cmd.ProcessState) }

func (s *server) call(ctx context.Context, op string, args, reply any) error {
	c, err := control.Dial(ctx, s.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, op, args, reply)
}

// stop ends the daemon in order, or by force if it does not end.
func (s *server) stop() error {
	if s.cmd == nil {
		return nil
	}
	select {
	case <-s.exited:
		return nil
	default:
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.exited:
		return s.err
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.exited
		return fmt.Errorf("the daemon did not stop within %v", stopTimeout)
	}
}

// tidy removes what a daemon leaves behind that did not end in order, and the directory of its socket.
func (s *server) tidy() {
	if s.cmd == nil {
		return
	}
	for _, path := range []string{s.socket, s.socket + control.LockSuffix} {
		os.Remove(path)
	}
	os.Remove(filepath.Dir(s.socket)) // fails if it holds something of somebody else
}

// daemonSays is the end of the daemon's log, for an error.
func (d *demo) daemonSays() string {
	if d.server.cmd == nil {
		return ""
	}
	_ = d.server.stop()
	lines := strings.Split(strings.TrimSpace(d.server.log.String()), "\n")
	return "\nthe daemon's last words:\n  " + strings.Join(lines[max(0, len(lines)-12):], "\n  ")
}

// module returns a congestion-control module that serves as a process.
func (d *demo) module(ctx context.Context, name string) (m control.Module, err error) {
	var r control.ModulesReply
	if err := d.server.call(ctx, control.OpModules, nil, &r); err != nil {
		return m, err
	}
	for _, m := range r.Modules {
		if m.Kind == "cong" && m.Name == name && m.Placement == "process" && m.State == control.ModuleActive && m.PID != 0 {
			return m, nil
		}
	}
	return m, fmt.Errorf("no process of the module %s serves", name)
}
