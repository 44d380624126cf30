package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// End says how one end of a veth pair is set up. Both ends are brought up.
type End struct {
	NS    *NS              // nil is the host's namespace
	Name  string           // at most 15 characters; empty in the host's namespace only, where HostName makes one
	MAC   net.HardwareAddr // nil lets the kernel choose
	Addrs []netip.Prefix   // addresses with the length of their network
	// Offloads leaves checksum and segmentation offload as the kernel has them, which is on. Without it they are off: every frame
	// then has its checksums and is not longer than the MTU.
	Offloads bool
	// IPv6 leaves IPv6 on. Without it the interface sends nothing of its own accord.
	IPv6 bool
}

// Pair is a veth pair.
type Pair struct {
	A, B Interface

	mu     sync.Mutex
	closed bool
}

// Interface is one end as it was made.
type Interface struct {
	NS   *NS
	Name string
	MAC  net.HardwareAddr
	MTU  int
}

// HostName returns an interface name for the host's namespace that no other call and no other process returns.
func HostName() string {
	return fmt.Sprintf("fp%sx%d", strconv.FormatInt(int64(os.Getpid()), 36), counter.Add(1))
}

// Veth makes a pair of interfaces that are joined by a wire. mtu is the largest IP packet; 0 is 1500.
func Veth(a, b End, mtu int) (*Pair, error) {
	if err := RemoveStale(); err != nil {
		return nil, err
	}
	if mtu == 0 {
		mtu = 1500
	}
	for _, e := range []*End{&a, &b} {
		if e.NS == nil {
			e.NS = Host()
		}
		if e.Name == "" {
			if e.NS != Host() {
				return nil, errors.New("netns: an interface inside a namespace needs a name")
			}
			e.Name = HostName()
		}
	}
	p := &Pair{A: Interface{NS: a.NS, Name: a.Name, MTU: mtu}, B: Interface{NS: b.NS, Name: b.Name, MTU: mtu}}
	if err := addVeth(a, b, mtu); err != nil {
		return nil, fmt.Errorf("netns: make veth %s–%s (needs root): %w", a.Name, b.Name, err)
	}
	for _, s := range []struct {
		end End
		i   *Interface
	}{{a, &p.A}, {b, &p.B}} {
		if err := s.end.NS.Do(func() error { return setEnd(s.end, s.i) }); err != nil {
			return nil, errors.Join(fmt.Errorf("netns: set up %s: %w", s.end.Name, err), p.Close())
		}
	}
	return p, nil
}

// addVeth makes both ends where they belong at once.
func addVeth(a, b End, mtu int) error {
	fda, err := a.NS.open()
	if err != nil {
		return err
	}
	defer unix.Close(fda)
	fdb, err := b.NS.open()
	if err != nil {
		return err
	}
	defer unix.Close(fdb)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Namespace = a.Name, mtu, a.MAC, netlink.NsFd(fda)
	return netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: b.Name, PeerHardwareAddr: b.MAC, PeerNamespace: netlink.NsFd(fdb), PeerMTU: uint32(mtu),
	})
}

// open returns a descriptor of the namespace.
func (n *NS) open() (int, error) {
	path := n.path
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// setEnd runs in the end's namespace.
func setEnd(e End, i *Interface) error {
	l, err := netlink.LinkByName(e.Name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(l, aliasPrefix+strconv.Itoa(os.Getpid())); err != nil {
		return fmt.Errorf("alias: %w", err)
	}
	if !e.IPv6 {
		path := "/proc/sys/net/ipv6/conf/" + e.Name + "/disable_ipv6"
		if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if !e.Offloads {
		if err := OffloadsOff(e.Name); err != nil {
			return err
		}
	}
	for _, p := range e.Addrs {
		if err := addAddr(l, p); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	if l, err = netlink.LinkByName(e.Name); err != nil { // the kernel may have chosen the address
		return err
	}
	i.MAC = l.Attrs().HardwareAddr
	return nil
}

func addAddr(l netlink.Link, p netip.Prefix) error {
	n := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	a := &netlink.Addr{IPNet: n}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	if err := netlink.AddrAdd(l, a); err != nil {
		return fmt.Errorf("address %s: %w", p, err)
	}
	return nil
}

func setUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// Close removes the pair. It does nothing if the pair went away with a namespace. Further calls do nothing.
func (p *Pair) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	for _, i := range []Interface{p.A, p.B} {
		if i.NS.gone() {
			continue
		}
		if err := i.NS.Do(func() error { return deleteName(i.Name) }); err != nil {
			return fmt.Errorf("netns: remove %s: %w", i.Name, err)
		}
		return nil
	}
	return nil
}

func deleteName(name string) error {
	l, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	return deleteLink(l)
}

// gone reports whether the namespace was closed.
func (n *NS) gone() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}
