package nsenter

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func own(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// other binds a new namespace to a file.
func other(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	path := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Do("/proc/thread-self/ns/net", func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestDo(t *testing.T) {
	path := other(t)
	home := own(t)
	fail := errors.New("fail")
	var inside string
	if err := Do(path, func() error { inside = own(t); return fail }); err != fail {
		t.Errorf("Do returned %v", err)
	}
	if inside == home || !strings.HasPrefix(inside, "net:") {
		t.Errorf("inside is %q, home is %q", inside, home)
	}
	// Threads that were inside are back: many goroutines see the home namespace only.
	for range 50 {
		if now := make(chan string); true {
			go func() { s, _ := os.Readlink("/proc/thread-self/ns/net"); now <- s }()
			if s := <-now; s != home {
				t.Fatalf("a thread stayed in %s", s)
			}
		}
	}
}

func TestDoGoexit(t *testing.T) {
	path := other(t)
	if err := Do(path, func() error { runtime.Goexit(); return nil }); !errors.Is(err, ErrExited) {
		t.Errorf("Do returned %v", err)
	}
}

func TestDoEmptyPathAndErrors(t *testing.T) {
	var called bool
	if err := Do("", func() error { called = true; return nil }); err != nil || !called {
		t.Errorf("called: %v, error %v", called, err)
	}
	if err := Do(filepath.Join(t.TempDir(), "none"), func() error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing namespace: %v", err)
	}
}
