package versus

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

const settle = 3 * time.Second // goodput is measured after that

// Result is what a transfer came to.
type Result struct {
	Goodput float64 // Mbit/s of payload
	Again   float64 // per cent of the data segments
	Late    float64 // share of the time for which this machine let the test wait
}

// Receive starts a receiver in the kernel and returns a count of what it has got.
func (p *Path) Receive(t testing.TB) (addr string, got *atomic.Int64) {
	t.Helper()
	got = new(atomic.Int64)
	var l net.Listener
	err := p.Receiver.Do(func() (err error) {
		l, err = net.Listen("tcp", ReceiverAddr+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 256<<10)
				for {
					n, err := c.Read(buf)
					got.Add(int64(n))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), got
}

// Transfer has send send for the time of a run, and measures what arrives.
func Transfer(got *atomic.Int64, d time.Duration, send func() error) (r Result, err error) {
	late := watchLateness()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- send() }()
	time.Sleep(time.Until(start.Add(min(settle, d/2))))
	before, since := got.Load(), time.Now()
	time.Sleep(time.Until(start.Add(d)))
	r.Goodput = float64(got.Load()-before) * 8 / time.Since(since).Seconds() / 1e6
	r.Late = late()
	return r, <-done
}

// transfer writes to c for the time of a run.
func transfer(t testing.TB, c net.Conn, got *atomic.Int64, d time.Duration) Result {
	t.Helper()
	r, err := Transfer(got, d, func() error {
		if err := c.SetWriteDeadline(time.Now().Add(d)); err != nil {
			return err
		}
		_, err := io.Copy(c, endless{})
		return err
	})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the transfer ended: %v", err)
	}
	return r
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return min(len(b), 64<<10), nil }

// dial opens a connection to addr.
type dial func(addr string) (net.Conn, error)

// kernelDial opens connections of the kernel's TCP.
func kernelDial(p *Path, cc string) dial {
	return func(addr string) (c net.Conn, err error) {
		err = p.Sender.Do(func() (err error) {
			dialer := net.Dialer{Timeout: 5 * time.Second, Control: func(_, _ string, raw syscall.RawConn) (err error) {
				return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc) }), err)
			}}
			c, err = dialer.DialContext(context.Background(), "tcp4", addr)
			return err
		})
		return c, err
	}
}

// byKernel sends by the kernel's TCP.
func byKernel(t testing.TB, there, back memlink.Path, cc string, d time.Duration) (r Result) {
	t.Helper()
	p := NewPath(t, there, back, Near{Kernel: true})
	addr, got := p.Receive(t)
	c, err := kernelDial(p, cc)(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r = transfer(t, c, got, d)
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if ctl := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	r.Again = 100 * float64(info.Total_retrans) / float64(max(info.Data_segs_out, 1))
	return r
}

// fastpathDial opens connections of fastpath, which it starts on the path's near end.
func fastpathDial(t testing.TB, p *Path, cc string) (dial, *stack.Stack) {
	t.Helper()
	cfg := stack.Config{Port: p.A, Addrs: []netip.Prefix{netip.MustParsePrefix(SenderAddr + "/24")}}
	cfg.Modules[plugins.Cong].Name = cc
	s, err := stack.New(cfg)
	if err != nil {
		t.Fatal(errors.Join(err, p.A.Close()))
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(addr string) (net.Conn, error) {
		return (&sock.Dialer{Stack: s, Timeout: 5 * time.Second}).Dial("tcp4", addr)
	}, s
}

// ByFastpath sends by fastpath, over a path of its own.
func ByFastpath(t testing.TB, there, back memlink.Path, cc string, d time.Duration) (r Result) {
	t.Helper()
	p := NewPath(t, there, back, Near{})
	addr, got := p.Receive(t)
	open, s := fastpathDial(t, p, cc)
	c, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r = transfer(t, c, got, d)
	for _, i := range s.Conns() {
		r.Again = 100 * float64(i.Counts.Retrans) / float64(max(i.Counts.DataSegsOut, 1))
	}
	return r
}

// kernelHas reports whether the kernel offers a congestion control.
func kernelHas(cc string) bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	return err == nil && strings.Contains(" "+strings.TrimSpace(string(b))+" ", " "+cc+" ")
}
