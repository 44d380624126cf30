package vm

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed guest/init
var guestInit string

// need skips the test, saying why, if virtual machines are not asked for or cannot be had.
func need(t *testing.T) {
	t.Helper()
	if !*vms {
		t.Skip("starts virtual machines: make test-vm")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and TAP devices")
	}
	if exec.Command("pkg-config", "--exists", "libdpdk").Run() != nil {
		t.Skip("needs libdpdk (Debian: libdpdk-dev)")
	}
	for _, tool := range []string{"qemu-system-x86_64", "busybox", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s (test/deps vm): %v", tool, err)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun: modprobe tun")
	}
	needKernel(t, plainKernel)
}

// Kernels of guests, by their directories below the cache.
const (
	plainKernel = ""     // Debian's
	peerKernel  = "peer" // one of Debian's backports, whose TCP is the peer
)

// needKernel skips the test if there is no such kernel.
func needKernel(t *testing.T, kernel string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(kernelDir(kernel), "vmlinuz")); err != nil {
		t.Skipf("needs a kernel for the guest (test/deps vm): %v", err)
	}
}

// kernelDir is where test/deps puts a guest's kernel and modules.
func kernelDir(kernel string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "."
	}
	return filepath.Join(dir, "fastpath-vm", kernel)
}

// The archives of DPDK that a program needs whole, since its drivers register themselves, and those from which it takes what it needs;
// pmd/dpdk/doc.go says more.
const (
	wholeArchives = "bus_pci bus_vdev mempool_ring mempool_stack net_af_packet net_tap net_virtio net_vhost net_null net_ring"
	archives      = "vhost cryptodev dmadev security gso hash rcu timer pci ethdev meter net mbuf mempool stack ring eal telemetry kvargs"
)

// program builds the fully static program.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "fastpath")
	link := "-static -Wl,--whole-archive"
	for a := range strings.FieldsSeq(wholeArchives) {
		link += " -lrte_" + a
	}
	link += " -Wl,--no-whole-archive -Wl,--start-group"
	for a := range strings.FieldsSeq(archives) {
		link += " -lrte_" + a
	}
	link += " -lbsd -lmd -lnuma -lfdt -lm -Wl,--end-group"
	cmd := exec.Command("go", "build", "-o", path, "-tags", "dpdk,netgo,osusergo", "-ldflags", fmt.Sprintf("-s -w -linkmode external -extldflags '%s'", link),
		"../../cmd/fastpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// ramDisk makes the only file system of guests that run the program.
var ramDisk = sync.OnceValues(func() (string, error) {
	bin, err := program()
	if err != nil {
		return "", err
	}
	return makeDisk(plainKernel, bin)
})

// peerDisk makes that of guests whose kernel is the peer.
var peerDisk = sync.OnceValues(func() (string, error) { return makeDisk(peerKernel, "") })

// makeDisk puts busybox, the modules of a kernel and the program, if there is one, into a RAM disk.
func makeDisk(kernel, bin string) (path string, err error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return "", err
	}
	path = filepath.Join(scratch, "ramdisk"+kernel)
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a := &archive{w: bufio.NewWriterSize(f, 1<<20)}
	for _, dir := range []string{"bin", "dev", "etc", "modules", "proc", "run", "sys", "tmp", "var"} {
		a.add(dir, modeDir, 0, nil)
	}
	text := func(name, s string) { a.add(name, modeFile, len(s), strings.NewReader(s)) }
	text("init", guestInit)
	text("etc/passwd", "root::0:0::/:/bin/sh\nuser::1000:1000::/tmp:/bin/sh\n")
	a.add("var/run", modeLink, len("/run"), strings.NewReader("/run"))
	if bin != "" {
		a.file("bin/fastpath", bin)
	}
	a.file("bin/busybox", busybox)
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" {
			a.add("bin/"+name, modeLink, len("busybox"), strings.NewReader("busybox"))
		}
	}
	modules, err := filepath.Glob(filepath.Join(kernelDir(kernel), "*.ko"))
	if err != nil || modules == nil {
		return "", fmt.Errorf("no modules of the kernel in %s: %w", kernelDir(kernel), err)
	}
	for _, m := range modules {
		a.file("modules/"+filepath.Base(m), m)
	}
	return path, a.close()
}

// withTools makes a RAM disk of another one and an archive of programs behind it: the kernel unpacks all that it finds.
func withTools(disk, path string, tools []string) (_ string, err error) {
	from, err := os.Open(disk)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	n, err := io.Copy(to, from)
	if err != nil {
		return "", err
	}
	a := &archive{w: bufio.NewWriterSize(to, 1<<20)}
	a.write(padding(int(n)))
	for _, t := range tools {
		a.file("bin/"+filepath.Base(t), t)
	}
	return path, a.close()
}
