package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/daemon"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// The second network, of the program that embeds the stack.
const (
	burnIP     = "10.8.0.1"
	burnClient = "10.8.0.2"
	burnIf     = "burn0"
	burnEnv    = "FASTPATH_E2E_CONFIG"
)

// burnTime is how long a request to the CPU-bound handler computes.
const burnTime = 10 * time.Millisecond

// burnMain is a daemon that embeds a second stack in its process, whose HTTP handlers do nothing but compute. Both stacks' workers are
// adaptive: one goroutine polls both ports, on the processors that the handlers want, too.
func burnMain() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	path := os.Getenv(burnEnv)
	c, err := conf.Load(path)
	if err != nil {
		return err
	}
	port, err := afpacket.Open(afpacket.Config{Interface: burnIf})
	if err != nil {
		return err
	}
	st, err := stack.New(stack.Config{Port: port, Addrs: []netip.Prefix{netip.MustParsePrefix(burnIP + "/24")}})
	if err != nil {
		return errors.Join(err, port.Close())
	}
	l, err := sock.Listen(st, "tcp", ":80")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(burn)}
	go srv.Serve(l) //nolint:errcheck // ends with Close
	err = daemon.Run(ctx, c, daemon.Options{Config: path})
	stats := port.Stats()
	return errors.Join(err, srv.Close(), st.Close(), json.NewEncoder(os.Stdout).Encode(stats))
}

// burn computes.
func burn(w http.ResponseWriter, _ *http.Request) {
	b := make([]byte, 4096)
	for end := time.Now().Add(burnTime); time.Now().Before(end); {
		for range 16 {
			sum := sha256.Sum256(b)
			copy(b, sum[:])
		}
	}
	_, _ = w.Write(b) // the client checks the length
}

// TestBusyHandlers bounds what CPU-bound HTTP handlers cost the worker that shares their processors, and measures how long the control
// socket takes to answer meanwhile.
func TestBusyHandlers(t *testing.T) {
	need(t, "curl")
	w := &world{T: t, link: link{driver: "afpacket", mtu: 1500}, dir: t.TempDir(), client: newNS(t, "client"), server: newNS(t, "server")}
	w.socket = filepath.Join(w.dir, "control.sock")
	w.veth(w.clientEnd(), w.otherEnd())
	w.veth(netns.End{NS: w.client, Name: "client1", Addrs: []netip.Prefix{netip.MustParsePrefix(burnClient + "/24")}}, netns.End{NS: w.server, Name: burnIf})
	file := filepath.Join(w.dir, "fastpath.toml")
	w.must(os.WriteFile(file, []byte(w.config()), 0o644))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=burn", burnEnv+"="+file)
	w.daemon = startProcess(t, w.server, cmd)
	w.Cleanup(w.stop)
	w.eventually(20*time.Second, func() error { return w.call(control.OpStat, nil, &control.StatReply{}) })
	idle := w.controlLatency(time.Second)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // a peer of the daemon's own stack
		for {
			select {
			case <-stop:
				return
			default:
				w.download(512 << 10)
				w.upload(512 << 10)
			}
		}
	})
	traffic := w.controlLatency(2 * time.Second)
	var requests [4]int
	for i := range requests {
		wg.Go(func() { requests[i] = w.burnRequests(stop) })
	}
	busy := w.controlLatency(4 * time.Second)
	s := w.stat()
	close(stop)
	wg.Wait()

	served := 0
	for _, n := range requests {
		served += n
	}
	worker := &s.Workers[0]
	t.Logf("control socket, p50 / p99 / longest: idle %v, with traffic %v (goal: p99 < 2ms), with CPU-bound handlers besides %v", idle, traffic, busy)
	t.Logf("worker: turn p50 %v p99 %v max %v, gap p50 %v p99 %v max %v, longest GC pause %v; %d requests of %v served",
		time.Duration(worker.Turn.P50NS), time.Duration(worker.Turn.P99NS), time.Duration(worker.Turn.MaxNS), time.Duration(worker.Gap.P50NS),
		time.Duration(worker.Gap.P99NS), time.Duration(worker.Gap.MaxNS), time.Duration(s.Go.GCPauseMaxNS), served, burnTime)
	if p := busy.at(99); p > 200*time.Millisecond {
		t.Errorf("the control socket's p99 is %v", p)
	}
	if n := s.Ports[0].RxDropped; n != 0 {
		t.Errorf("the daemon's port lost %d frames for want of room", n)
	}
	if served == 0 {
		t.Error("no request was served")
	}
	w.stop()
	var embedded struct{ RxFrames, RxDropped uint64 }
	w.must(json.Unmarshal([]byte(w.daemon.tail(1)), &embedded))
	if embedded.RxFrames == 0 || embedded.RxDropped != 0 {
		t.Errorf("the embedded stack's port got %d frames and lost %d for want of room", embedded.RxFrames, embedded.RxDropped)
	}
}

// burnRequests sends requests to the CPU-bound handler, one after the other, until stop is closed.
func (w *world) burnRequests(stop <-chan struct{}) (n int) {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dialIn(w.client, burnIP, 80) }}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	for {
		select {
		case <-stop:
			return n
		default:
		}
		r, err := client.Get("http://" + burnIP)
		if err != nil {
			w.Error(err)
			return n
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || len(b) != 4096 {
			w.Errorf("got %d bytes: %v", len(b), err)
			return n
		}
		n++
	}
}

// latencies are sorted.
type latencies []time.Duration

// at returns a percentile.
func (l latencies) at(percent int) time.Duration {
	return l[(len(l)-1)*percent/100].Round(time.Microsecond)
}

// String implements fmt.Stringer.
func (l latencies) String() string { return fmt.Sprintf("%v / %v / %v", l.at(50), l.at(99), l.at(100)) }

// controlLatency asks for the counters again and again for some time, as `ctl stat` does: each time over a new connection.
func (w *world) controlLatency(d time.Duration) (l latencies) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		began := time.Now()
		w.must(w.call(control.OpStat, nil, &control.StatReply{}))
		l = append(l, time.Since(began))
	}
	slices.Sort(l)
	return l
}
