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
	// Memory is how many bytes a module process may use, at least MinMemory; 0: no limit. A control group limits what is used, where one
	// can be made. What can be mapped for writing is limited besides, to a little more, since Go's runtime maps more than it uses.
	Memory int64
}

// MinMemory is the least limit of memory with which a module in Go starts and works.
const MinMemory = 32 << 20

// mapMargin is by how much more than the limit may be mapped: Go's runtime maps its heap in steps of 64 MiB, and its own tables.
const mapMargin = 256 << 20

// launcherArgs are what Launch gets.
func (i *Isolation) launcherArgs(g *cgroup) []string {
	args := []string{"-parent", strconv.Itoa(os.Getpid()), "-uid", strconv.Itoa(i.UID), "-gid", strconv.Itoa(i.GID), "-memory", strconv.FormatInt(i.Memory, 10)}
	return append(append(args, g.args()...), "--")
}

// env makes Go's garbage collector work harder before the limit is met.
func (i *Isolation) env() []string {
	if i.Memory == 0 {
		return nil
	}
	return []string{"GOMEMLIMIT=" + strconv.FormatInt(i.Memory/10*8, 10)}
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
	memory := f.Int64("memory", 0, "")
	var groups []string
	f.Func("cgroup", "", func(dir string) error { groups = append(groups, dir); return nil })
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 || *parent == 0 {
		return errors.New("launch: only the daemon starts this")
	}
	runtime.LockOSThread() // what a thread gives up holds for what it executes
	for _, g := range groups {
		if err := joinCgroup(g); err != nil {
			return err
		}
	}
	if err := setLimits(*memory); err != nil {
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
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("capabilities of a module: %w", err)
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

// setLimits takes core dumps, all but a few descriptors, locked memory, and all memory beyond the limit.
func setLimits(memory int64) error {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_MEMLOCK: 0, unix.RLIMIT_MSGQUEUE: 0}
	if memory > 0 && !raceEnabled { // whose detector maps terabytes
		limits[unix.RLIMIT_DATA] = uint64(memory) + mapMargin
	}
	for what, n := range limits {
		if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	return nil
}

// dropCapabilities gives up all capabilities, for good: what root executes gets those of the bounding set.
func dropCapabilities() error {
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL { // there are no more
			break
		}
		if err == nil && has == 1 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
		if err == unix.EPERM { // no root: there is nothing to give up
			break
		}
		if err != nil {
			return err
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&head, &none[0])
}
