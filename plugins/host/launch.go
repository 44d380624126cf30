package host

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	plugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// Isolation is what a module process may not do. The process gives up what it does not need before the module's code runs.
type Isolation struct {
	// Launcher are the arguments with which this very program calls Launch. Without them there is no isolation.
	Launcher []string
	UID, GID int // of module processes, if the host is root; 0: the host's own
}

// launcherArgs are what Launch gets.
func (i *Isolation) launcherArgs() []string {
	return []string{"-parent", strconv.Itoa(os.Getpid()), "-uid", strconv.Itoa(i.UID), "-gid", strconv.Itoa(i.GID), "--"}
}

// sockets lets the module's user make go-plugin's socket in dir.
func (i *Isolation) sockets(dir string) *plugin.UnixSocketConfig {
	c := &plugin.UnixSocketConfig{TempDir: dir}
	if i.UID != 0 {
		c.Group = strconv.Itoa(i.GID)
	}
	return c
}

// maxFiles is how many descriptors a module process may have: a few for go-plugin.
const maxFiles = 256

// Launch isolates this process and executes the module's binary, which the host has opened, and checked. args are the host's, then the
// module's own with its name first. It returns only errors.
func Launch(args []string) error {
	f := flag.NewFlagSet("launch", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	parent, uid, gid := f.Int("parent", 0, ""), f.Int("uid", 0, ""), f.Int("gid", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 || *parent == 0 {
		return errors.New("launch: only the daemon starts this")
	}
	runtime.LockOSThread() // what a thread gives up holds for what it executes
	if err := setLimits(); err != nil {
		return fmt.Errorf("limits of a module: %w", err)
	}
	if *uid != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(*gid, *gid, *gid), syscall.Setresuid(*uid, *uid, *uid)); err != nil {
			return fmt.Errorf("user of a module: %w", err)
		}
		// The change of user has cleared the parent-death signal; the parent may have died before it is set again.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return err
		}
	}
	if os.Getppid() != *parent {
		return errors.New("launch: the host is gone")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no-new-privs: %w", err)
	}
	if err := seccomp(); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", link.BinaryFD), f.Args(), os.Environ())
}

// setLimits takes core dumps, and all but a few descriptors.
func setLimits() error {
	return errors.Join(syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{}), syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: maxFiles, Max: maxFiles}))
}
