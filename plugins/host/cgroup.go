package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroups makes a control group (cgroups(7)) for each module process, below the manager's own: of version 2, if this process may make
// groups there that limit memory and the number of threads, else of version 1, a directory for each of the two.
type cgroups struct {
	v2   bool
	dirs []string // of the manager: memory, and pids if that is another one
}

const cgroupPrefix = "fastpath-modules-"

// newCgroups makes the manager's own groups. An error says why there are none, and leaves nothing.
func newCgroups() (*cgroups, error) { return newCgroupsAt("/proc/self", os.Getpid()) }

// newCgroupsAt is newCgroups with the files of a process in another directory.
func newCgroupsAt(proc string, pid int) (*cgroups, error) {
	mounts, err := cgroupMounts(filepath.Join(proc, "mountinfo"), filepath.Join(proc, "cgroup"))
	if err != nil {
		return nil, err
	}
	name := cgroupPrefix + strconv.Itoa(pid)
	if own, ok := mounts[""]; ok {
		has, err := os.ReadFile(filepath.Join(own, "cgroup.controllers"))
		if f := strings.Fields(string(has)); err == nil && slices.Contains(f, "memory") && slices.Contains(f, "pids") {
			c := &cgroups{v2: true, dirs: []string{filepath.Join(own, name)}}
			return c, c.begin(own, pid)
		}
	}
	memory, pids := mounts["memory"], mounts["pids"]
	if memory == "" || pids == "" {
		return nil, errors.New("no cgroup hierarchy with memory and pids is mounted")
	}
	c := &cgroups{dirs: []string{filepath.Join(memory, name)}}
	if pids != memory {
		c.dirs = append(c.dirs, filepath.Join(pids, name))
	}
	for _, d := range c.dirs {
		sweepCgroups(filepath.Dir(d))
		if err := os.Mkdir(d, 0o755); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// begin makes the manager's group of version 2. A group that gives its controllers to others must hold no process, so this process goes
// to a group of its own beside them, if it is the only one there: what a service manager that delegates a group expects.
func (c *cgroups) begin(own string, pid int) (err error) {
	sweepCgroups(own)
	leaf := filepath.Join(own, "fastpath-daemon")
	control := filepath.Join(own, "cgroup.subtree_control")
	const both = "+memory +pids"
	if err = write(control, both); errors.Is(err, unix.EBUSY) {
		if err = os.Mkdir(leaf, 0o755); err == nil || errors.Is(err, os.ErrExist) {
			if err = write(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(pid)); err == nil {
				if err = write(control, both); err != nil { // others are there
					_ = write(filepath.Join(own, "cgroup.procs"), strconv.Itoa(pid))
				}
			}
			if err != nil {
				_ = os.Remove(leaf)
			}
		}
	}
	if err != nil {
		return err
	}
	if err = os.Mkdir(c.dirs[0], 0o755); err == nil {
		if err = write(filepath.Join(c.dirs[0], "cgroup.subtree_control"), both); err != nil {
			c.close()
		}
	}
	return err
}

// sweepCgroups removes what managers that are gone have left.
func sweepCgroups(parent string) {
	old, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
	for _, d := range old {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(d), cgroupPrefix))
		if err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		groups, _ := filepath.Glob(filepath.Join(d, "*", "cgroup.procs"))
		for _, g := range groups {
			_ = unix.Rmdir(filepath.Dir(g))
		}
		_ = unix.Rmdir(d)
	}
}

// close removes the manager's groups; those of modules are gone.
func (c *cgroups) close() {
	if c == nil {
		return
	}
	for _, d := range c.dirs {
		_ = unix.Rmdir(d)
	}
}

// cgroup is the group of one process.
type cgroup struct {
	v2   bool
	dirs []string
}

// maxThreads is how many threads a module process may have: Go's runtime needs a few more than processors.
const maxThreads = 256

// group makes a group in which at most so many bytes of memory can be used.
func (c *cgroups) group(name string, memory int64) (_ *cgroup, err error) {
	if c == nil {
		return nil, nil
	}
	g := &cgroup{v2: c.v2}
	for _, d := range c.dirs {
		d = filepath.Join(d, name)
		if err = os.Mkdir(d, 0o755); err != nil {
			break
		}
		g.dirs = append(g.dirs, d)
	}
	first, last := g.at(0), g.at(len(c.dirs)-1)
	if err == nil && c.v2 {
		err = errors.Join(write(filepath.Join(first, "memory.max"), strconv.FormatInt(memory, 10)), write(filepath.Join(first, "pids.max"), strconv.Itoa(maxThreads)))
		_ = write(filepath.Join(first, "memory.swap.max"), "0") // where there is swap
	} else if err == nil {
		err = errors.Join(write(filepath.Join(first, "memory.limit_in_bytes"), strconv.FormatInt(memory, 10)), write(filepath.Join(last, "pids.max"), strconv.Itoa(maxThreads)))
	}
	if err != nil {
		g.remove()
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return g, nil
}

func (g *cgroup) at(i int) string {
	if i >= len(g.dirs) {
		return ""
	}
	return g.dirs[i]
}

// args are what Launch gets: it joins the groups by itself.
func (g *cgroup) args() (args []string) {
	if g == nil {
		return nil
	}
	for _, d := range g.dirs {
		args = append(args, "-cgroup", d)
	}
	return args
}

// outOfMemory reports whether the kernel has killed a process of the group because it was over its limit.
func (g *cgroup) outOfMemory() bool {
	if g == nil {
		return false
	}
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	b, err := os.ReadFile(filepath.Join(g.at(0), file))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// remove removes the group, in which no process lives any more. The kernel may need a moment to know that.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	for _, d := range g.dirs {
		rmdirSoon(d)
	}
}

func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// joinCgroup moves this process to the group of a directory.
func joinCgroup(dir string) error {
	if err := write(filepath.Join(dir, "cgroup.procs"), "0"); err != nil {
		return fmt.Errorf("cgroup of a module: %w", err)
	}
	return nil
}

// cgroupMounts is where this process's groups are mounted, by controller; "" is version 2.
func cgroupMounts(mountinfo, own string) (map[string]string, error) {
	groups, err := os.ReadFile(own)
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	return parseCgroups(string(groups), string(mounts)), nil
}

// parseCgroups reads what the kernel says of a process in its files cgroup and mountinfo.
func parseCgroups(groups, mounts string) map[string]string {
	mine := map[string]string{} // path of this process's group, by controller
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			for _, c := range strings.Split(f[1], ",") {
				mine[c] = f[2]
			}
		}
	}
	at := map[string]string{}
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, fs := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(fs) < 3 {
			continue
		}
		var names []string
		switch fs[0] {
		case "cgroup2":
			names = []string{""}
		case "cgroup":
			names = strings.Split(fs[2], ",")
		}
		for _, c := range names {
			path, ok := mine[c]
			if !ok {
				continue
			}
			rel, err := filepath.Rel(f[3], path)
			if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				continue // it is not below what is mounted here
			}
			at[c] = filepath.Join(f[4], rel)
		}
	}
	return at
}
