package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	namePrefix  = "fastpath-"
	aliasPrefix = "fastpath test interface of process "
)

// ours matches the names of New.
var ours = regexp.MustCompile(`^fastpath-[A-Za-z0-9]+-([0-9]+)-[0-9]+$`)

// RemoveStale removes the namespaces and host interfaces of this package whose process no longer exists.
func RemoveStale() error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if m := ours.FindStringSubmatch(e.Name()); m != nil && dead(m[1]) {
			if err := remove(filepath.Join(dir, e.Name())); err != nil {
				errs = append(errs, fmt.Errorf("netns: remove %s, left behind by process %s: %w", e.Name(), m[1], err))
			}
		}
	}
	return errors.Join(append(errs, removeStaleLinks())...)
}

func removeStaleLinks() error {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("netns: list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		pid, ok := strings.CutPrefix(l.Attrs().Alias, aliasPrefix)
		if !ok || !dead(pid) {
			continue
		}
		if err := deleteLink(l); err != nil {
			errs = append(errs, fmt.Errorf("netns: remove interface %s, left behind by process %s: %w", l.Attrs().Name, pid, err))
		}
	}
	return errors.Join(errs...)
}

// deleteLink deletes an interface that may be vanishing just now, because its namespace or its peer does.
func deleteLink(l netlink.Link) error {
	err := netlink.LinkDel(l)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// dead reports whether no process has that id. A process that may not be signalled is alive.
func dead(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && errors.Is(unix.Kill(n, 0), unix.ESRCH)
}
