package host

import (
	"os"
	"strings"
	"testing"
)

// A module process may not do what its launcher has given up, and is another user's if it can be.
func TestIsolation(t *testing.T) {
	cfg := testConfig(t, &idleEngine{}, testSpec(t, "probe"))
	cfg.Isolation = Isolation{Launcher: []string{"launch"}}
	want := "inet operation not permitted, unshare operation not permitted, nnp 1, files 256, home \"\""
	uids := []int{0}
	if os.Getuid() == 0 {
		uids = append(uids, 65534)
		if err := os.Chmod(cfg.RunDir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for _, uid := range uids {
		cfg.Isolation.UID, cfg.Isolation.GID = uid, uid
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = m.Start(t.Context())
		user := ""
		if uid != 0 {
			user = "uid 65534, "
		}
		if err == nil || !strings.Contains(err.Error(), user) || !strings.Contains(err.Error(), want) {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// Only a host starts the launcher.
func TestLaunchRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"-parent", "1"}, {"--", "x"}, {"-nonsense"}} {
		if err := Launch(args); err == nil {
			t.Errorf("%q", args)
		}
	}
}
