package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/dpdk"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
	"github.com/fastpath-tcp/fastpath/pmd/tap"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
	"github.com/fastpath-tcp/fastpath/stack"
)

// openPorts opens all ports. Until a stack has taken a port, stopping closes it.
func (d *Daemon) openPorts(ctx context.Context) error {
	if slices.ContainsFunc(d.conf.Ports, func(p conf.Port) bool { return p.Driver == conf.DriverDPDK }) {
		d.onStop(dpdk.Shutdown)
	}
	links := map[string]pmd.Port{} // memlink ports that wait for their turn
	d.onStop(func() error {
		var errs []error
		for _, p := range links {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	})
	vlans := vlanPorts{}
	d.onStop(vlans.close)
	for i := range d.conf.Ports {
		c := &d.conf.Ports[i]
		p, err := d.openDevice(ctx, c, links, vlans)
		if err != nil {
			return fmt.Errorf("port[%d] %q: %w", i, c.Name, err)
		}
		info := p.Info()
		if info.MTU < c.MTU {
			d.log.Warn("the interface's MTU is smaller than the configured one", "port", c.Name, "mtu", info.MTU, "configured", c.MTU)
		}
		d.log.Info("port", "name", c.Name, "driver", info.Driver, "mac", info.MAC.String(), "mtu", info.MTU, "queues", p.NumQueues(), "addresses", c.Addresses)
		n := &port{conf: c, trace: trace.New(p, stack.Monotonic{}.Now)}
		for _, w := range n.trace.Warnings() {
			d.log.Warn(w, "port", c.Name)
		}
		d.ports = append(d.ports, n)
		d.onStop(func() error {
			if n.stack != nil {
				return nil // closed with its stack
			}
			return n.trace.Close()
		})
	}
	return d.chargeBuffers()
}

func (d *Daemon) openPort(ctx context.Context, c *conf.Port, links map[string]pmd.Port) (pmd.Port, error) {
	mac := net.HardwareAddr(c.MAC)
	switch c.Driver {
	case conf.DriverDPDK:
		device := dpdk.Config{
			Name: c.Name, Vdev: c.Vdev, Device: c.Device, MAC: mac, MTU: c.MTU, Queues: c.Queues, Ring: c.Ring, Buffers: c.Buffers, NoTSO: !c.TSO, EAL: d.eal(),
		}
		if path := device.Awaits(); path != "" {
			d.log.Info("waiting for the other end of the socket", "port", c.Name, "socket", path)
		}
		return dpdk.Open(ctx, device)
	case conf.DriverAFPacket:
		return opened(afpacket.Open(afpacket.Config{Interface: c.Interface, Queues: c.Queues, RingFrames: c.Ring, PoolSize: c.Buffers, MAC: mac}))
	case conf.DriverTap:
		return opened(tap.Open(tap.Config{Name: c.Interface, Queues: c.Queues, PoolSize: c.Buffers, MAC: mac, MTU: c.MTU, NoTSO: !c.TSO}))
	case conf.DriverMemlink:
		return d.openMemlink(c, links)
	case conf.DriverPcap:
		return d.openPcap(c)
	}
	return nil, fmt.Errorf("unknown driver %q", c.Driver)
}

// opened keeps a nil pointer of a driver's own type from becoming a port.
func opened[P pmd.Port](p P, err error) (pmd.Port, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// eal is what DPDK is started with: all its PCI devices are named at the start.
func (d *Daemon) eal() dpdk.EAL {
	c := &d.conf.DPDK
	e := dpdk.EAL{Hugepages: c.Hugepages, FilePrefix: c.FilePrefix, Memory: int64(c.Memory), Args: c.Args}
	for _, p := range d.conf.Ports {
		if p.Driver == conf.DriverDPDK && p.Device != "" {
			e.PCI = append(e.PCI, p.Device)
		}
	}
	return e
}

// openMemlink makes both ends of a link when the first is asked for.
func (d *Daemon) openMemlink(c *conf.Port, links map[string]pmd.Port) (pmd.Port, error) {
	if p, ok := links[c.Name]; ok {
		delete(links, c.Name)
		return p, nil
	}
	i := slices.IndexFunc(d.conf.Ports, func(p conf.Port) bool { return p.Name == c.Peer })
	peer := &d.conf.Ports[i] // conf has checked that it is there
	if peer.Queues != c.Queues || peer.MTU != c.MTU {
		return nil, fmt.Errorf("queues and mtu of the two ends differ: %d and %d, %d and %d", c.Queues, peer.Queues, c.MTU, peer.MTU)
	}
	a, b, err := memlink.New(memlink.Config{
		A: memlink.End{Name: c.Name, MAC: net.HardwareAddr(c.MAC)}, B: memlink.End{Name: peer.Name, MAC: net.HardwareAddr(peer.MAC)},
		MTU: c.MTU, Queues: c.Queues, Ring: c.Ring, Bufs: min(c.Buffers, peer.Buffers), Now: stack.Monotonic{}.Now,
	})
	if err != nil {
		return nil, err
	}
	links[peer.Name] = b
	return a, nil
}

func (d *Daemon) openPcap(c *conf.Port) (pmd.Port, error) {
	if c.Queues != 1 {
		return nil, fmt.Errorf("queues = %d: a capture has one", c.Queues)
	}
	in, err := os.Open(c.Replay)
	if err != nil {
		return nil, err
	}
	defer in.Close() // Open reads all of it
	cfg := pcap.Config{Name: c.Name, MAC: net.HardwareAddr(c.MAC), MTU: c.MTU, Bufs: c.Buffers, Replay: in, Now: stack.Monotonic{}.Now, Epoch: d.epoch}
	if c.Record != "" {
		f, err := os.OpenFile(c.Record, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		cfg.Record = f
		d.onStop(f.Close) // after the port, which completes the file
	}
	return opened(pcap.Open(cfg))
}
