package vm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/test/netns"
)

// Addresses and names of every machine.
const (
	serverIP  = "10.7.0.1"
	clientIP  = "10.7.0.2"
	clientIf  = "client0"
	nicAddr   = "0000:00:03.0" // the first card
	serverMAC = "02:00:00:07:00:01"
)

// hardware is what a machine is made of.
type hardware struct {
	cpu   string   // QEMU's name; default: max
	cpus  int      // default 1
	nic   string   // further properties of the card, after a comma
	pairs int      // queue pairs of the card; 0: no card
	iommu bool     // an emulated one, between card and memory
	tools []string // further programs for /bin
	more  []string // further arguments of QEMU's
	peer  bool     // the guest's kernel is the peer of a stack in this process, which takes the client's interface and address
}

// machine is a running guest with a card that is joined to the client's namespace.
type machine struct {
	*testing.T
	hardware
	client  *netns.NS
	dir     string
	serial  string // file of what the guest says on its first serial port
	cmd     *exec.Cmd
	done    chan struct{}
	err     error
	console net.Conn // the second one
	lines   *bufio.Reader
}

// patience is how long anything may take: an emulated processor that shares its own with others is slow.
const patience = 90 * time.Second

// boot starts a machine. The test's end kills it, if it still runs then, and keeps what it said if the test failed.
func boot(t *testing.T, h hardware) *machine {
	t.Helper()
	m := &machine{T: t, hardware: h, dir: t.TempDir(), done: make(chan struct{})}
	kernel, makeDisk := plainKernel, ramDisk
	if h.peer {
		kernel, makeDisk = peerKernel, peerDisk
	}
	disk, err := makeDisk()
	if err == nil && len(h.tools) > 0 {
		disk, err = withTools(disk, filepath.Join(m.dir, "ramdisk"), h.tools)
	}
	m.must(err)
	began := time.Now()
	m.client, err = netns.New("client")
	m.must(err)
	m.Cleanup(func() {
		if err := m.client.Close(); err != nil {
			m.Error(err)
		}
	})
	m.serial = filepath.Join(m.dir, "serial.log")
	args := m.arguments(kernel, disk)
	if h.pairs > 0 {
		args = append(args, m.card()...)
	}
	m.cmd = exec.Command("nice", append([]string{"-n", "5", "qemu-system-x86_64"}, append(args, h.more...)...)...)
	var said bytes.Buffer
	m.cmd.Stdout, m.cmd.Stderr = &said, &said
	m.must(m.client.Start(m.cmd))
	go func() {
		m.err = m.cmd.Wait()
		close(m.done)
	}()
	m.Cleanup(func() {
		if !m.ended() {
			_ = m.cmd.Process.Kill()
			<-m.done
		}
		m.keep(said.String())
		m.Logf("the machine ran for %.1f s of this machine's processors", (m.cmd.ProcessState.UserTime() + m.cmd.ProcessState.SystemTime()).Seconds())
	})
	m.connect()
	m.Logf("the guest takes commands after %.1f s", time.Since(began).Seconds())
	return m
}

func (m *machine) arguments(image, disk string) []string {
	// Whether the timer works is not looked at: a machine that gets no time for some ticks would be taken for broken.
	kind, kernel := "q35", "console=ttyS0 net.ifnames=0 quiet mitigations=off panic=-1 no_timer_check"
	var iommu []string
	if m.iommu { // remapping of interrupts needs the split interrupt controller
		kind, kernel = "q35,kernel-irqchip=split", kernel+" intel_iommu=on iommu=pt"
		iommu = []string{"-device", "intel-iommu,intremap=on,caching-mode=on"}
	}
	cpu := m.cpu
	if cpu == "" {
		cpu = "max"
	}
	return append([]string{"-machine", kind, "-accel", "tcg,thread=multi", "-cpu", cpu, "-smp", strconv.Itoa(max(m.cpus, 1)), "-m", "768M",
		"-nodefaults", "-no-reboot", "-display", "none", "-kernel", filepath.Join(kernelDir(image), "vmlinuz"), "-initrd", disk, "-append", kernel,
		"-serial", "file:" + m.serial, "-serial", "unix:" + m.consolePath() + ",server=on,wait=off"}, iommu...)
}

func (m *machine) consolePath() string { return filepath.Join(m.dir, "console") }

// card makes the client's interface and says what joins the card to it.
func (m *machine) card() []string {
	m.Helper()
	m.must(m.client.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
	for _, args := range [][]string{
		{"tuntap", "add", "dev", clientIf, "mode", "tap", "vnet_hdr"},
		{"addr", "add", clientIP + "/24", "dev", clientIf},
		{"link", "set", "dev", clientIf, "up"},
	} {
		if m.pairs > 1 && args[0] == "tuntap" {
			args = append(args, "multi_queue")
		}
		if m.peer && args[0] == "addr" { // else this kernel would answer, too
			continue
		}
		m.must(m.client.Run("ip", args...))
	}
	netdev, device := "tap,id=net0,script=no,downscript=no,ifname="+clientIf, "virtio-net-pci,netdev=net0,addr=3,romfile=,mac="+serverMAC+m.nic
	if m.pairs > 1 {
		netdev += fmt.Sprintf(",queues=%d", m.pairs)
		device += fmt.Sprintf(",mq=on,vectors=%d", 2*m.pairs+2)
	}
	if m.iommu {
		device += ",iommu_platform=on"
	}
	return []string{"-netdev", netdev, "-device", device}
}

// connect waits until the guest takes commands.
func (m *machine) connect() {
	m.Helper()
	m.eventually(func() (err error) {
		m.console, err = net.Dial("unix", m.consolePath())
		return err
	})
	m.Cleanup(func() { m.console.Close() })
	m.lines = bufio.NewReader(m.console)
	if out, status := m.answer(); status != 0 {
		m.Fatalf("the guest says %q", out)
	}
}

// answer reads what a command said, and its exit status.
func (m *machine) answer() (out string, status int) {
	m.Helper()
	m.must(m.console.SetReadDeadline(time.Now().Add(patience)))
	for {
		line, err := m.lines.ReadString('\n')
		if s, ok := strings.CutPrefix(line, "## "); ok && err == nil {
			if strings.TrimSpace(s) == "again" {
				return "", again
			}
			status, err := strconv.Atoi(strings.TrimSpace(s))
			m.must(err)
			return strings.TrimSuffix(out, "\n"), status
		}
		out += line
		if err != nil {
			m.Fatalf("the guest's answer ends with %q: %v", out, err)
		}
	}
}

// try runs a command in the guest.
func (m *machine) try(format string, args ...any) (out string, status int) {
	m.Helper()
	command := fmt.Sprintf(format, args...)
	for status = again; status == again; {
		_, err := fmt.Fprintf(m.console, "%d %s\n", len(command), command)
		m.must(err)
		out, status = m.answer()
	}
	return out, status
}

// again is the status of a command that did not reach the guest whole.
const again = -1

// run is try for commands that must succeed.
func (m *machine) run(format string, args ...any) string {
	m.Helper()
	out, status := m.try(format, args...)
	if status != 0 {
		m.Fatalf("in the guest: %s: exit status %d\n%s", fmt.Sprintf(format, args...), status, out)
	}
	return out
}

// configure writes the daemon's configuration.
func (m *machine) configure(toml string) {
	m.Helper()
	m.run("printf '%%b' '%s' >/tmp/fastpath.toml", strings.ReplaceAll(toml, "\n", `\n`)) // it has neither quotes nor backslashes
}

// halt has the guest turn itself off.
func (m *machine) halt() {
	m.Helper()
	_, err := io.WriteString(m.console, "11 poweroff -f\n")
	m.must(err)
	select {
	case <-m.done:
		m.must(m.err)
	case <-time.After(patience):
		m.Error("the guest does not turn itself off")
	}
}

func (m *machine) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// keep copies what the guest said to a place that outlives the test, if that failed.
func (m *machine) keep(qemu string) {
	if !m.Failed() {
		return
	}
	log, err := os.ReadFile(m.serial)
	if err != nil {
		m.Log(err)
	}
	if qemu != "" {
		m.Logf("QEMU said:\n%s", qemu)
	}
	file := filepath.Join(os.TempDir(), "fastpath-vm-"+strings.ReplaceAll(m.Name(), "/", "-")+".log")
	if err := os.WriteFile(file, log, 0o644); err != nil {
		m.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	m.Logf("the guest said at the end (all of it: %s):\n%s", file, strings.Join(lines[max(0, len(lines)-30):], "\n"))
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// eventually retries f until it succeeds.
func (m *machine) eventually(f func() error) {
	m.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if m.ended() {
			err = errors.Join(err, fmt.Errorf("QEMU has ended: %v", m.err))
		}
		if m.ended() || time.Now().After(end) {
			m.Fatalf("still not after %v: %v", patience, err)
		}
	}
}
