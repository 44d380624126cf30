// Package tap is the driver for a TAP device: an Ethernet interface of the kernel whose other end is this port. It needs CAP_NET_ADMIN
// to make a device, or a persistent device that belongs to the user (ip tuntap add mode tap user NAME).
//
// Every frame costs a system call, so Poll moves at most Batch frames each way. It enters the kernel even if there is nothing to do, to
// find that out. Frames are copied, so a transmission is complete when Poll has taken the frame (pmd.Copies).
//
// Frames carry a virtio header. Unless Config.NoOffloads is set the kernel leaves checksums unfinished (pmd.RxPartial) and hands over
// up to 64 KB of a TCP flow at once, which Poll cuts into frames that fit the MTU: one system call for some forty frames. In the other
// direction it is the kernel that completes TCP checksums, or, as the frames end on this host, never does (pmd.TxCsum), and that cuts large
// frames, if it does not take them in one piece (pmd.TSO).
//
// With several queues the kernel sends a flow's frames to the queue that last sent frames of that flow.
package tap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/link"
	"github.com/fastpath-tcp/fastpath/pmd/internal/vnet"
	"github.com/fastpath-tcp/fastpath/pmd/nsenter"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DefaultPoolSize is the number of buffers of a queue.
const DefaultPoolSize = 4096

// Config says what to open. Only Name is needed.
type Config struct {
	// Name is the kernel's interface. If there is none of that name, it is made, and vanishes with Close. A name such as "fp%d" has the
	// kernel choose a number.
	Name      string
	NetNSPath string // network namespace of the interface, such as /run/netns/NAME; empty is the calling thread's
	Queues    int    // default 1
	PoolSize  int    // buffers per queue; default DefaultPoolSize
	// MAC is the address of the port's user. Default: one that follows from the interface's own, which must be another.
	MAC        net.HardwareAddr
	NoOffloads bool // have the kernel complete checksums and cut segments
	NoTxCsum   bool // complete checksums, and cut segments, before frames are handed to the port
	NoTSO      bool // cut segments before

	// The kernel's side. What is empty stays as it is. The interface is always brought up.
	HostMAC   net.HardwareAddr
	HostAddrs []netip.Prefix // with the length of their network
	MTU       int            // bytes of IP packet; a new interface has 1500
}

// Port is an open TAP device.
type Port struct {
	info   pmd.Info
	link   *link.Link
	queues []*Queue

	mu      sync.Mutex // for Stats and Close
	closed  bool
	kernel  *netlink.Handle
	first   uint64 // the interface's count of dropped frames at Open
	dropped uint64 // what it has risen by since
}

var _ pmd.Port = (*Port)(nil)

// Open makes or attaches to a TAP device. The errors name it and, where it is known, what to do.
func Open(c Config) (*Port, error) {
	var p *Port
	err := nsenter.Do(c.NetNSPath, func() (err error) {
		p, err = open(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tap: %s: %w", c.Name, link.Permission(err))
	}
	return p, nil
}

func open(c Config) (*Port, error) {
	if c.Name == "" || len(c.Name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("interface name %q: want 1 … %d characters", c.Name, unix.IFNAMSIZ-1)
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	if c.PoolSize == 0 {
		c.PoolSize = DefaultPoolSize
	}
	if c.Queues < 0 || c.Queues > 256 || c.PoolSize < 0 {
		return nil, fmt.Errorf("%d queues with %d buffers: want 1 … 256 queues", c.Queues, c.PoolSize)
	}
	p := &Port{}
	if err := p.setUp(&c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Port) setUp(c *Config) error {
	for range c.Queues {
		fd, err := attach(c)
		if err != nil {
			return err
		}
		p.queues = append(p.queues, &Queue{fd: fd, frame: make([]byte, vnet.HeaderLen+vnet.MaxFrame)})
	}
	if err := configure(c); err != nil {
		return err
	}
	var err error
	if p.link, err = link.Open(c.Name, nil); err != nil {
		return err
	}
	if p.kernel, err = netlink.NewHandle(); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	p.first = p.kernelDrops()
	if p.info.MAC, err = userMAC(c.MAC, p.link.MAC); err != nil {
		return err
	}
	p.info.Driver, p.info.Name, p.info.MTU, p.info.Caps = "tap", p.link.Name, p.link.MTU, pmd.Copies|pmd.AnyPool|pmd.Prompt
	if !c.NoTxCsum {
		p.info.Caps |= pmd.TxCsum
		if !c.NoTSO {
			p.info.Caps |= pmd.TSO
			p.info.MaxTSO = pmd.MaxLarge - pmd.MaxHeaders
		}
	}
	size := max(pmd.DefaultBufSize, (pmd.Headroom+p.link.MTU+ethLen+63)&^63)
	for i, q := range p.queues {
		q.maxTx, q.tso = p.link.MTU+14, p.info.Caps&pmd.TSO != 0
		if q.pool, err = pmd.NewPool(fmt.Sprintf("%s/%d", p.link.Name, i), c.PoolSize, size); err != nil {
			return err
		}
	}
	return nil
}

// userMAC is the port's own address: mac, or the interface's with a bit changed.
func userMAC(mac, host net.HardwareAddr) (net.HardwareAddr, error) {
	if len(mac) == 0 {
		mac = append(net.HardwareAddr{}, host...)
		mac[0] |= 2 // locally administered
		mac[5] ^= 1
	}
	if len(mac) != 6 || mac.String() == host.String() {
		return nil, fmt.Errorf("MAC address %q: want 6 bytes, not those of the kernel's side", mac)
	}
	return mac, nil
}

// attach opens a queue of the device, which the first one makes if it does not exist. It writes the name that the kernel chose to c.Name.
func attach(c *Config) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("/dev/net/tun: %w: modprobe tun", err)
	}
	if err != nil {
		return 0, fmt.Errorf("/dev/net/tun: %w", err)
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if c.Queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	name, err := setIff(fd, c.Name, flags)
	if err == unix.EINVAL && c.Queues == 1 { // a persistent device with multi_queue wants the flag
		name, err = setIff(fd, c.Name, flags|unix.IFF_MULTI_QUEUE)
	}
	if err != nil {
		unix.Close(fd)
		return 0, explain(err, c)
	}
	c.Name = name
	if err := setOffloads(fd, c.NoOffloads); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// setIff makes fd a queue of the device and returns the device's name.
func setIff(fd int, name string, flags uint16) (string, error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return "", err
	}
	r.SetUint16(flags)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	return r.Name(), err
}

func explain(err error, c *Config) error {
	switch {
	case err == unix.EBUSY:
		return fmt.Errorf("the device is in use by another program, or is no TAP device: %w", err)
	case err == unix.EINVAL && link.Exists(c.Name):
		return fmt.Errorf("the interface exists, and is no TAP device or was not made with multi_queue: %w", err)
	}
	return fmt.Errorf("TUNSETIFF: %w", err)
}

func setOffloads(fd int, off bool) error {
	flags := unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	if off {
		flags = 0
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnet.HeaderLen); err != nil {
		return fmt.Errorf("TUNSETVNETHDRSZ: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags); err != nil {
		return fmt.Errorf("TUNSETOFFLOAD: %w", err)
	}
	return nil
}

// configure sets up the kernel's side.
func configure(c *Config) error {
	l, err := netlink.LinkByName(c.Name)
	if err != nil {
		return err
	}
	if c.MTU != 0 {
		if err := netlink.LinkSetMTU(l, c.MTU); err != nil {
			return fmt.Errorf("set MTU %d: %w", c.MTU, err)
		}
	}
	if len(c.HostMAC) != 0 {
		if err := netlink.LinkSetHardwareAddr(l, c.HostMAC); err != nil {
			return fmt.Errorf("set address %v: %w", c.HostMAC, err)
		}
	}
	for _, a := range c.HostAddrs {
		n := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		if err := netlink.AddrReplace(l, &netlink.Addr{IPNet: n}); err != nil {
			return fmt.Errorf("set address %v: %w", a, err)
		}
	}
	if l.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring it up: %w", err)
	}
	return nil
}

// Info describes the port. MAC is the port's own address, not that of the kernel's side.
func (p *Port) Info() pmd.Info { return p.info }

// NumQueues is the number of queue pairs.
func (p *Port) NumQueues() int { return len(p.queues) }

// Queue returns queue pair i.
func (p *Port) Queue(i int) pmd.Queue { return p.queues[i] }

// LinkUp reports whether the kernel's side is up. It costs a load.
func (p *Port) LinkUp() bool { return p.link.Up() }

// Stats returns the counters. RxDropped is what the kernel dropped because the device's queue was full (ip link set txqueuelen).
func (p *Port) Stats() pmd.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.dropped = p.kernelDrops() - p.first
	}
	s := pmd.Stats{RxDropped: p.dropped}
	for _, q := range p.queues {
		q.stats.addTo(&s)
	}
	return s
}

// kernelDrops is the interface's count, or, if it is gone, what was read last.
func (p *Port) kernelDrops() uint64 {
	l, err := p.kernel.LinkByIndex(p.link.Index)
	if err != nil || l.Attrs().Statistics == nil {
		return p.first + p.dropped
	}
	return l.Attrs().Statistics.TxDropped
}

// Close closes the device, which vanishes if it is not persistent, and unmaps the pools. Further calls return pmd.ErrClosed.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return pmd.ErrClosed
	}
	p.closed = true
	if p.kernel != nil {
		p.dropped = p.kernelDrops() - p.first
		p.kernel.Close()
	}
	if p.link != nil {
		p.link.Close()
	}
	var errs []error
	for _, q := range p.queues {
		if err := q.close(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
