package vagrant

import (
	"os"
	"testing"
)

const (
	cardA, macA = "0000:00:03.0", "02:00:00:00:00:03"
	cardB, macB = "0000:00:04.0", "02:00:00:00:00:04"
	kernels     = "virtio-pci"
	generic     = "uio_pci_generic"
)

// Cards are taken by either address, once, and given back to the driver that they had.
func TestBind(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA, cardB)
	out := tr.script(true, "nic.sh", "bind", macA, "00:04.0")
	tr.says(out, cardA+" (eth03) is bound to uio_pci_generic; before: virtio-pci", cardB+" (eth04)")
	if tr.driver(cardA) != generic || tr.driver(cardB) != generic {
		t.Fatalf("drivers: %s, %s", tr.driver(cardA), tr.driver(cardB))
	}
	tr.says(tr.script(true, "nic.sh", "status"), cardA+"  uio_pci_generic  -            "+macA)
	tr.says(tr.script(true, "nic.sh", "address", macB), cardB) // the kernel has no interface any more that would tell
	tr.says(tr.script(true, "nic.sh", "bind", macA, macB), cardA+" is bound to uio_pci_generic already")
	tr.says(tr.script(true, "nic.sh", "unbind", macA), cardA+" is virtio-pci's again")
	if tr.driver(cardA) != kernels || tr.driver(cardB) != generic || tr.read("sys/bus/pci/devices/"+cardA+"/driver_override") != "" {
		t.Errorf("drivers: %s, %s", tr.driver(cardA), tr.driver(cardB))
	}
	tr.script(true, "nic.sh", "unbind", "--all")
	tr.says(tr.script(true, "nic.sh", "unbind", macA), "was not taken")
	tr.script(true, "nic.sh", "unbind", "--all")
	if tr.driver(cardB) != kernels {
		t.Errorf("driver: %s", tr.driver(cardB))
	}
	if left, _ := os.ReadDir(tr.path("state/nic")); len(left) > 0 {
		t.Errorf("notes are left: %v", left)
	}
}

// vfio-pci is the driver where there is an IOMMU; then the whole group must be given up.
func TestIOMMU(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA, cardB)
	tr.says(tr.script(false, "nic.sh", "bind", "--driver", "vfio-pci", macA), "finds no IOMMU", "intel_iommu=on", "--driver uio_pci_generic")
	for _, c := range []string{cardA, cardB} {
		tr.link("sys/kernel/iommu_groups/7", "sys/bus/pci/devices/"+c+"/iommu_group")
		tr.link("sys/bus/pci/devices/"+c, "sys/kernel/iommu_groups/7/devices/"+c)
	}
	tr.says(tr.script(false, "nic.sh", "bind", macA), "shares its IOMMU group with "+cardB+", which virtio-pci drives")
	tr.script(true, "nic.sh", "bind", "--driver", "uio_pci_generic", macB)
	tr.says(tr.script(false, "nic.sh", "bind", macA), "which uio_pci_generic drives")
	tr.script(true, "nic.sh", "bind", macA, macB) // B from one of ours to another …
	if tr.driver(cardA) != "vfio-pci" || tr.driver(cardB) != "vfio-pci" {
		t.Errorf("drivers: %s, %s", tr.driver(cardA), tr.driver(cardB))
	}
	tr.script(true, "nic.sh", "unbind", "--all")
	if tr.driver(cardA) != kernels || tr.driver(cardB) != kernels { // … and back to what it was first
		t.Errorf("drivers: %s, %s", tr.driver(cardA), tr.driver(cardB))
	}
}

// The card with the default route stays the kernel's, also if a bridge or a VLAN is between them.
func TestDefaultRoute(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA, cardB)
	for _, route := range []string{
		"default via 192.0.2.1 dev eth03 proto dhcp",
		"default proto static metric 5 nexthop via 192.0.2.1 dev eth04 weight 1 nexthop via 192.0.2.2 dev eth03 weight 1",
		"unreachable default dev lo\ndefault via fe80::1 dev br0 table 7 metric 1024",
	} {
		tr.command("ip", "echo '"+route+"'")
		if route[0] == 'u' {
			tr.mkdir("sys/class/net/eth03/upper_eth03.5")
			tr.mkdir("sys/class/net/eth03.5/upper_br0")
		}
		tr.says(tr.script(false, "nic.sh", "bind", macA), "is eth03, through which the default route leaves", "--force")
		if tr.driver(cardA) != kernels {
			t.Fatalf("%s: the card is gone", route)
		}
		tr.says(tr.script(false, "check.sh", macA), "(eth03) has the default route")
	}
	tr.script(true, "nic.sh", "bind", "--force", macA)
	if tr.driver(cardA) != generic {
		t.Errorf("driver: %s", tr.driver(cardA))
	}
}

// What fails leaves nothing half done: neither the card at which it failed, nor those before it.
func TestBindFails(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA, cardB)
	for _, tt := range []struct {
		nic  string
		says string
	}{
		{"eth04", "neither a PCI address"},
		{"0000:00:09.0", "no PCI device 0000:00:09.0"},
		{"02:00:00:00:00:99", "no PCI network card has the MAC address"},
	} {
		tr.says(tr.script(false, "nic.sh", "bind", macA, tt.nic), tt.says)
		if tr.driver(cardA) != kernels {
			t.Errorf("%s: driver %s", tt.nic, tr.driver(cardA))
		}
	}
	tr.script(true, "nic.sh", "bind", macA)
	tr.write("refuses", generic+"\n")
	tr.says(tr.script(false, "nic.sh", "bind", macA, macB), "uio_pci_generic does not take "+cardB, cardB+" is virtio-pci's again")
	if tr.driver(cardA) != generic || tr.driver(cardB) != kernels { // A was taken before
		t.Errorf("drivers: %s, %s", tr.driver(cardA), tr.driver(cardB))
	}
	tr.script(true, "nic.sh", "unbind", macA)
	tr.says(tr.script(false, "nic.sh", "bind", macA), "uio_pci_generic does not take "+cardA, cardA+" is virtio-pci's again")
	if tr.driver(cardA) != kernels || tr.read("state/nic/"+cardA) != "" {
		t.Errorf("driver %s, note %q", tr.driver(cardA), tr.read("state/nic/"+cardA))
	}
	tr.remove("sys/bus/pci/drivers/" + generic)
	tr.says(tr.script(false, "nic.sh", "bind", macA), "has no module uio_pci_generic", "linux-image-amd64")
	tr.says(tr.script(false, "nic.sh", "bind", "--driver", "e1000e", macA), "e1000e is none of")
	tr.says(tr.script(false, "nic.sh", "bind"), "which cards?")
	tr.says(tr.script(false, "nic.sh", "free"), "nic.sh bind")
}

// A card that a process has open is not pulled away from it.
func TestUnbindInUse(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA)
	tr.script(true, "nic.sh", "bind", macA)
	tr.mkdir("sys/bus/pci/devices/" + cardA + "/uio/uio5")
	tr.write("proc/4711/comm", "fastpath\n")
	tr.mkdir("proc/4711/fd")
	if err := os.Symlink("/dev/uio5", tr.path("proc/4711/fd/9")); err != nil {
		t.Fatal(err)
	}
	tr.says(tr.script(false, "nic.sh", "unbind", macA), "process 4711 (fastpath) uses "+cardA)
	tr.remove("proc/4711")
	tr.script(true, "nic.sh", "unbind", macA)
}

// Hugepages are reserved once, as many as are missing, and given back; too few are none.
func TestHugepages(t *testing.T) {
	t.Parallel()
	const dir = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	tr := newTree(t)
	for range 2 { // 4 of 10 are free, 16 are wanted
		tr.script(true, "hugepages.sh", "reserve", "32")
		if got := tr.read(dir+"nr_hugepages") + " " + tr.read(dir+"free_hugepages"); got != "22 16" {
			t.Errorf("all and free: %s, want 22 16", got)
		}
	}
	tr.says(tr.script(true, "hugepages.sh", "release"), "10 pages of 2 MiB remain")
	tr.says(tr.script(true, "hugepages.sh", "release"), "none were reserved")
	tr.write("gives", "15\n")
	tr.says(tr.script(false, "hugepages.sh", "reserve", "32"), "gives only 9 free pages of 2 MiB, 16 are wanted", "hugepages=22")
	if got := tr.read(dir + "nr_hugepages"); got != "10" {
		t.Errorf("%s pages are left, want 10", got)
	}
	tr.says(tr.script(false, "hugepages.sh", "reserve", "much"), "how many MiB?")
	tr.says(tr.script(false, "hugepages.sh", "reserve", "--node", "3", "2"), "no pages of 2 MiB on node 3")
}

// What fastpath.service does before and after: a failure at the second step leaves nothing of the first once it has stopped.
func TestService(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA, cardB)
	run := func(ok bool, action string, env string) string {
		t.Helper()
		out, err := tr.shell("export " + env + "; $TREE/lib/service.sh " + action)
		if (err == nil) != ok {
			t.Fatalf("%s: %v\n%s", action, err, out)
		}
		return out
	}
	all := `FASTPATH_HUGEPAGES=32 FASTPATH_NICS="` + macA + ` ` + cardB + `"`
	for range 2 {
		run(true, "start", all)
		if tr.driver(cardA) != generic || tr.driver(cardB) != generic {
			t.Errorf("drivers: %s, %s", tr.driver(cardA), tr.driver(cardB))
		}
	}
	run(true, "stop", all)
	run(false, "start", `FASTPATH_HUGEPAGES=32 FASTPATH_NICS="`+macA+` 0000:00:09.0"`)
	run(true, "stop", all)
	if tr.driver(cardA) != kernels || tr.driver(cardB) != kernels || tr.read("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") != "10" {
		t.Errorf("drivers %s, %s, %s hugepages", tr.driver(cardA), tr.driver(cardB), tr.read("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"))
	}
	run(true, "start", "FASTPATH_HUGEPAGES= FASTPATH_NICS=") // a port on a kernel interface needs nothing
}

// check.sh names each thing that is missing, with the command that mends it; on a machine with all of it, it says so.
func TestCheck(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA)
	tr.says(tr.script(false, "check.sh", "--hugepages", "32", macA, "0000:00:09.0"),
		"MISSING  hugepages: 4 of 2 MiB are free, 16 are wanted: "+tr.path("lib")+"/hugepages.sh reserve 32",
		"note     IOMMU is off", "MISSING  "+cardA+" (eth03) is bound to the kernel's driver virtio-pci: "+tr.path("lib")+"/nic.sh bind "+cardA,
		"one receive queue, so no RSS", "MISSING  0000:00:09.0: this machine has no PCI device")
	tr.write("proc/cpuinfo", "flags\t\t: fpu sse4_1\n")
	tr.command("uname", "echo x86_64")
	tr.says(tr.script(false, "check.sh", "--hugepages", "8"), "MISSING  CPU flag sse4_2", "host-passthrough")
	tr.write("proc/cpuinfo", "flags\t\t: fpu sse4_2 constant_tsc\n")
	tr.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
	tr.says(tr.script(true, "check.sh", "--hugepages", "8"), "locked down (Secure Boot)")
	tr.script(true, "nic.sh", "bind", macA)
	tr.says(tr.script(true, "check.sh", "--hugepages", "8", macA), "ok       "+cardA+" is bound to uio_pci_generic")
}

// isolate.sh changes nothing, and gives commands for these very cores.
func TestIsolate(t *testing.T) {
	t.Parallel()
	tr := newTree(t, cardA)
	tr.write("sys/devices/system/cpu/online", "0-3\n")
	tr.write("sys/devices/system/cpu/isolated", "\n")
	tr.write("proc/irq/24/effective_affinity_list", "2\n")
	tr.write("proc/irq/25/effective_affinity_list", "0\n")
	tr.says(tr.script(true, "isolate.sh", "2-3", macA), "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0,1", "interrupts on 2-3: 24;", "is near 2-3")
	tr.write("sys/devices/system/cpu/isolated", "2-3\n")
	tr.write("sys/devices/system/cpu/nohz_full", "2-3\n")
	tr.write("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "1,3\n")
	tr.write("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave\n")
	tr.write("sys/bus/pci/devices/"+cardA+"/numa_node", "1\n")
	tr.write("sys/bus/pci/devices/"+cardA+"/local_cpulist", "0-1\n")
	tr.says(tr.script(true, "isolate.sh", "3", cardA), "ok       the kernel keeps", "ok       no interrupts on 3", "shares its execution units with 1", "governor powersave", "NUMA node 1, near the cores 0-1")
	tr.says(tr.script(false, "isolate.sh", "0-3"), "no core is left")
	tr.says(tr.script(false, "isolate.sh", "9"), "has the cores 0-3")
	tr.says(tr.script(false, "isolate.sh", "all"), "isolate.sh CORES")
}

// install.sh puts everything where the unit looks for it, keeps settings, and takes it away again.
func TestInstall(t *testing.T) {
	t.Parallel()
	tr := newTree(t)
	tr.write("fastpath", "#!/bin/sh\necho fastpath v0\n")
	for _, f := range []string{"fastpath.service", "fastpath.env"} {
		b, err := os.ReadFile(dir + "/provision/" + f)
		if err != nil {
			t.Fatal(err)
		}
		tr.write("lib/"+f, string(b))
	}
	install := func(arg string) {
		t.Helper()
		if out, err := tr.shell("export DESTDIR=$TREE/root; $TREE/lib/install.sh " + arg); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	install(tr.path("fastpath"))
	tr.write("root/etc/fastpath/fastpath.env", "FASTPATH_NICS=mine\n")
	install(tr.path("fastpath"))
	for _, f := range []string{"usr/local/bin/fastpath", "usr/local/lib/fastpath/service.sh", "usr/local/lib/fastpath/lib.sh", "etc/systemd/system/fastpath.service"} {
		if tr.read("root/"+f) == "" {
			t.Errorf("%s is missing", f)
		}
	}
	if got := tr.read("root/etc/fastpath/fastpath.env"); got != "FASTPATH_NICS=mine" {
		t.Errorf("the settings are now %q", got)
	}
	install("--uninstall")
	if _, err := os.Stat(tr.path("root/usr/local/lib/fastpath")); err == nil || tr.read("root/usr/local/bin/fastpath") != "" || tr.read("root/etc/fastpath/fastpath.env") == "" {
		t.Error("it is not uninstalled, or its settings are gone")
	}
}
