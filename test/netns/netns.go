// Package netns makes network namespaces and veth pairs for tests and for the demonstration, and removes exactly what it made.
//
// A namespace is called fastpath-PREFIX-PID-N and is a named one, so that `ip netns exec` finds it. An interface that has to lie in
// the host's namespace is called fpPIDxN (PID in base 36) and carries an alias. New and Veth first remove what processes that no
// longer exist have left behind. All of this needs root.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/pmd/nsenter"
	"golang.org/x/sys/unix"
)

// dir is where iproute2 keeps named namespaces.
const dir = "/run/netns"

// NS is a network namespace.
type NS struct {
	name string // empty for the host's
	path string

	mu     sync.Mutex
	closed bool
}

// host is the namespace of the calling process.
var host = &NS{}

// Host is the network namespace of this process. Closing it does nothing.
func Host() *NS { return host }

// counter numbers the names of this process.
var counter atomic.Uint32

// New makes a namespace with its loopback interface up. The prefix is for people who read names; it may hold letters and digits.
func New(prefix string) (*NS, error) {
	if prefix == "" || strings.ContainsFunc(prefix, notNameRune) {
		return nil, fmt.Errorf("netns: prefix %q: want letters and digits", prefix)
	}
	if err := RemoveStale(); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s%s-%d-%d", namePrefix, prefix, os.Getpid(), counter.Add(1))
	n := &NS{name: name, path: filepath.Join(dir, name)}
	if err := n.create(); err != nil {
		return nil, fmt.Errorf("netns: make %s (needs root): %w", name, errors.Join(err, remove(n.path)))
	}
	if err := n.Do(func() error { return setUp("lo") }); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func notNameRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
}

// create binds a new namespace to n.path, as `ip netns add` does.
func (n *NS) create() error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := shareDir(); err != nil {
		return err
	}
	f, err := os.OpenFile(n.path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	// From inside its own namespace the thread can leave for a new one, and is brought back. It must not just end: that would
	// leave the process's main thread, which cannot end, in the new namespace, and /proc/PID/ns/net with it.
	return nsenter.Do("/proc/thread-self/ns/net", func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", n.path, "", unix.MS_BIND, "")
	})
}

// shareDir makes dir a shared mount, as iproute2 does, so that a namespace removed here is removed for all.
func shareDir() error {
	err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // EINVAL: not a mount point yet
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, "")
}

// remove unbinds and deletes a namespace's file. The kernel ends the namespace, with its virtual interfaces, when no process and no
// socket is left in it.
func remove(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // was not bound
		err = nil
	}
	if rm := os.Remove(path); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

// Name is the namespace's name for `ip netns exec`. It is empty for the host's.
func (n *NS) Name() string { return n.name }

// Path is the file of the namespace, for drivers that open a port by it. It is empty for the host's.
func (n *NS) Path() string { return n.path }

// Do calls fn on a thread inside the namespace. Sockets that fn opens stay in it; goroutines that fn starts do not run in it.
func (n *NS) Do(fn func() error) error { return nsenter.Do(n.path, fn) }

// Command is a command that runs inside the namespace, through `ip netns exec`, which becomes the command: killing the process kills it.
func (n *NS) Command(name string, args ...string) *exec.Cmd {
	if n.path == "" {
		return exec.Command(name, args...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", n.name, name}, args...)...)
}

// Start starts a prepared command inside the namespace. Unlike Command it needs no iproute2, and the command sees the host's /sys.
func (n *NS) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs a command inside the namespace and returns an error with its output if it fails.
func (n *NS) Run(name string, args ...string) error {
	if out, err := n.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("netns: %s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// Sysctl sets a kernel parameter inside the namespace, such as "net.ipv6.conf.all.disable_ipv6".
func (n *NS) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	err := n.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
	if err != nil {
		return fmt.Errorf("netns: sysctl %s=%s: %w", key, value, err)
	}
	return nil
}

// Close removes the namespace. Processes and sockets that are still in it keep it alive without its name. Further calls do nothing.
func (n *NS) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.path == "" || n.closed {
		return nil
	}
	n.closed = true
	if err := remove(n.path); err != nil {
		return fmt.Errorf("netns: remove %s: %w", n.name, err)
	}
	return nil
}
