package stack_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/filter"
	"github.com/fastpath-tcp/fastpath/stack/tcptest"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// device is the kernel's side of an exception path.
type device struct {
	pool   *pmd.Pool
	got    [][]byte // from the stack
	sends  [][]byte // to it
	closed bool
}

func newDevice(t *testing.T) *device {
	t.Helper()
	p, err := pmd.NewPool("device", 64, pmd.DefaultBufSize)
	if err != nil {
		t.Fatal(err)
	}
	return &device{pool: p}
}

func (d *device) Info() pmd.Info {
	return pmd.Info{Driver: "device", Name: "tap0", MAC: net.HardwareAddr{2, 0, 0, 0, 9, 9}, MTU: 1500, Caps: pmd.AnyPool | pmd.Copies}
}
func (d *device) NumQueues() int      { return 1 }
func (d *device) Queue(int) pmd.Queue { return d }
func (d *device) Stats() pmd.Stats    { return pmd.Stats{} }
func (d *device) LinkUp() bool        { return true }
func (d *device) TxRoom() int         { return 64 }
func (d *device) Pool() *pmd.Pool     { return d.pool }
func (d *device) WakeFD() int         { return -1 }
func (d *device) Close() error {
	d.closed = true
	if err := d.pool.CheckLeaks(); err != nil {
		return err
	}
	return d.pool.Unmap()
}

func (d *device) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	for _, b := range tx {
		d.got = append(d.got, bytes.Clone(b.Bytes()))
		b.Free()
	}
	for nrx < len(rx) && len(d.sends) > 0 {
		b := d.pool.Get()
		b.Append(d.sends[0])
		rx[nrx], d.sends = b, d.sends[1:]
		nrx++
	}
	return len(tx), nrx
}

// take returns what the device got.
func (d *device) take() [][]byte {
	got := d.got
	d.got = nil
	return got
}

func newExcepted(t *testing.T, x stack.Exception, workers int) (*tcptest.Peer, *device, *frames) {
	t.Helper()
	d := newDevice(t)
	x.Port = d
	cfg := tcptest.Config{Link: memlink.Config{Bufs: pool, Ring: 64}}
	cfg.Stack.Exception, cfg.Stack.Workers = &x, make([]stack.WorkerConfig, workers)
	p := tcptest.New(t, cfg)
	d.take() // the peer's ARP request
	t.Cleanup(func() {
		if err := p.Close(); err != nil || !d.closed {
			t.Errorf("closing: %v, the device is closed: %v", err, d.closed)
		}
	})
	peer, his := p.MACs()
	return p, d, &frames{peer, his}
}

// TestException: what is not the stack's goes to the device unchanged, what the device sends leaves, and the stack's own traffic, ARP
// included, is as ever.
func TestException(t *testing.T) {
	for _, workers := range []int{1, 3} {
		p, d, f := newExcepted(t, stack.Exception{}, workers)
		l := p.Listen(10)
		flow := p.Passive(l, 5000, "mss 1460", 10000)
		if got := d.take(); len(got) != 0 {
			t.Fatalf("%d frames of the stack went to the device", len(got))
		}
		for name, frame := range map[string][]byte{
			"another address":      with(f.ip(wire.ProtoTCP, make([]byte, 20)), ipAddr(16, "10.0.0.9")),
			"another protocol":     f.eth(0x88cc, make([]byte, 46)), // LLDP
			"broadcast":            with(f.ip(wire.ProtoUDP, make([]byte, 20)), ipAddr(16, "10.0.0.255")),
			"a fragment":           with(f.ip(wire.ProtoUDP, make([]byte, 24)), func(ip []byte) { ip[6] = 0x20; ipAddr(16, "10.0.0.9")(ip) }),
			"another link address": func() []byte { b := f.ip(wire.ProtoUDP, make([]byte, 20)); b[5] ^= 1; return b }(),
		} {
			if name == "broadcast" {
				copy(frame, wire.Broadcast[:])
				frame[wire.EthLen+9] = 99 // UDP may be the stack's
				with(frame, func([]byte) {})
			}
			p.SendFrame(bytes.Clone(frame))
			if got := d.take(); len(got) != 1 || !bytes.Equal(got[0], frame) {
				t.Errorf("%s: the device got %d frames", name, len(got))
			}
		}
		// ARP goes to both: the stack answers for its address, the device for others.
		p.SendFrame(f.arp(func(*wire.ARP) {}))
		if got := d.take(); len(got) != 1 {
			t.Errorf("the device got %d copies of an ARP request", len(got))
		}
		// What the kernel sends leaves.
		out := f.eth(0x88cc, bytes.Repeat([]byte{7}, 100))
		d.sends = append(d.sends, bytes.Clone(out), make([]byte, 1515))
		p.Idle(time.Millisecond)
		if got := p.Take(); len(got) != 1 || !bytes.Equal(got[0].Data, out) {
			t.Errorf("%d frames of the device left", len(got))
		}
		// Refused at the stack's own address stays refused.
		p.SendFrame(f.tcp(func(s []byte) []byte { s[3] = 81; return s }))
		if got := p.Take(); len(got) != 1 || len(d.take()) != 0 {
			t.Errorf("a segment to a closed port: %d answers", len(got))
		}
		stillWorks(t, p, l, flow)
		if s, ok := p.Stack.ExceptionStats(); !ok || s.ToKernel != 7 || s.FromKernel != 1 || s.Errors != 1 || s.Limited != 0 {
			t.Errorf("counted %+v", s)
		}
	}
}

// TestExceptionUnclaimed: what nobody in the stack wants is the device's, and the stack says nothing about it.
func TestExceptionUnclaimed(t *testing.T) {
	p, d, f := newExcepted(t, stack.Exception{Unclaimed: true}, 1)
	l := p.Listen(10)
	flow := p.Passive(l, 5000, "mss 1460", 10000)
	udp := make([]byte, 8)
	udp[3], udp[5] = 53, 8
	for name, frame := range map[string][]byte{
		"a closed port": f.tcp(func(s []byte) []byte { s[3] = 81; return s }), "no socket": f.ip(wire.ProtoUDP, udp), "GRE": f.ip(47, make([]byte, 8)),
	} {
		p.SendFrame(bytes.Clone(frame))
		if got := d.take(); len(got) != 1 || !bytes.Equal(got[0], frame) {
			t.Errorf("%s: the device got %d frames", name, len(got))
		}
		if got := p.Take(); len(got) != 0 {
			t.Errorf("%s: the stack answered", name)
		}
	}
	stillWorks(t, p, l, flow)
	if got := d.take(); len(got) != 0 {
		t.Errorf("%d frames of the stack went to the device", len(got))
	}
}

// TestExceptionRate: a flood for the kernel is cut to the rate in both directions, and holds no buffers.
func TestExceptionRate(t *testing.T) {
	p, d, f := newExcepted(t, stack.Exception{Rate: 100}, 1)
	l := p.Listen(10)
	flow := p.Passive(l, 5000, "mss 1460", 10000)
	frame := f.eth(0x88cc, make([]byte, 46))
	p.Idle(time.Second)
	for range 1000 { // 100 ms
		p.SendFrame(bytes.Clone(frame))
		d.sends = append(d.sends, bytes.Clone(frame))
		p.Idle(100 * time.Microsecond)
	}
	up, down := len(d.take()), len(p.Take())
	if up < 18 || up > 22 || down < 18 || down > 22 { // a tenth of a second at once, and one that passed
		t.Errorf("%d frames to the device, %d from it", up, down)
	}
	if s, _ := p.Stack.ExceptionStats(); s.Limited != uint64(1000-up) {
		t.Errorf("counted %+v", s)
	}
	d.sends = nil
	stillWorks(t, p, l, flow)
}

// TestExceptionFilter: the packet filter is for what the stack owns.
func TestExceptionFilter(t *testing.T) {
	p, d, f := newExcepted(t, stack.Exception{}, 1)
	p.Stack.SetFilter(compile(t, filter.Reject))
	p.SendFrame(with(f.ip(wire.ProtoUDP, make([]byte, 20)), ipAddr(16, "10.0.0.9")))
	if got := d.take(); len(got) != 1 {
		t.Errorf("the device got %d frames", len(got))
	}
	p.SendFrame(f.icmp(wire.ICMPEcho, 0, []byte{0, 1, 0, 1}))
	if got := d.take(); len(got) != 0 {
		t.Errorf("the device got %d frames", len(got))
	}
	p.Take()
}
