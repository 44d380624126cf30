package vagrant

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a machine for the scripts of vagrant/provision: files that look like sysfs and /proc, a kernel that binds and unbinds drivers when
// it is told to, and commands that answer as the test wants. Nothing of the real machine is touched.
type tree struct {
	t   *testing.T
	dir string
}

// kernel replaces lib.sh's poke, by which scripts tell the kernel something. A driver named in refuses takes no device; drivers make an
// interface of the device's name. The kernel has only as many hugepages as the file "gives" says.
const kernel = `
need_root() { :; }
poke() {
	local addr dev drv
	echo "$1 > ${2#"$SYS"/}" >>"$TREE/log"
	case $2 in
	*/driver_override) [ -n "$1" ] && echo "$1" >"$2" || : >"$2" ;;
	*/unbind)
		dev=$SYS/bus/pci/devices/$1
		rm -rf "$dev/driver" "$dev"/virtio*
		for n in "$SYS"/class/net/*; do [ -e "$n/device" ] || rm -rf "$n"; done ;;
	*/drivers_probe)
		drv=$(value "$SYS/bus/pci/devices/$1/driver_override")
		attach "$1" "${drv:-virtio-pci}" ;;
	*/bind)
		dev=${2%/bind}
		attach "$1" "${dev##*/}" ;;
	*/nr_hugepages)
		local gives had
		gives=$(value "$TREE/gives") had=$(value "$2")
		[ "$1" -le "$gives" ] && gives=$1
		echo "$gives" >"$2"
		echo $(($(value "${2%/*}/free_hugepages") + gives - had)) >"${2%/*}/free_hugepages" ;;
	esac
}
attach() {
	if [ ! -e "$SYS/bus/pci/drivers/$2" ] || grep -qx "$2" "$TREE/refuses" 2>/dev/null; then return 1; fi
	ln -s "../../drivers/$2" "$SYS/bus/pci/devices/$1/driver"
	[ "$2" = virtio-pci ] || return 0
	local name=${1##*:}
	name=eth${name%.*}
	mkdir -p "$SYS/bus/pci/devices/$1/virtio0/net/$name" "$SYS/class/net/$name/queues/rx-0"
	ln -s "$SYS/bus/pci/devices/$1/virtio0" "$SYS/class/net/$name/device"
	echo "02:00:00:00:00:${1:8:2}" >"$SYS/class/net/$name/address"
}
`

// newTree makes a machine with network cards of the kernel's driver virtio-pci, at these PCI addresses.
func newTree(t *testing.T, cards ...string) *tree {
	t.Helper()
	for _, tool := range []string{"bash", "awk", "sed", "find"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: the scripts need it", tool)
		}
	}
	tr := &tree{t, t.TempDir()}
	scripts, err := filepath.Glob(filepath.Join(dir, "provision", "*.sh"))
	if err != nil || len(scripts) < 8 {
		t.Fatalf("scripts: %v, %v", scripts, err)
	}
	for _, s := range scripts {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(s) == "lib.sh" {
			b = append(b, kernel...)
		}
		tr.write("lib/"+filepath.Base(s), string(b))
	}
	for _, d := range []string{"virtio-pci", "uio_pci_generic", "vfio-pci"} {
		tr.mkdir("sys/bus/pci/drivers/" + d)
	}
	tr.mkdir("sys/class/net")
	tr.write("gives", "1000\n")
	tr.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10\n")
	tr.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "4\n")
	tr.write("proc/cpuinfo", "flags\t\t: fpu sse4_2 constant_tsc\n")
	tr.command("modprobe", "exit 0")
	tr.command("ip", "exit 0")
	for _, c := range cards {
		tr.write("sys/bus/pci/devices/"+c+"/class", "0x020000\n")
		tr.write("sys/bus/pci/devices/"+c+"/numa_node", "-1\n")
		if out, err := tr.shell(". $TREE/lib/lib.sh; attach " + c + " virtio-pci"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return tr
}

func (tr *tree) path(name string) string { return filepath.Join(tr.dir, name) }

func (tr *tree) mkdir(name string) {
	tr.t.Helper()
	if err := os.MkdirAll(tr.path(name), 0o755); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) write(name, text string) {
	tr.t.Helper()
	tr.mkdir(filepath.Dir(name))
	if err := os.WriteFile(tr.path(name), []byte(text), 0o755); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) read(name string) string {
	b, _ := os.ReadFile(tr.path(name))
	return strings.TrimSpace(string(b))
}

func (tr *tree) remove(name string) {
	tr.t.Helper()
	if err := os.RemoveAll(tr.path(name)); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) link(target, name string) {
	tr.t.Helper()
	tr.mkdir(filepath.Dir(name))
	if err := os.Symlink(tr.path(target), tr.path(name)); err != nil {
		tr.t.Fatal(err)
	}
}

// command makes a command of the scripts do something else.
func (tr *tree) command(name, text string) { tr.write("bin/"+name, "#!/bin/sh\n"+text+"\n") }

// shell runs shell code in the tree.
func (tr *tree) shell(code string, args ...string) (string, error) {
	cmd := exec.Command("bash", append([]string{"-euc", code, "bash"}, args...)...)
	cmd.Env = append(os.Environ(), "TREE="+tr.dir, "FASTPATH_SYS="+tr.path("sys"), "FASTPATH_PROC="+tr.path("proc"), "FASTPATH_STATE="+tr.path("state"),
		"PATH="+tr.path("bin")+":"+os.Getenv("PATH"), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// script runs a script of vagrant/provision, which must succeed or fail, and returns what it prints.
func (tr *tree) script(ok bool, name string, args ...string) string {
	tr.t.Helper()
	out, err := tr.shell(`s=$1; shift; "$TREE/lib/$s" "$@"`, append([]string{name}, args...)...)
	if (err == nil) != ok {
		tr.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// driver is a card's driver.
func (tr *tree) driver(card string) string {
	l, _ := os.Readlink(tr.path("sys/bus/pci/devices/" + card + "/driver"))
	return filepath.Base(l)
}

// says fails the test unless each of the texts is in out.
func (tr *tree) says(out string, texts ...string) {
	tr.t.Helper()
	for _, s := range texts {
		if !strings.Contains(out, s) {
			tr.t.Errorf("it does not say %q:\n%s", s, out)
		}
	}
}
