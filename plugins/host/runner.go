package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
	"golang.org/x/sys/unix"
)

// spawn runs f on one permanent thread. The parent-death signal comes when the thread dies that forked, not the process, so
// children start from a thread that lives as long as the process.
func spawn(f func() error) error {
	spawner.once.Do(func() {
		go func() {
			runtime.LockOSThread()
			for job := range spawner.jobs {
				job.done <- job.f()
			}
		}()
	})
	done := make(chan error)
	spawner.jobs <- spawnJob{f, done}
	return <-done
}

type spawnJob struct {
	f    func() error
	done chan<- error
}

var spawner = struct {
	once sync.Once
	jobs chan spawnJob
}{jobs: make(chan spawnJob)}

// child is a module process, as go-plugin's runner.Runner.
type child struct {
	cmd            *exec.Cmd
	path           string
	group          *cgroup  // that it is in, or nil; removed with it
	stdin          *os.File // held open as long as we live; the module exits when it closes
	stdout, stderr *pipe
	said           tailBuffer // the end of its standard error
	mu             sync.Mutex
	pid            int           // 0 until started
	killed         bool          // before it was started
	exited         chan struct{} // closed when the process is gone and reaped
	exit           error         // after exited: how it ended; nil for status 0
}

var _ runner.Runner = (*child)(nil)

// newChild prepares cmd, whose environment is go-plugin's. The process gets the files as descriptors 3, 4, ...
func newChild(path string, args []string, iso *Isolation, group *cgroup, env []string, files []*os.File) (_ *child, err error) {
	c := &child{path: path, group: group, exited: make(chan struct{}), stdout: newPipe(), stderr: newPipe()}
	c.stderr.copy = &c.said
	// Execute what was opened and hashed, whatever path names by now. files ends with the binary.
	cmd := &exec.Cmd{Path: fmt.Sprintf("/proc/self/fd/%d", 2+len(files)), Args: args, Env: env, ExtraFiles: files}
	if iso.Launcher != nil { // which then executes that
		cmd.Path = "/proc/self/exe"
		cmd.Args = slices.Concat(args[:1], iso.Launcher, iso.launcherArgs(group), args)
	}
	// A group of its own: a terminal's ^C is for the daemon, and what a module forks is killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	c.cmd = cmd
	var theirs []*os.File
	defer func() {
		if err != nil {
			for _, f := range theirs {
				f.Close()
			}
			c.closePipes()
		}
	}()
	for _, p := range []struct {
		ours  **os.File
		write bool // we write
	}{{&c.stdin, true}, {&c.stdout.File, false}, {&c.stderr.File, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if p.write {
			*p.ours, theirs = w, append(theirs, r)
		} else {
			*p.ours, theirs = r, append(theirs, w)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return c, nil
}

func (c *child) closePipes() {
	for _, f := range []*os.File{c.stdin, c.stdout.File, c.stderr.File} {
		if f != nil {
			f.Close()
		}
	}
}

// Start starts the process and the goroutine that waits for its end.
func (c *child) Start(context.Context) error {
	err := spawn(c.cmd.Start)
	for _, f := range []any{c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr} {
		f.(*os.File).Close()
	}
	if err != nil {
		c.group.remove()
		c.closePipes()
		close(c.exited)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = c.cmd.Process.Pid
	if c.killed {
		_ = c.cmd.Process.Kill()
	}
	go c.reap(c.pid)
	return nil
}

// PID is the process id; 0 before the start.
func (c *child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

func (c *child) reap(pid int) {
	// Look before reaping: while the zombie holds the pid, its group cannot be anyone else's.
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	c.exit = c.cmd.Wait()
	if c.group.outOfMemory() {
		c.exit = errors.Join(errOutOfMemory, c.exit)
	}
	c.group.remove()
	c.stdin.Close()
	close(c.exited)
	// A grandchild that left the group may hold the pipes open for ever.
	for _, p := range []*pipe{c.stdout, c.stderr} {
		p.drain()
		p.Close()
	}
}

// pipe is the end of a child's output, which go-plugin reads.
type pipe struct {
	*os.File
	copy    io.Writer // also gets what is read
	once    sync.Once
	drained chan struct{} // closed when nothing is left to read
}

func newPipe() *pipe { return &pipe{copy: io.Discard, drained: make(chan struct{})} }

func (p *pipe) Read(b []byte) (n int, err error) {
	n, err = p.File.Read(b)
	_, _ = p.copy.Write(b[:n])
	if err != nil {
		p.once.Do(func() { close(p.drained) })
	}
	return n, err
}

// drain waits until all is read that a child has left in the pipe: not as soon as it has ended, on a busy machine.
func (p *pipe) drain() { within(time.Second, p.drained) }

// Wait waits for the end of the process.
func (c *child) Wait(context.Context) error {
	<-c.exited
	return c.exit
}

// Kill kills the process and waits until it is reaped.
func (c *child) Kill(context.Context) error {
	c.mu.Lock()
	started := c.pid != 0
	c.killed = true
	c.mu.Unlock()
	if !started {
		return nil
	}
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.exited
	return nil
}

var errOutOfMemory = errors.New("it has used more memory than it may")

// ended says how the process ended, for messages.
func (c *child) ended() string {
	if c.exit != nil {
		return strings.ReplaceAll(c.exit.Error(), "\n", ": ")
	}
	return "exit status 0"
}

func (c *child) Stdout() io.ReadCloser { return c.stdout }
func (c *child) Stderr() io.ReadCloser { return c.stderr }
func (c *child) Name() string          { return c.path }
func (c *child) ID() string            { return strconv.Itoa(c.PID()) }

// Diagnose adds nothing: the caller knows how the process ended.
func (c *child) Diagnose(context.Context) string { return "" }

// PluginToHost and HostToPlugin translate nothing: both live in the same file system.
func (c *child) PluginToHost(network, addr string) (string, string, error) { return network, addr, nil }

// HostToPlugin is the other direction.
func (c *child) HostToPlugin(network, addr string) (string, string, error) { return network, addr, nil }
