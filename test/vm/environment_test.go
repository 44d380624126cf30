package vm

import (
	"fmt"
	"strings"
	"testing"
)

// refusal is what the program says where it lacks something.
type refusal struct {
	name  string
	setup string // commands in the guest, before
	toml  string
	flags string
	user  bool // run by somebody else than root
	want  []string
}

// refused wants the program to end with one line that says what it lacks, and to change nothing.
func (m *machine) refused(r refusal) {
	m.Helper()
	if r.setup != "" {
		m.run("%s", r.setup)
	}
	if r.toml != "" {
		m.configure(r.toml)
	}
	state := func() string {
		m.Helper()
		return m.run("readlink /sys/bus/pci/devices/%s/driver; ls /sys/class/net /dev/hugepages /var/run/dpdk /run/fastpath; cat /proc/sys/vm/nr_hugepages /sys/kernel/mm/hugepages/*/free_hugepages; true",
			nicAddr)
	}
	before := state()
	command := "fastpath run " + r.flags + " -c /tmp/fastpath.toml"
	if r.user {
		command = "su -c '" + command + "' user"
	}
	out, status := m.try("timeout 60 %s", command)
	var said []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "time=") { // else it is the log
			said = append(said, strings.TrimSpace(line))
		}
	}
	if status != 1 || len(said) != 1 {
		m.Errorf("%s: exit status %d, and %d lines:\n%s", r.name, status, len(said), out)
		return
	}
	for _, w := range append(r.want, "fastpath: ") {
		if !strings.Contains(said[0], w) {
			m.Errorf("%s: it does not say %q:\n%s", r.name, w, said[0])
		}
	}
	if after := state(); after != before {
		m.Errorf("%s: before\n%s\nand after\n%s", r.name, before, after)
	}
	m.Logf("%s: %s", r.name, said[0])
}

// virtual is a configuration with a virtual device.
func virtual(vdev string) string {
	return strings.Replace(config("", 1, "[control]\nsocket = \"/tmp/control.sock\"\n"), `device = ""`, fmt.Sprintf("vdev = %q", vdev), 1)
}

// TestEnvironment takes away what the program needs, one thing at a time, and then serves.
func TestEnvironment(t *testing.T) {
	need(t)
	m := boot(t, hardware{pairs: 1, nic: ",disable-legacy=on"})
	card := config(nicAddr, 1, "[control]\nsocket = \"/tmp/control.sock\"\n")
	tools := strings.NewReplacer(`hugepages = "require"`, `hugepages = "auto"`)
	const route = `default route goes through "eth0"`
	for _, r := range []refusal{
		{name: "default route", toml: card, want: []string{"/tmp/fastpath.toml:5: port[0].device", route, "fastpath run --force"},
			setup: huge + " && " + kernelCard + " && ifconfig eth0 " + serverIP + " && route add default gw " + clientIP},
		{name: "default route, packet socket", toml: strings.NewReplacer(`driver = "dpdk"`, `driver = "afpacket"`, "device = \""+nicAddr+"\"", `interface = "eth0"`).Replace(card),
			want: []string{"port[0].interface", route}},
		{name: "default route, virtual device", toml: virtual("net_af_packet0,iface=eth0"), want: []string{"port[0].vdev", route}},
		{name: "the kernel's driver", toml: card, flags: "--force",
			want: []string{`port[0] "p"`, `device = "` + nicAddr + `"`, "driver virtio-pci as interface eth0", "modprobe uio_pci_generic && dpdk-devbind.py --bind=uio_pci_generic " + nicAddr}},
		{name: "no driver", setup: "ping -c 1 " + clientIP + " && bind " + nicAddr + " ''", want: []string{"bound to no driver: modprobe uio_pci_generic"}},
		{name: "no hugepages", setup: uio + " && echo 0 >/proc/sys/vm/nr_hugepages", want: []string{"dpdk.hugepages", "echo 32 > /proc/sys/vm/nr_hugepages"}},
		{name: "no physical addresses", toml: tools.Replace(card), want: []string{"with uio_pci_generic DPDK needs hugepages", "echo 32 > /proc/sys/vm/nr_hugepages"}},
		{name: "few hugepages", setup: "echo 8 >/proc/sys/vm/nr_hugepages", toml: card, want: []string{"16 MB of hugepages are free: echo 32 > /proc/sys/vm/nr_hugepages"}},
		{name: "permission", setup: huge, user: true, want: []string{"no access to /dev/uio0: run fastpath as root"}},
		{name: "packet sockets", user: true, toml: virtual("net_af_packet0,iface=lo"), want: []string{"packet sockets are not allowed", "setcap cap_net_raw,cap_net_admin+ep /bin/fastpath: "}},
		{name: "no TAP devices", toml: virtual("net_tap0,iface=t"), want: []string{"modprobe tun"}},
		{name: "no socket", toml: virtual("net_virtio_user0,path=/tmp/ring"), want: []string{"start the other end first"}},
		{name: "no such card", toml: config("0000:00:1e.7", 1, ""), want: []string{"port[0].device", `no PCI device "0000:00:1e.7": lspci -D`}},
		{name: "queues", toml: config(nicAddr, 4, ""), want: []string{"queues = 4", "the device has 1 queue pairs", "mq=on"}},
	} {
		m.refused(r)
	}
	m.start(config(nicAddr, 1, ""))
	m.ping()
	m.must(get(m.web(true), 3, 1<<20, nil))
	m.healthy()
	m.stop()
	m.halt()
}

// TestOldProcessor wants the flags to be named that the guest's processor lacks.
func TestOldProcessor(t *testing.T) {
	need(t)
	m := boot(t, hardware{cpu: "qemu64"})
	m.refused(refusal{name: "processor", toml: strings.Replace(virtual("net_null0"), "require", "off", 1), want: []string{"lacks ssse3, sse4_1, sse4_2, popcnt", "-cpu max", "host-passthrough"}})
	m.halt()
}
