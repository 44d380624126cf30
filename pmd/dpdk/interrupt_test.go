//go:build dpdk

package dpdk

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOpenInterrupted tells Open to stop while the other end of a vhost-user socket is not there, or is there and says nothing.
func TestOpenInterrupted(t *testing.T) {
	_ = open(t, Config{Vdev: "net_null7"}) // EAL is started by a good port
	var backend net.Listener               // what the last case's driver connects to
	for _, c := range []struct {
		name, args string
		await      func(t *testing.T, path string) // until Open waits
	}{
		{"nobody connects", ",server=1", func(t *testing.T, path string) {
			until(t, func() bool { return listening(path) })
		}},
		{"silent client", ",server=1", func(t *testing.T, path string) {
			var c net.Conn
			until(t, func() (ok bool) {
				var err error
				c, err = net.Dial("unix", path)
				return err == nil
			})
			t.Cleanup(func() { c.Close() })
			hear(t, c)
		}},
		{"silent server", "", func(t *testing.T, path string) {
			c, err := backend.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			hear(t, c)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ring")
			if c.args == "" {
				backend = listen(t, path)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				p, err := Open(ctx, config(Config{Vdev: "net_virtio_user0,path=" + path + c.args}))
				if err == nil {
					err = errors.Join(errors.New("it opened"), p.Close())
				}
				done <- err
			}()
			c.await(t, path)
			select {
			case err := <-done:
				t.Fatalf("Open did not wait: %v", err)
			default:
			}
			cancel()
			select {
			case err := <-done:
				var e *Error
				if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || !strings.Contains(err.Error(), "told to stop") || strings.Contains(err.Error(), "\n") {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("Open goes on waiting")
			}
			if _, err := os.Lstat(path); c.args != "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
		})
	}
	virtio(t, Config{}) // what was not opened does not stand in the way
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// listening reports whether /proc/net/unix has a listening socket at path.
func listening(path string) bool {
	b, err := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if err == nil && len(f) == 8 && f[7] == path && f[3] == "00010000" { // SO_ACCEPTCON
			return true
		}
	}
	return false
}

// hear waits for the driver's first message, whose answer it then waits for.
func hear(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 256)); err != nil {
		t.Fatal(err)
	}
}
