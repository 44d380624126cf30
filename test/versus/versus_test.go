package versus

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

var full = flag.Bool("full", false, "compare on all paths, for their real time")

const (
	rate     = 20_000_000
	delay    = 20 * time.Millisecond // one way
	bdp      = rate / 8 / 25
	settle   = 3 * time.Second // goodput is measured after that
	duration = 10 * time.Second
)

// result is what a transfer came to.
type result struct {
	goodput float64 // Mbit/s of payload
	again   float64 // per cent of the data segments
}

// receive starts a receiver in the kernel and returns a count of what it has got.
func (p *path) receive(t *testing.T) (addr string, got *atomic.Int64) {
	t.Helper()
	got = new(atomic.Int64)
	var l net.Listener
	err := p.receiver.Do(func() (err error) {
		l, err = net.Listen("tcp", receiverAddr+":0")
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

// transfer writes for the time of a run and measures what arrives.
func transfer(t *testing.T, c net.Conn, got *atomic.Int64, d time.Duration) (mbit float64) {
	t.Helper()
	start := time.Now()
	from := min(settle, d/2)
	if err := c.SetWriteDeadline(start.Add(d)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, endless{})
		done <- err
	}()
	time.Sleep(time.Until(start.Add(from)))
	before, since := got.Load(), time.Now()
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the transfer ended: %v", err)
	}
	return float64(got.Load()-before) * 8 / time.Since(since).Seconds() / 1e6
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return min(len(b), 64<<10), nil }

// dial opens a connection to addr.
type dial func(addr string) (net.Conn, error)

// kernelDial opens connections of the kernel's TCP.
func kernelDial(p *path, cc string) dial {
	return func(addr string) (c net.Conn, err error) {
		err = p.sender.Do(func() (err error) {
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
func byKernel(t *testing.T, there, back memlink.Path, cc string, d time.Duration) (r result) {
	t.Helper()
	p := newPath(t, there, back, true)
	addr, got := p.receive(t)
	c, err := kernelDial(p, cc)(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.goodput = transfer(t, c, got, d)
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if ctl := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	r.again = 100 * float64(info.Total_retrans) / float64(max(info.Data_segs_out, 1))
	return r
}

// fastpathDial opens connections of fastpath, which it starts on the path's near end.
func fastpathDial(t *testing.T, p *path, cc string) (dial, *stack.Stack) {
	t.Helper()
	cfg := stack.Config{Port: p.a, Addrs: []netip.Prefix{netip.MustParsePrefix(senderAddr + "/24")}}
	cfg.Modules[plugins.Cong].Name = cc
	s, err := stack.New(cfg)
	if err != nil {
		t.Fatal(errors.Join(err, p.a.Close()))
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

// byFastpath sends by fastpath.
func byFastpath(t *testing.T, there, back memlink.Path, cc string, d time.Duration) (r result) {
	t.Helper()
	p := newPath(t, there, back, false)
	addr, got := p.receive(t)
	open, s := fastpathDial(t, p, cc)
	c, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.goodput = transfer(t, c, got, d)
	for _, i := range s.Conns() {
		r.again = 100 * float64(i.Counts.Retrans) / float64(max(i.Counts.DataSegsOut, 1))
	}
	return r
}

// kernelHas reports whether the kernel offers a congestion control.
func kernelHas(cc string) bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	return err == nil && strings.Contains(" "+strings.TrimSpace(string(b))+" ", " "+cc+" ")
}

// TestVersusKernel prints a table of goodput and of what was sent again by either. On each path fastpath has at least two thirds of the
// kernel's goodput, and sends at most twice the share again, or 3 % more. It does not judge on a machine that has other work to do: the
// kernel's timers interrupt that, those of a process wait. Without -full a second of each shows that both work.
func TestVersusKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun: modprobe tun")
	}
	paths := []struct {
		name  string
		queue int
		loss  memlink.PPB
	}{{"1 BDP", bdp, 0}, {"0.2 BDP", bdp / 5, 0}, {"10 BDP", 10 * bdp, 0}, {"1 BDP, 0.1 % lost", bdp, memlink.Percent / 10}, {"1 BDP, 1 % lost", bdp, memlink.Percent}}
	d, judge := duration, *full
	if !*full {
		paths, d = paths[:1], time.Second
	} else if g := report.MeasureGaps(time.Second); g.LostShare > 0.1 {
		t.Logf("the machine is busy, %.0f %% of the time lost in gaps: what follows is no verdict", g.LostShare*100)
		judge = false
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "%d Mbit/s, %v, queue\tcong\tMbit/s: kernel\tfastpath\tratio\tsent again: kernel\tfastpath\n", rate/1_000_000, 2*delay)
	for _, cc := range []string{"cubic", "bbr"} {
		if !kernelHas(cc) {
			t.Logf("this kernel has no %s: modprobe tcp_%s", cc, cc)
			continue
		}
		for _, p := range paths {
			there := memlink.Path{Rate: rate, Delay: delay, QueueBytes: p.queue, Loss: memlink.Loss{Random: p.loss}}
			back := memlink.Path{Delay: delay}
			var k, f result
			t.Run(cc+"/"+p.name+"/kernel", func(t *testing.T) { k = byKernel(t, there, back, cc, d) })
			t.Run(cc+"/"+p.name+"/fastpath", func(t *testing.T) { f = byFastpath(t, there, back, cc, d) })
			fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f %%\t%.2f %%\n", p.name, cc, k.goodput, f.goodput, f.goodput/k.goodput, k.again, f.again)
			if k.goodput == 0 || f.goodput == 0 || judge && (f.goodput < k.goodput*2/3 || f.again > 2*k.again && f.again > k.again+3) {
				t.Errorf("%s, %s: kernel %+v, fastpath %+v", p.name, cc, k, f)
			}
		}
	}
	w.Flush()
	t.Logf("\n%s", text.String())
}
