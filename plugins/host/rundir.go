package host

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const runDirPrefix = "fastpath-modules-"

// makeRunDir makes a directory for this manager's sockets, and removes those of managers that are gone: each holds a lock on
// the file "lock" in its directory as long as it lives, however it ends.
func makeRunDir(base string) (dir string, lock *os.File, err error) {
	if base == "" {
		base = os.TempDir()
	}
	old, _ := filepath.Glob(filepath.Join(base, runDirPrefix+"*"))
	for _, d := range old {
		if f, err := os.OpenFile(filepath.Join(d, "lock"), os.O_RDWR, 0); err == nil {
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				os.RemoveAll(d)
			}
			f.Close()
		}
	}
	if dir, err = os.MkdirTemp(base, runDirPrefix); err != nil {
		return "", nil, err
	}
	// The lock file gets its name when it is locked: nobody finds it unlocked.
	if lock, err = os.OpenFile(filepath.Join(dir, "new"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600); err == nil {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			err = os.Rename(lock.Name(), filepath.Join(dir, "lock"))
		}
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, lock, nil
}
