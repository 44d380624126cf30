//go:build dpdk

package dpdk

/*
#cgo pkg-config: libdpdk
#cgo CFLAGS: -O2 -Wall
#include "shim.h"

static int adjust_desc(uint16_t port, uint16_t *rx, uint16_t *tx) { return rte_eth_dev_adjust_nb_rx_tx_desc(port, rx, tx); }

static int mac_set(uint16_t port, const uint8_t *mac)
{
	struct rte_ether_addr a;

	memcpy(&a, mac, sizeof(a));
	return rte_eth_dev_default_mac_addr_set(port, &a);
}
*/
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/yerden/go-dpdk/ethdev"
)

// Port is a started DPDK port.
type Port struct {
	cfg    Config
	dev    device
	id     ethdev.Port
	info   pmd.Info
	traits traits
	caps   offloads
	queues []*Queue
	sock   *packetSockets // of net_af_packet, else nil

	warnings []string

	linkMu sync.Mutex
	mu     sync.RWMutex // held by Close against Stats and LinkUp
	closed bool
	last   pmd.Stats // after Close
}

// Open attaches the device and starts its port. It starts EAL if this process has not done so yet. The errors are *Error. The end of ctx ends
// a wait for the other end of a vhost-user socket.
func Open(ctx context.Context, c Config) (_ pmd.Port, err error) {
	d, err := c.parse()
	if err != nil {
		return nil, err
	}
	if d.bus == "pci" && strings.Count(d.name, ":") == 1 {
		d.name = "0000:" + d.name
	}
	if err := c.check(&d); err != nil {
		return nil, &Error{Port: c.Name, Op: "the device cannot be used", Setting: c.deviceValue(), Err: err}
	}
	env := &environment
	env.mu.Lock()
	defer env.mu.Unlock()
	if err := start(&c.EAL, d); err != nil {
		return nil, err
	}
	path, _ := d.socket()
	stop := interruptible(ctx, path)
	defer func() {
		stop()
		if err != nil && path != "" && ctx.Err() != nil {
			err = &Error{Port: c.Name, Setting: c.deviceValue(), Op: "told to stop before the other end of the socket had answered", Err: ctx.Err()}
		}
	}()
	p := &Port{cfg: c, dev: d}
	if slices.Contains(env.open, d.name) {
		return nil, p.fail("the device is open already", c.deviceValue(), syscall.EEXIST, nil)
	}
	sockets := openPacketSockets()
	// A PCI device was probed when EAL started, unless it was detached since.
	if p.id, err = ethdev.GetPortByName(d.name); err != nil {
		if err := attach(&c, d); err != nil {
			if path := d.listens(); path != "" {
				os.Remove(path)
			}
			return nil, err
		}
		if p.id, err = ethdev.GetPortByName(d.name); err != nil {
			return nil, errors.Join(p.fail("the device has no Ethernet port", c.deviceValue(), err, nil), detach(d))
		}
	}
	if err := p.open(sockets); err != nil {
		return nil, errors.Join(err, p.release())
	}
	env.open = append(env.open, d.name)
	return p, nil
}

// check says what the machine lacks for the device, before anything is changed.
func (c *Config) check(d *device) error {
	if d.bus == "vdev" {
		return checkVdev(d)
	}
	p, err := findPCI("/sys", "/dev", d.name)
	if err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	huge, _, err := c.EAL.huge()
	if err != nil {
		return nil // start says it
	}
	if !huge && p.needsHugepages() {
		return fmt.Errorf("with %s DPDK needs hugepages, of which too few are free or which are off: %s: %w", p.driver, moreHugepages(c.EAL.memory()), syscall.ENOMEM)
	}
	locks := c.EAL.memory()
	if huge { // taken as needed: at least the buffers
		locks = int64(c.Queues) * int64(c.Buffers) * defaultBufSize
	}
	return p.checkLock(locks)
}

// fail makes an *Error of what DPDK answered.
func (p *Port) fail(op, setting string, err error, log []string) error {
	return &Error{Port: p.cfg.Name, Op: op, Setting: setting, Err: err, Log: log}
}

// try runs one step of Open.
func (p *Port) try(op, setting string, step func() error) error {
	mark := C.fp_log_mark()
	if err := step(); err != nil {
		return p.fail(op, setting, err, logSince(mark))
	}
	return nil
}

// errno makes an error of what a DPDK function returns.
func errno(rc C.int) error {
	if rc < 0 {
		return syscall.Errno(-rc)
	}
	return nil
}

func (p *Port) open(socketsBefore []int) error {
	var info ethdev.DevInfo
	if err := p.try("cannot query the device", p.cfg.deviceValue(), func() error { return p.id.InfoGet(&info) }); err != nil {
		return err
	}
	ci := (*C.struct_rte_eth_dev_info)(unsafe.Pointer(&info))
	driver := info.DriverName()
	p.traits = traitsOf(driver)
	if driver == "net_af_packet" {
		sock, err := findPacketSockets(socketsBefore, int(ci.if_index), int(ci.max_rx_queues))
		if err != nil {
			return p.fail("cannot find the PMD's sockets", p.cfg.deviceValue(), err, nil)
		}
		p.sock, p.warnings = sock, unfinished(sock.ifname)
	}
	if most := int(min(ci.max_rx_queues, ci.max_tx_queues)); p.cfg.Queues > most {
		op := fmt.Sprintf("the device has %d queue pairs%s", most, moreQueues(driver, p.cfg.Queues))
		return p.fail(op, fmt.Sprintf("queues = %d", p.cfg.Queues), syscall.EINVAL, nil)
	}
	mtu, err := p.mtu()
	if err != nil {
		return err
	}
	size := p.bufSize(mtu, int(ci.min_rx_bufsize))
	p.caps = planOffloads(ci, p.cfg.Queues, mtu, size, p.ring()/2, !p.cfg.NoTSO && !p.traits.cuts4 && !packedChains(driver, ci))
	if p.traits.copies {
		p.caps.caps |= pmd.Copies
	}
	if err := p.configure(ci, mtu); err != nil {
		return err
	}
	if err := p.makeQueues(size, mtu); err != nil {
		return err
	}
	if err := p.start(); err != nil {
		return err
	}
	return p.describe(driver, ci, mtu)
}

// mtu is the configured MTU or the device's.
func (p *Port) mtu() (int, error) {
	if p.cfg.MTU > 0 {
		return p.cfg.MTU, nil
	}
	var mtu C.uint16_t
	if err := p.try("cannot read the device's MTU", p.cfg.deviceValue(), func() error { return errno(C.rte_eth_dev_get_mtu(C.uint16_t(p.id), &mtu)) }); err != nil {
		return 0, err
	}
	if p.sock != nil { // DPDK does not ask the kernel
		n, err := p.sock.mtu()
		if err != nil {
			return 0, p.fail("cannot read the interface's MTU", p.cfg.deviceValue(), err, nil)
		}
		return min(n, int(mtu)), nil
	}
	return int(mtu), nil
}

// bufSize is the size of a buffer, headroom included.
func (p *Port) bufSize(mtu, least int) int {
	if p.cfg.BufSize > 0 {
		return p.cfg.BufSize
	}
	const virtioHeader = 12 // net_virtio wants it to fit in behind the headroom
	return min(65535, max(defaultBufSize, (headroom+mtu+ethOverhead+virtioHeader+63)&^63, headroom+least))
}

func (p *Port) configure(info *C.struct_rte_eth_dev_info, mtu int) error {
	mtuSetting := fmt.Sprintf("mtu = %d", mtu)
	if mtu < int(info.min_mtu) || mtu > int(info.max_mtu) {
		return p.fail(fmt.Sprintf("the device takes an MTU between %d and %d", info.min_mtu, info.max_mtu), mtuSetting, syscall.EINVAL, nil)
	}
	n := uint16(p.cfg.Queues)
	setting := fmt.Sprintf("queues = %d, %s", n, mtuSetting)
	if err := p.try("the device rejects its configuration", setting, func() error { return p.id.DevConfigure(n, n, p.caps.options(mtu)...) }); err != nil {
		return err
	}
	if p.cfg.MTU > 0 {
		if err := p.try("the device rejects the MTU", mtuSetting, func() error {
			// A device without such a function takes what DevConfigure was given.
			if err := errno(C.rte_eth_dev_set_mtu(C.uint16_t(p.id), C.uint16_t(mtu))); err != nil && !errors.Is(err, syscall.ENOTSUP) {
				return err
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if p.cfg.MAC == nil {
		return nil
	}
	return p.try("the device rejects the MAC address", quoted("mac", p.cfg.MAC.String()), func() error {
		mac := C.CBytes(p.cfg.MAC)
		defer C.free(mac)
		err := errno(C.mac_set(C.uint16_t(p.id), (*C.uint8_t)(mac)))
		if p.traits.anyMAC && errors.Is(err, syscall.ENOTSUP) {
			return nil
		}
		return err
	})
}

// makeQueues makes each queue with its mempool.
func (p *Port) makeQueues(size, mtu int) error {
	ring := fmt.Sprintf("ring = %d", p.cfg.Ring)
	rx, tx := C.uint16_t(p.ring()), C.uint16_t(p.ring())
	if err := p.try("the device rejects the size of its rings", ring, func() error { return errno(C.adjust_desc(C.uint16_t(p.id), &rx, &tx)) }); err != nil {
		return err
	}
	least := 4 * C.FP_BURST
	if !p.traits.ringless {
		least += int(rx)
	}
	if !p.traits.copies {
		least += int(tx)
	}
	if p.cfg.Buffers < least {
		return p.fail(fmt.Sprintf("the port needs at least %d", least), fmt.Sprintf("buffers = %d", p.cfg.Buffers), syscall.EINVAL, nil)
	}
	for i := range p.cfg.Queues {
		q, err := newQueue(p, i, size, mtu)
		if err != nil {
			return err
		}
		p.queues = append(p.queues, q)
		setting := fmt.Sprintf("buf_size = %d, %s", size, ring)
		if err := p.try(fmt.Sprintf("cannot set up receive queue %d", i), setting, func() error { return p.id.RxqSetup(uint16(i), uint16(rx), q.mp, p.onSocket()...) }); err != nil {
			return err
		}
		if err := p.try(fmt.Sprintf("cannot set up transmit queue %d", i), ring, func() error { return p.id.TxqSetup(uint16(i), uint16(tx), p.onSocket()...) }); err != nil {
			return err
		}
	}
	return nil
}

// ring is the number of descriptors that each ring is asked to have.
func (p *Port) ring() int {
	if p.cfg.Ring == 0 {
		return 512
	}
	return p.cfg.Ring
}

func (p *Port) onSocket() []ethdev.QueueOption {
	if s := p.id.SocketID(); s >= 0 {
		return []ethdev.QueueOption{ethdev.OptSocket(s)}
	}
	return nil
}

func (p *Port) start() error {
	if err := p.try("the port does not start", p.cfg.deviceValue(), p.id.Start); err != nil {
		return err
	}
	// IPv6 finds neighbours by groups, whose addresses are not known here. A port that has no such mode receives them anyway.
	if err := p.id.AllMulticastEnable(); err != nil && !errors.Is(err, syscall.ENOTSUP) {
		return fmt.Errorf("dpdk: %s: the port does not receive what is sent to groups: %w", p.cfg.deviceValue(), err)
	}
	if !p.cfg.Promisc {
		return nil
	}
	return p.try("the port does not receive all frames", "promisc = true", func() error {
		if err := p.id.PromiscEnable(); err != nil && !errors.Is(err, syscall.ENOTSUP) {
			return err
		}
		return nil
	})
}

// describe fills in what only a started port knows.
func (p *Port) describe(driver string, info *C.struct_rte_eth_dev_info, mtu int) error {
	var mac ethdev.MACAddr
	if err := p.try("cannot read the MAC address", p.cfg.deviceValue(), func() error { return p.id.MACAddrGet(&mac) }); err != nil {
		return err
	}
	if p.traits.anyMAC && p.cfg.MAC != nil {
		copy(mac.HardwareAddr(), p.cfg.MAC)
	}
	key, table := p.caps.rss(p.id, info)
	p.info = pmd.Info{
		Driver: "dpdk:" + driver, Name: p.cfg.Name, MAC: bytes.Clone(mac.HardwareAddr()), MTU: mtu,
		Caps: p.caps.caps, MaxTSO: p.caps.maxTSO, RSSKey: key, RSSTable: table,
	}
	tells := p.tells(driver, info)
	for _, q := range p.queues {
		if p.caps.hwHash {
			q.c.hw_hash = 1
		}
		if q.c.tells = tells; tells == C.FP_TELLS_FULL && C.fp_misfit(q.c) != 0 {
			q.c.tells = C.FP_TELLS_NOT
		}
		q.start()
	}
	return nil
}

// tells says how the started port's PMD is asked to free what it has sent. Where frames of several buffers must not be, none can be marked.
func (p *Port) tells(driver string, info *C.struct_rte_eth_dev_info) C.uint8_t {
	switch {
	case p.traits.copies || packedChains(driver, info):
		return C.FP_TELLS_NOT
	case C.fp_tells(C.uint16_t(p.id)) != 0:
		return C.FP_TELLS_ASKED
	case p.traits.tellsFull:
		return C.FP_TELLS_FULL
	}
	return C.FP_TELLS_NOT
}

// Info describes the port.
func (p *Port) Info() pmd.Info { return p.info }

// NumQueues is the number of queue pairs.
func (p *Port) NumQueues() int { return len(p.queues) }

// Queue returns queue pair i.
func (p *Port) Queue(i int) pmd.Queue { return p.queues[i] }

// LinkUp reports whether the link is up.
func (p *Port) LinkUp() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return false
	}
	if p.sock != nil { // the PMD says up whatever the interface does
		return p.sock.up()
	}
	p.linkMu.Lock() // net_virtio_user takes up and drops connections when it is asked, and is not made for several at once
	defer p.linkMu.Unlock()
	l, err := p.id.EthLinkGetNowait()
	return err == nil && l.Status()
}

// Stats returns what the queues counted, and of DPDK's counters those of lost frames.
func (p *Port) Stats() pmd.Stats {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return p.last
	}
	return p.stats()
}

func (p *Port) stats() pmd.Stats {
	var s pmd.Stats
	for _, q := range p.queues {
		q.count.add(&s)
	}
	var raw ethdev.Stats
	if p.id.StatsGet(&raw) == nil {
		d := raw.Cast()
		s.RxDropped += d.Imissed
		s.RxErrors += d.Ierrors
		s.TxErrors += d.Oerrors
		if !p.traits.copies { // others leave the frame where it is when they find no buffer
			s.RxDropped += d.RxNoMbuf
		}
	}
	if p.sock != nil {
		s.RxDropped += p.sock.dropped()
	}
	return s
}

// Close stops the port, detaches the device and frees the buffers.
func (p *Port) Close() error {
	env := &environment
	env.mu.Lock()
	defer env.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return pmd.ErrClosed
	}
	p.last, p.closed = p.stats(), true
	env.open = slices.DeleteFunc(env.open, func(name string) bool { return name == p.dev.name })
	return p.release()
}

// release undoes Open, as far as it came.
func (p *Port) release() error {
	p.id.Stop()
	if path := p.dev.listens(); path != "" {
		return p.abandon(path)
	}
	p.id.Close()
	errs := []error{detach(p.dev)}
	for _, q := range p.queues {
		errs = append(errs, q.close())
	}
	if p.sock != nil {
		p.sock.close()
	}
	return errors.Join(errs...)
}

// abandon leaves the stopped device to the end of the process. When its peer has gone and come back, net_virtio_user as a socket's server
// leaves a descriptor with EAL's interrupt thread that it closes with the device, and the thread then aborts the process.
func (p *Port) abandon(socket string) error {
	environment.abandoned = true
	var errs []error
	for _, q := range p.queues {
		errs = append(errs, q.pool.CheckLeaks())
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// The layout that config.go, which is built without DPDK too, takes for granted.
var (
	_ = [1]struct{}{}[headroom-C.RTE_PKTMBUF_HEADROOM]
	_ = [1]struct{}{}[pmd.Headroom-C.RTE_PKTMBUF_HEADROOM]
)
