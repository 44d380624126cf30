package e2e

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	stackwire "github.com/fastpath-tcp/fastpath/stack/wire"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// wire carries frames between two kernel interfaces through an emulated link.
type wire struct {
	ends     [2]*wireEnd // a's interface and b's
	a, b     *memlink.Port
	cleanARP bool
	stop     chan struct{}
	wg       sync.WaitGroup
}

// wireEnd is a kernel interface and the end of the emulated link that belongs to it.
type wireEnd struct {
	port pmd.Port
	nic  pmd.Queue
	link pmd.Queue
	out  []*pmd.Buf // for the interface
	in   []*pmd.Buf // for the link
}

// batch is how many frames each step moves.
const batch = 64

// newWire joins two interfaces of a namespace. Both directions are like path.
func newWire(t *testing.T, ns *netns.NS, first, second string, mtu int, path memlink.Path) *wire {
	t.Helper()
	w := &wire{stop: make(chan struct{})}
	// ARP has no checksum of its own: on a real link the frame's FCS protects it, here it goes past what corrupts.
	w.cleanARP = path.Corrupt != 0
	var err error
	w.a, w.b, err = memlink.New(memlink.Config{MTU: mtu, AtoB: path, BtoA: path, Seed: 1, Now: stack.Monotonic{}.Now})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{first, second} {
		p, err := afpacket.Open(afpacket.Config{Interface: name, NetNSPath: ns.Path(), Promiscuous: true})
		if err != nil {
			t.Fatal(err)
		}
		w.ends[i] = &wireEnd{port: p, nic: p.Queue(0), link: []*memlink.Port{w.a, w.b}[i].Queue(0)}
	}
	w.wg.Go(w.run)
	t.Cleanup(func() {
		close(w.stop)
		w.wg.Wait()
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *wire) close() error {
	for _, e := range w.ends {
		for _, list := range [][]*pmd.Buf{e.out, e.in} {
			for _, b := range list {
				b.Free()
			}
		}
	}
	return errors.Join(w.a.Close(), w.b.Close(), w.ends[0].port.Close(), w.ends[1].port.Close())
}

// counters is what happened on the way from the first interface and from the second.
func (w *wire) counters() (there, back memlink.Counters) { return w.a.Counters(), w.b.Counters() }

func (w *wire) run() {
	rx := make([]*pmd.Buf, batch)
	fds := []unix.PollFd{
		{Fd: int32(w.ends[0].nic.WakeFD()), Events: unix.POLLIN},
		{Fd: int32(w.ends[1].nic.WakeFD()), Events: unix.POLLIN},
	}
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		busy := false
		for i, e := range w.ends {
			busy = w.step(e, w.ends[1-i], rx) || busy
		}
		if !busy { // delayed frames are due within a millisecond or so
			unix.Poll(fds, 1) //nolint:errcheck // interrupted or timed out: look again
		}
	}
}

// step moves frames from an interface into the link, and from the link to the interface. It reports whether there were any.
func (w *wire) step(e, other *wireEnd, rx []*pmd.Buf) bool {
	ntx, n := e.nic.Poll(e.out, rx)
	e.out = append(e.out[:0], e.out[ntx:]...)
	for _, b := range rx[:n] {
		to := &e.in
		if w.cleanARP && len(b.Bytes()) >= 14 && binary.BigEndian.Uint16(b.Bytes()[12:]) == stackwire.EtherTypeARP {
			to = &other.out
		}
		c := e.link.Pool().Get()
		switch {
		case c == nil: // the link is full, as a switch can be
		case !c.Append(b.Bytes()):
			c.Free()
		default:
			if b.Flags&pmd.RxPartial != 0 {
				complete(c.Bytes())
			}
			*to = append(*to, c)
		}
		b.Free()
	}
	busy := n > 0 || ntx > 0
	ntx, n = e.link.Poll(e.in, rx[:min(batch, max(0, 4*batch-len(e.out)))])
	e.in = append(e.in[:0], e.in[ntx:]...)
	e.out = append(e.out, rx[:n]...)
	return busy || n > 0 || ntx > 0
}

// complete computes the TCP checksum that a sender on this machine left to hardware.
func complete(frame []byte) {
	var p stackwire.Packet
	if stackwire.Parse(frame, &p, true) != stackwire.DropNone || p.Proto != stackwire.ProtoTCP || len(p.Payload) < stackwire.TCPLen {
		return
	}
	tcp := p.Payload
	binary.BigEndian.PutUint16(tcp[stackwire.TCPChecksum:], 0)
	sum := stackwire.Sum(tcp, stackwire.PseudoSum(p.Src, p.Dst, stackwire.ProtoTCP, len(tcp)))
	binary.BigEndian.PutUint16(tcp[stackwire.TCPChecksum:], stackwire.Fold(sum))
}

// Links that are not clean.
var (
	lossy = &memlink.Path{Delay: time.Millisecond, Loss: memlink.Loss{Random: memlink.Percent}}
	awful = &memlink.Path{
		Delay: time.Millisecond, Jitter: 300 * time.Microsecond, Loss: memlink.Loss{Random: 5 * memlink.Percent},
		Duplicate: 2 * memlink.Percent, Reorder: 3 * memlink.Percent, ReorderDelay: 2 * time.Millisecond,
	}
	corrupting = &memlink.Path{Delay: time.Millisecond, Corrupt: 2 * memlink.Percent, CorruptBits: 15}
)
