package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/conf"
)

// portEndless is a source that never ends.
const portEndless = 20

// peerMain serves the same applications as the daemon, over the kernel's TCP.
func peerMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for _, c := range []conf.App{
		{Kind: conf.AppDiscard, Listen: netip.AddrPortFrom(netip.MustParseAddr(serverIP), portDiscard)},
		{Kind: conf.AppSource, Listen: netip.AddrPortFrom(netip.MustParseAddr(serverIP), portEndless), Seed: seed},
	} {
		a, err := apps.New(c, nil, new(apps.Counts), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		l, err := apps.Kernel{}.Listen(ctx, c.Listen)
		if err != nil {
			return err
		}
		go a.Serve(l) //nolint:errcheck // ends with the process
	}
	fmt.Println("listening")
	<-ctx.Done()
	return nil
}

// kernelWorld is a world in which the kernel's TCP stands for the daemon.
func kernelWorld(t *testing.T) *world {
	w := &world{T: t, link: link{driver: "kernel", mtu: 1500}, client: newNS(t, "client"), server: newNS(t, "server")}
	end := w.otherEnd()
	end.Addrs = []netip.Prefix{netip.MustParsePrefix(serverIP + "/24")}
	w.veth(w.clientEnd(), end)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=peer")
	w.daemon = startProcess(t, w.server, cmd)
	w.eventually(10*time.Second, func() error {
		if !strings.Contains(w.daemon.said(), "listening") {
			return fmt.Errorf("the kernel's peer does not listen: %s", w.daemon.said())
		}
		return nil
	})
	return w
}

// measured is how long each measurement takes; rounds how many there are of each.
const (
	measured = 700 * time.Millisecond
	rounds   = 3
)

// TestSpeed compares the throughput of one connection between fastpath and the kernel with that between two kernels over the same kind
// of veth, in the same run. It reports, and fails only if nothing moves.
func TestSpeed(t *testing.T) {
	need(t)
	directions := []struct {
		name string
		run  func(*world, time.Duration) float64
	}{{"to the client", (*world).pull}, {"from the client", (*world).push}}
	const more = "[[app]]\nkind = \"source\"\nlisten = \"" + serverIP + ":20\"\nseed = 7\n"
	worlds := []*world{kernelWorld(t), newWorld(t, link{driver: "afpacket", more: more})}
	if haveDPDK() {
		worlds = append(worlds, newWorld(t, link{driver: "dpdk", more: more}))
	}
	rates := map[string][]float64{}
	for range rounds {
		for _, w := range worlds {
			for _, d := range directions {
				rates[w.driver+d.name] = append(rates[w.driver+d.name], d.run(w, measured))
			}
		}
	}
	t.Logf("%-10s %16s %6s %16s %6s", "", directions[0].name, "ratio", directions[1].name, "ratio")
	for _, w := range worlds {
		line := fmt.Sprintf("%-10s", w.driver)
		for _, d := range directions {
			r := median(rates[w.driver+d.name])
			if r == 0 {
				t.Errorf("%s: nothing moved %s", w.driver, d.name)
			}
			line += fmt.Sprintf(" %9.2f Gbit/s %6.2f", r/1e9, r/median(rates["kernel"+d.name]))
		}
		t.Log(line)
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// pull reads from the endless source for some time and returns bits per second.
func (w *world) pull(d time.Duration) float64 {
	w.Helper()
	return w.move(portEndless, d, func(c netConn, b []byte) (int, error) { return c.Read(b) })
}

// push writes to the discarding application.
func (w *world) push(d time.Duration) float64 {
	w.Helper()
	return w.move(portDiscard, d, func(c netConn, b []byte) (int, error) { return c.Write(b) })
}

type netConn interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
}

// move moves data after a short start, for d, and returns bits per second.
func (w *world) move(port int, d time.Duration, step func(netConn, []byte) (int, error)) float64 {
	w.Helper()
	c, err := w.dial(port)
	w.must(err)
	defer c.Close()
	w.must(c.SetDeadline(time.Now().Add(limit)))
	w.must(c.SetLinger(0)) // what is on the way counts no more
	b := make([]byte, 256<<10)
	var n int
	began := time.Now()
	for warm := false; ; {
		m, err := step(c, b)
		w.must(err)
		n += m
		switch since := time.Since(began); {
		case !warm && since > 100*time.Millisecond:
			warm, n, began = true, 0, time.Now()
		case warm && since > d:
			return float64(n) * 8 / since.Seconds()
		}
	}
}
