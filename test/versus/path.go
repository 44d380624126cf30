package versus

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/pmd/tap"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// Addresses of the ends, in one network.
const (
	SenderAddr   = "10.9.0.1"
	ReceiverAddr = "10.9.0.2"
)

const batch = 64

// splice carries frames between an interface of a kernel and an end of the emulated link.
type splice struct {
	nic, link pmd.Queue
	out, in   []*pmd.Buf // for the kernel, for the link
}

// step moves frames both ways and reports whether there were any.
func (s *splice) step(rx []*pmd.Buf) bool {
	ntx, n := s.nic.Poll(s.out, rx)
	s.out = append(s.out[:0], s.out[ntx:]...)
	busy := n > 0 || ntx > 0
	for _, b := range rx[:n] {
		c := s.link.Pool().Get() // the link keeps a frame for its delay, in its own memory
		if c != nil && c.Append(b.Bytes()) {
			s.in = append(s.in, c)
		} else if c != nil {
			c.Free()
		}
		b.Free()
	}
	ntx, n = s.link.Poll(s.in, rx[:min(batch, max(0, 4*batch-len(s.out)))])
	s.in = append(s.in[:0], s.in[ntx:]...)
	s.out = append(s.out, rx[:n]...)
	return busy || n > 0 || ntx > 0
}

func (s *splice) free() {
	for _, list := range [][]*pmd.Buf{s.out, s.in} {
		for _, b := range list {
			b.Free()
		}
	}
	s.out, s.in = nil, nil
}

// Path is the emulated path and what is at its ends.
type Path struct {
	Sender, Receiver *netns.NS     // nil: no kernel of this machine's sends
	A                *memlink.Port // the sender's end
	closers          []func() error
	stop             chan struct{}
	wg               sync.WaitGroup
}

// Near is what sends. The zero value leaves the sender's end of the link to the caller, who closes it.
type Near struct {
	Kernel    bool   // a kernel of this machine's, by a TAP device
	NS        string // path of a network namespace, and
	Interface string // an interface in it that has the sender behind it, such as a virtual machine's
}

// NewPath makes namespaces, devices and the link. The test's end removes them.
func NewPath(t testing.TB, there, back memlink.Path, near Near) *Path {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := &Path{stop: make(chan struct{})}
	a, b, err := memlink.New(memlink.Config{AtoB: there, BtoA: back, Seed: 1, Now: stack.Monotonic{}.Now})
	must(err)
	p.A = a
	var splices []*splice
	join := func(nic pmd.Port, end *memlink.Port) {
		s := &splice{nic: nic.Queue(0), link: end.Queue(0)}
		splices = append(splices, s)
		p.closers = append(p.closers, func() error { s.free(); return errors.Join(end.Close(), nic.Close()) })
	}
	device := func(prefix, addr string, end *memlink.Port) *netns.NS {
		ns, err := netns.New(prefix)
		must(err)
		t.Cleanup(func() {
			if err := ns.Close(); err != nil {
				t.Error(err)
			}
		})
		d, err := tap.Open(tap.Config{Name: "versus0", NetNSPath: ns.Path(), NoOffloads: true, HostAddrs: []netip.Prefix{netip.MustParsePrefix(addr + "/24")}})
		must(err)
		join(d, end)
		return ns
	}
	p.Receiver = device("receiver", ReceiverAddr, b)
	switch {
	case near.Kernel:
		p.Sender = device("sender", SenderAddr, a)
	case near.Interface != "":
		d, err := afpacket.Open(afpacket.Config{Interface: near.Interface, NetNSPath: near.NS, Promiscuous: true})
		must(err)
		join(d, a)
	}
	for _, s := range splices {
		p.wg.Go(func() { s.run(p.stop) })
	}
	t.Cleanup(func() {
		close(p.stop)
		p.wg.Wait()
		for _, c := range p.closers {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// run carries frames until stop is closed.
func (s *splice) run(stop chan struct{}) {
	rx := make([]*pmd.Buf, batch)
	fds := []unix.PollFd{{Fd: int32(s.nic.WakeFD()), Events: unix.POLLIN}, {Fd: int32(s.link.WakeFD()), Events: unix.POLLIN}}
	nic, parks := s.nic.(pmd.Parker)
	link := s.link.(pmd.Parker)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if s.step(rx) {
			continue
		}
		if link.Park() && (!parks || nic.Park()) {
			unix.Poll(fds, 100) //nolint:errcheck // interrupted or timed out: look again
		}
		link.Unpark()
		if parks {
			nic.Unpark()
		}
	}
}
