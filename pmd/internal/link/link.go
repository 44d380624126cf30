// Package link reads and watches a kernel network interface for drivers that use one.
package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Link is a kernel interface. Its fields are as they were when it was opened.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	MTU   int
	Admin bool // set up by the administrator

	ns   netns.NsHandle
	up   atomic.Bool
	done chan struct{}
	wait sync.WaitGroup
}

// Exists reports whether the calling thread's network namespace has an interface of that name.
func Exists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}

// Open finds an Ethernet interface in the calling thread's network namespace and begins to watch its state. Whenever the state may
// have changed, changed is called on a goroutine of the Link, if it is not nil.
func Open(name string, changed func()) (*Link, error) {
	found, err := netlink.LinkByName(name)
	if err != nil {
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			return nil, fmt.Errorf("there is no interface %q in this network namespace (see: ip link)", name)
		}
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	a := found.Attrs()
	if a.EncapType != "ether" {
		return nil, fmt.Errorf("interface %q is of type %s, not Ethernet", name, a.EncapType)
	}
	l := &Link{
		Name: a.Name, Index: a.Index, MAC: a.HardwareAddr, MTU: a.MTU, Admin: a.Flags&net.FlagUp != 0,
		done: make(chan struct{}),
	}
	if l.ns, err = netns.Get(); err != nil {
		return nil, fmt.Errorf("own network namespace: %w", err)
	}
	updates, stop, err := l.subscribe(netns.None())
	if err != nil {
		l.ns.Close()
		return nil, fmt.Errorf("interface %q: watch its state: %w", name, err)
	}
	l.wait.Go(func() { l.watch(updates, stop, changed) })
	return l, nil
}

// Up reports whether the interface is up and has a carrier. It does not enter the kernel.
func (l *Link) Up() bool { return l.up.Load() }

// Close ends the watch.
func (l *Link) Close() {
	close(l.done)
	l.wait.Wait()
	l.ns.Close()
}

// subscribe asks for the link's changes and then reads its state, so that no change is missed. It does so in the namespace ns; None is
// the calling thread's.
func (l *Link) subscribe(ns netns.NsHandle) (<-chan netlink.LinkUpdate, chan struct{}, error) {
	updates, stop := make(chan netlink.LinkUpdate), make(chan struct{})
	o := netlink.LinkSubscribeOptions{Namespace: &ns, ErrorCallback: func(error) {}}
	if err := netlink.LinkSubscribeWithOptions(updates, stop, o); err != nil {
		return nil, nil, err
	}
	if err := l.refresh(ns); err != nil {
		close(stop)
		for range updates {
		}
		return nil, nil, err
	}
	return updates, stop, nil
}

// again is subscribe on any thread. A process that may not change its namespace must not try to, and is in that of the link.
func (l *Link) again() (<-chan netlink.LinkUpdate, chan struct{}, error) {
	here, err := netns.Get()
	if err != nil {
		return nil, nil, err
	}
	defer here.Close()
	if here.Equal(l.ns) {
		return l.subscribe(netns.None())
	}
	return l.subscribe(l.ns)
}

func (l *Link) refresh(ns netns.NsHandle) error {
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	found, err := h.LinkByIndex(l.Index)
	if err != nil {
		return err
	}
	l.up.Store(running(found.Attrs()))
	return nil
}

func running(a *netlink.LinkAttrs) bool {
	return a.Flags&net.FlagUp != 0 && a.Flags&net.FlagRunning != 0
}

// watch follows the updates until done. A subscription ends by itself if the kernel could not queue all updates; then a new one begins.
func (l *Link) watch(updates <-chan netlink.LinkUpdate, stop chan struct{}, changed func()) {
	for {
		ended := l.follow(updates, changed)
		close(stop)
		for range updates { // its sender must not block
		}
		if !ended {
			return
		}
		var err error
		if updates, stop, err = l.again(); err != nil {
			l.up.Store(false) // the interface is gone
			return
		}
		if changed != nil {
			changed()
		}
	}
}

// follow reports false when the Link is closed, true when the subscription has ended.
func (l *Link) follow(updates <-chan netlink.LinkUpdate, changed func()) bool {
	for {
		select {
		case <-l.done:
			return false
		case u, ok := <-updates:
			if !ok {
				return true
			}
			if u.Link == nil || u.Link.Attrs().Index != l.Index {
				continue
			}
			l.up.Store(u.Header.Type != unix.RTM_DELLINK && running(u.Link.Attrs()))
			if changed != nil {
				changed()
			}
		}
	}
}

// Permission explains an error of a privileged call.
func Permission(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: run as root, or give the program the capabilities: setcap cap_net_raw,cap_net_admin+ep PROGRAM", err)
	}
	return err
}
