package daemon

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

// TestNotify: the service manager hears when the daemon serves and when it begins to stop, and no sooner.
func TestNotify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	next := func() string {
		t.Helper()
		b := make([]byte, 512)
		_ = manager.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	c, err := conf.Parse("notify.toml", []byte(pair+"[control]\nsocket = \""+filepath.Join(dir, "s")+"\"\n[shutdown]\ndrain = \"2s\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, Options{}) }()
	if got, want := next(), "READY=1\nSTATUS=serving on 2 ports with 2 workers"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	stop()
	if got, want := next(), "STOPPING=1\nSTATUS=connections may finish for 2s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNotifyNobody: without a service manager nothing is said; one that does not listen is no reason to end.
func TestNotifyNobody(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notifyManager("READY=1"); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := notifyManager("READY=1"); err == nil {
		t.Error("a socket that is not there took a message")
	}
}
