package vagrant

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

var (
	box  = flag.String("box", "", "test the machines with this box, inside test/vagrant/world")
	keep = flag.String("out", "", "absolute path of a directory for the demonstration's results (default: a temporary one)")
)

// dir is where the Vagrantfile is.
const dir = "../../vagrant"

// machines is Vagrant with the local box.
type machines struct{ t *testing.T }

// run runs a command in the Vagrantfile's directory, shows what it prints, and returns its standard output.
func (m machines) run(name string, args ...string) string {
	m.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stdout), os.Stderr
	fmt.Printf("$ %s %s\n", name, strings.Join(args, " "))
	if err := cmd.Run(); err != nil {
		m.t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out.String()
}

// on runs a command on a machine.
func (m machines) on(machine, command string) string {
	m.t.Helper()
	return m.run("vagrant", "ssh", machine, "-c", command)
}

// TestMachines: what vagrant/README.md promises. It brings both machines up, runs the demonstration, looks at what fastpath does when it is
// stopped and started, provisions again, and destroys the machines.
func TestMachines(t *testing.T) {
	if *box == "" {
		t.Skip("takes minutes: make vagrant-test runs it")
	}
	if os.Getenv("FASTPATH_WORLD") == "" {
		t.Fatal("runs inside test/vagrant/world only, where nobody else's machines are")
	}
	m := machines{t}
	t.Setenv("VM_BOX", "local/fastpath")
	t.Setenv("VAGRANT_DOTFILE_PATH", filepath.Join(t.TempDir(), "vagrant")) // a user's own machines are not known here
	m.run("vagrant", "box", "add", "--no-tty", "--force", "--provider", "libvirt", "--name", "local/fastpath", *box)
	defer m.destroyed()
	m.run("vagrant", "up", "--no-tty", "--provider=libvirt")
	t.Run("demo", m.demo)
	t.Run("clean path", m.clean)
	t.Run("iperf3", m.iperf3)
	t.Run("service", m.service)
	t.Run("again", m.again)
}

// demo runs vagrant/demo and judges what it left.
func (m machines) demo(t *testing.T) {
	m.t = t
	out := *keep
	if out == "" {
		out = t.TempDir()
	}
	const size = 6 << 20
	t.Setenv("DEMO_MIB", strconv.Itoa(size>>20))
	m.run("./demo", out)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	sum := apps.ContentSHA256(1, size)
	if got := read("download.txt"); !strings.Contains(got, sum) || !strings.Contains(got, strconv.Itoa(size)+" bytes") {
		t.Errorf("the client got %q, want %d bytes with SHA-256 %s", got, size, sum)
	}
	if got := read("upload.txt"); !strings.Contains(got, sum) {
		t.Errorf("fastpath got %q, want SHA-256 %s", got, sum)
	}
	swap := read("swap.txt")
	before, after, found := strings.Cut(swap, "cong: bbr → cdg for all flows, 1 flows")
	if !found || !strings.Contains(before, " bbr ") || !strings.Contains(after, " cdg ") {
		t.Errorf("the connection did not go from bbr to cdg:\n%s", swap)
	}
	if rtt := field(t, before, `minrtt:([0-9.]+)`); rtt < 50 || rtt > 150 {
		t.Errorf("the shortest round-trip time is %v ms, want 50 and little more", rtt)
	}
	if lost := field(t, after, `retrans:\d+/(\d+)`) / field(t, after, `data_segs_out:(\d+)`); lost < 0.003 || lost > 0.1 {
		t.Errorf("%.2f %% of the segments were sent again, want about 1 %%", lost*100)
	}
	plot := read("flow.svg")
	if err := xml.Unmarshal([]byte(plot), new(struct{})); err != nil {
		t.Errorf("flow.svg: %v", err)
	}
	for _, want := range []string{"bbr → cdg", "delivery rate", "srtt", ":80"} {
		if !strings.Contains(plot, want) {
			t.Errorf("flow.svg has no %q", want)
		}
	}
}

// field is the number that the first group of a pattern matches.
func field(t *testing.T, text, pattern string) float64 {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("no %s in:\n%s", pattern, text)
	}
	v, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// clean downloads over the other network card, which has no netem, and pings both.
func (m machines) clean(t *testing.T) {
	m.t = t
	const size = 2 << 20
	m.on("client", "ping -c 3 -W 5 fastpath-wan && ping -c 3 -W 5 fastpath-lan")
	out := m.on("client", fmt.Sprintf("curl -sS 'http://fastpath-lan/blob?size=%d&seed=7' | sha256sum", size))
	if want := apps.ContentSHA256(7, size); !strings.Contains(out, want) {
		t.Errorf("got %q, want %s", out, want)
	}
	// netem in both directions at once, and none afterwards.
	out = m.on("client", "sudo netem wan down 'delay 30ms' up 'delay 20ms' && ping -c 3 -W 5 fastpath-wan && sudo netem wan off && sudo netem wan show")
	if rtt := field(t, out, `min/avg/max/mdev = ([0-9.]+)`); rtt < 50 {
		t.Errorf("with 30 ms and 20 ms a ping takes %v ms", rtt)
	}
	if strings.Count(out[strings.LastIndex(out, "down:"):], "clean") != 2 {
		t.Errorf("netem is still there:\n%s", out)
	}
}

// iperf3 sends both ways through the daemon's proxy.
func (m machines) iperf3(t *testing.T) {
	m.t = t
	for _, flag := range []string{"", "-R"} {
		out := m.on("client", "iperf3 -c fastpath-lan -t 5 --json "+flag+" | tr -d '\\n\\t'")
		var r struct {
			End struct {
				Received struct {
					Bytes float64 `json:"bytes"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if r.End.Received.Bytes < 1e5 {
			t.Errorf("iperf3 %s moved %v bytes in 5 s", flag, r.End.Received.Bytes)
		}
	}
}

// service stops and starts the unit, and looks at cards, hugepages and what is left.
func (m machines) service(t *testing.T) {
	m.t = t
	const lib = "/usr/local/lib/fastpath"
	nics := m.on("fastpath", lib+"/nic.sh status")
	if strings.Count(nics, "uio_pci_generic")+strings.Count(nics, "vfio-pci") != 2 || strings.Count(nics, "02:fa:57:00:0") != 2 {
		t.Errorf("with the service running, want two cards with a driver of DPDK:\n%s", nics)
	}
	var info control.Info
	if err := json.Unmarshal([]byte(m.on("fastpath", "sudo fastpath ctl info --json")), &info); err != nil {
		t.Fatal(err)
	}
	if len(info.Ports) != 2 || info.Ports[0].MAC != "02:fa:57:00:01:10" || info.Ports[1].MAC != "02:fa:57:00:02:10" || !info.Ports[0].LinkUp || !info.Ports[1].LinkUp {
		t.Errorf("ports: %+v", info.Ports)
	}
	// A connection under way when the service stops ends in order: it drains.
	m.on("fastpath", "systemctl show -p Type,ActiveState,StatusText fastpath; sudo systemctl stop fastpath; systemctl is-failed fastpath || true")
	nics = m.on("fastpath", lib+"/nic.sh status; "+lib+"/hugepages.sh status; ls /run/fastpath /run/fastpath-host/nic 2>&1 || true")
	if strings.Count(nics, "virtio-pci") != 3 || !strings.Contains(nics, "2048kB: 0 free of 0") {
		t.Errorf("with the service stopped, want three cards with the kernel's driver and no hugepages:\n%s", nics)
	}
	check := m.on("fastpath", lib+"/check.sh 02:fa:57:00:01:10 || true")
	for _, want := range []string{"MISSING  hugepages", "is bound to the kernel's driver virtio-pci", "no RSS"} {
		if !strings.Contains(check, want) {
			t.Errorf("check.sh does not say %q:\n%s", want, check)
		}
	}
	// The card of Vagrant's own network has the default route; without --force it stays the kernel's.
	out := m.on("fastpath", `sudo ip route replace default dev eth0; sudo `+lib+`/nic.sh bind "$(cat /sys/class/net/eth0/address)" 2>&1 || true; sudo ip route del default dev eth0; ip -br link show eth0`)
	if !strings.Contains(out, "--force") || !strings.Contains(out, "UP") {
		t.Errorf("the card with the default route:\n%s", out)
	}
	m.on("fastpath", "sudo systemctl start fastpath && sudo systemctl restart fastpath && systemctl is-active fastpath")
	m.on("client", "curl -sS --retry 5 --retry-connrefused -o /dev/null 'http://fastpath-wan/blob?size=1MiB'")
}

// again provisions a second time, which changes nothing.
func (m machines) again(t *testing.T) {
	m.t = t
	m.run("vagrant", "provision", "--no-tty")
	m.on("client", "curl -sS --retry 5 --retry-connrefused -o /dev/null 'http://fastpath-wan/blob?size=1MiB'")
}

// destroyed ends the machines, also when something failed; before that it shows what the service says.
func (m machines) destroyed() {
	if m.t.Failed() {
		cmd := exec.Command("vagrant", "ssh", "fastpath", "-c", "sudo journalctl --no-pager -n 60 -u fastpath; dmesg | tail -n 20")
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		m.t.Logf("machine fastpath:\n%s", out)
	}
	m.run("vagrant", "destroy", "--no-tty", "-f")
	out, err := exec.Command("virsh", "list", "--all", "--name").Output()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		m.t.Errorf("machines are left: %q, %v", out, err)
	}
}
