package daemon

import (
	"context"
	"errors"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// Hundreds of connections later, open and closed, a stopped daemon leaves no goroutine behind.
func TestNothingLeft(t *testing.T) {
	d := start(t, pair) // the first one also starts what the process keeps
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	d = start(t, pair)
	for range 200 {
		c, err := d.dialer().Dial("tcp", "10.9.0.1:7")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for range 300 { // more than fit into a worker's queue of frames at once
		d.dial("10.9.0.1:7")
	}
	d.conf.Shutdown.Drain = 0
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if !eventually(20*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, before it were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	}
}

// Stop lets a transfer finish, and takes no new connection meanwhile.
func TestDrain(t *testing.T) {
	d := start(t, withoutProcesses)
	const size = 32 << 20 // at 400 Mbit/s
	stopped := make(chan error, 1)
	n, sum := get(t, d.client(), "http://10.9.0.1/", size/2, func() {
		go func() { stopped <- d.Stop() }()
		d.event(control.EventStop, "draining")
		if !eventually(20*time.Second, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c, err := d.dialer().DialContext(ctx, "tcp", "10.9.0.1:80")
			if err == nil {
				c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}) {
			t.Error("connections are still accepted")
		}
		if r := call[control.SSReply](d, control.OpSS, control.SSRequest{LocalPort: 80}); len(r.Conns) == 0 {
			t.Error("the control socket shows no connection while draining")
		}
	})
	if n != size || sum != apps.ContentSHA256(3, size) {
		t.Errorf("got %d bytes with hash %s", n, sum)
	}
	d.client().CloseIdleConnections()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("does not stop")
	}
}

// What is left after the drain is reset.
func TestDrainResets(t *testing.T) {
	d := start(t, withoutProcesses+"[shutdown]\ndrain = \"200ms\"\n")
	c := d.dial("10.9.0.1:19")                                 // endless
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // it is accepted
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, c)
		failed <- err
	}()
	began := time.Now()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if err := <-failed; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("the client got %v", err)
	}
}
