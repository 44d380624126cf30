package conf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Check compares a configuration that Load has accepted with the machine. errs keep the daemon from starting; warnings say
// what will make it slow, and what to do. builtin returns what tells whether a module that is linked in accepts its parameters, and nil
// for one that is not.
//
// Of a configuration from Examine, it checks what does not depend on a part that could not be read; errs are those of Check alone.
func Check(c *Config, m *Machine, builtin func(k plugins.Kind, name string) func(plugins.Params) error) (errs, warnings Problems) {
	if c.doc == nil {
		c.doc = &document{file: "default", lines: map[string]int{}}
	}
	k := &checker{c: c, m: m, builtin: builtin}
	if !c.doc.broken { // else what these depend on may have stood on a line that could not be read
		k.cores()
		k.hugepages()
		k.modules()
	}
	k.files()
	k.errs.Sort()
	k.warnings.Sort()
	return k.errs, k.warnings
}

type checker struct {
	c              *Config
	m              *Machine
	builtin        func(plugins.Kind, string) func(plugins.Params) error
	errs, warnings Problems
}

// read reports whether all of these keys of a table could be read, if they were given at all.
func (k *checker) read(table string, keys ...string) bool {
	return !k.c.doc.odd[table] && !slices.ContainsFunc(keys, func(key string) bool { return k.c.doc.bad(table + "." + key) })
}

func (k *checker) err(key, format string, args ...any) {
	if k.c.doc.bad(key) {
		return // it is known to be wrong already
	}
	k.errs = append(k.errs, &Problem{k.c.doc.file, k.c.doc.line(key), key, fmt.Sprintf(format, args...)})
}

func (k *checker) warn(key, format string, args ...any) {
	k.warnings = append(k.warnings, &Problem{k.c.doc.file, k.c.doc.line(key), key, fmt.Sprintf(format, args...)})
}

func (k *checker) cores() {
	spin := map[int]bool{}
	for i, w := range k.c.Workers {
		table := fmt.Sprintf("worker[%d]", i)
		key := table + ".core"
		if w.Core == AnyCore || !k.read(table, "core", "poll") {
			continue
		}
		switch {
		case !slices.Contains(k.m.Present, w.Core):
			k.err(key, "core %d does not exist (this machine has %s)", w.Core, FormatCPUs(k.m.Present))
		case !slices.Contains(k.m.Allowed, w.Core):
			k.err(key, "core %d is not allowed to this process (%s are; see taskset, cpuset, CPUAffinity=)", w.Core, FormatCPUs(k.m.Allowed))
		case w.Poll == PollAdaptive:
			k.err(key, "adaptive workers share one polling goroutine, which is not bound to a core: leave core out, or set poll = \"spin\"")
		case w.Poll == PollSpin:
			spin[w.Core] = true // VLANs of one device share it
			k.sharedCore(key, w.Core)
		}
	}
	// Go needs a processor beside the locked ones: the netpoller and the garbage collector run there.
	if n := len(k.m.Allowed); len(spin) > 0 && len(spin) >= n {
		k.err("worker", "%d spinning workers leave none of the %d allowed cores to applications and the control socket", len(spin), n)
	}
}

// sharedCore warns of other work on the core of a spinning worker.
func (k *checker) sharedCore(key string, core int) {
	if !slices.Contains(k.m.Isolated, core) {
		k.warn(key, "core %d is shared with other tasks: boot with isolcpus=%d, or keep them away with cpusets", core, core)
	}
	if !slices.Contains(k.m.NoHz, core) {
		k.warn(key, "core %d has a timer tick: boot with nohz_full=%d rcu_nocbs=%d", core, core, core)
	}
	if irqs := k.m.IRQs[core]; len(irqs) > 0 {
		shown := irqs[:min(len(irqs), 4)]
		more := ""
		if n := len(irqs) - len(shown); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		k.warn(key, "core %d may get interrupts %s%s: write another core to /proc/irq/N/smp_affinity_list, and stop irqbalance",
			core, strings.Join(shown, ", "), more)
	}
	for _, s := range k.m.Siblings[core] {
		if s != core && !slices.Contains(k.m.Isolated, s) {
			k.warn(key, "core %d shares its execution units with core %d: isolate that too, or turn hyper-threading off", core, s)
		}
	}
}

func (k *checker) hugepages() {
	dpdk := slices.ContainsFunc(k.c.Ports, func(p Port) bool { return p.Driver == DriverDPDK })
	if !dpdk || len(k.m.Free) > 0 || !k.read("dpdk", "hugepages") {
		return
	}
	const page, least = 2 << 20, 256 << 20 // the latter is what package pmd/dpdk wants to be free if the configuration does not say
	memory := int64(k.c.DPDK.Memory)
	if memory == 0 {
		memory = least
	}
	pages := (memory + page - 1) / page
	switch k.c.DPDK.Hugepages {
	case "require":
		k.err("dpdk.hugepages", "no hugepage is free: echo %d > /proc/sys/vm/nr_hugepages", pages)
	case "auto":
		k.warn("dpdk.hugepages", "no hugepage is free, DPDK runs with --no-huge: echo %d > /proc/sys/vm/nr_hugepages", pages)
	}
}

func (k *checker) modules() {
	for kind := plugins.Kind(0); kind < plugins.NumKinds; kind++ {
		u, key := k.c.Modules.Kind(kind), "modules."+kind.String()
		k.module(key, key+".use", kind, u.Use, &u.Binary)
		k.moduleCPUs(key+".cpus", u.CPUs)
		if u.Fallback != "" && k.builtin(kind, u.Fallback) == nil {
			k.err(key+".fallback", "%s %s is not built in", kind, u.Fallback)
		}
	}
	k.together()
	for i := range k.c.Standing {
		m, key := &k.c.Standing[i], fmt.Sprintf("module[%d]", i)
		if kind, err := plugins.ParseKind(m.Kind); err == nil {
			k.module(key, key+".name", kind, m.Name, &m.Binary)
		}
	}
}

// together checks that modules that are to share a process are in one binary.
func (k *checker) together() {
	firstName, first, firstSum := "", "", ""
	for i, s := range k.c.Modules.Together {
		kind, err := plugins.ParseKind(s)
		key := "modules." + s
		if err != nil || k.c.doc.bad(key+".use") || !k.read(key, "placement", "path") || !k.read("modules", "plugin_dir") {
			return
		}
		u, sum := k.c.Modules.Kind(kind), ""
		file := u.File(k.c.Modules.PluginDir, kind, u.Use)
		if file == "" {
			file = "this program"
		} else if sum, err = sumFile(file); err != nil {
			return // module has told
		}
		if i == 0 {
			firstName, first, firstSum = s+" "+u.Use, file, sum
		} else if sum != firstSum {
			k.err(fmt.Sprintf("modules.together[%d]", i), "%s is in %s and %s %s in %s: modules of one process are in one program",
				firstName, first, s, u.Use, file)
		}
	}
}

// moduleCPUs checks that a kind's own processors are there, and nobody else's.
func (k *checker) moduleCPUs(key string, cpus []int) {
	for _, c := range cpus {
		switch {
		case !slices.Contains(k.m.Present, c):
			k.err(key, "processor %d does not exist (this machine has %s)", c, FormatCPUs(k.m.Present))
		case !slices.Contains(k.m.Allowed, c):
			k.err(key, "processor %d is not allowed to this process (%s are; see taskset, cpuset, CPUAffinity=)", c, FormatCPUs(k.m.Allowed))
		case slices.ContainsFunc(k.c.Workers, func(w Worker) bool { return w.Core == c && w.Poll == PollSpin }):
			k.err(key, "processor %d belongs to a spinning worker", c)
		}
	}
}

// module checks that the code of a module is there, and unchanged, and that a built-in one accepts its parameters: only its own process
// knows those of another.
func (k *checker) module(key, nameKey string, kind plugins.Kind, name string, b *Binary) {
	if k.c.doc.bad(nameKey) || !k.read(key, "placement", "path", "sha256", "allow_unpinned") || !k.read("modules", "plugin_dir") {
		return
	}
	file := b.File(k.c.Modules.PluginDir, kind, name)
	if file == "" {
		accepts := k.builtin(kind, name)
		if accepts == nil {
			where := "built in"
			if b.Placement == PlacementProcess {
				where = "built in, and there is no file for it in plugin_dir"
			}
			k.err(nameKey, "%s %s is not %s", kind, name, where)
		} else if !k.c.doc.bad(key + ".params") {
			k.params(key+".params", accepts(b.Params))
		}
		return
	}
	fileKey := key + ".path"
	if b.Path == "" {
		fileKey = nameKey
	}
	switch sum, err := sumFile(file); {
	case err != nil:
		k.err(fileKey, "%v", err)
	case b.SHA256 == "" && !b.AllowUnpinned:
		k.err(fileKey, "%s needs sha256 = \"%s\", or allow_unpinned = true", file, sum)
	case b.SHA256 != "" && sum != string(b.SHA256):
		k.err(key+".sha256", "%s has the checksum %s", file, sum)
	}
}

// params notes what a module says about its parameters: each at its own line if the module tells which one it is.
func (k *checker) params(key string, err error) {
	var one *plugins.ParamError
	switch joined, ok := err.(interface{ Unwrap() []error }); {
	case err == nil:
	case ok:
		for _, e := range joined.Unwrap() {
			k.params(key, e)
		}
	case errors.As(err, &one):
		k.err(join(key, one.Param), "%s", one.Problem)
	default:
		k.err(key, "%v", err)
	}
}

// File returns the file that holds a module's code; "" if it is the daemon's own binary.
func (b *Binary) File(pluginDir string, kind plugins.Kind, name string) string {
	if b.Placement != PlacementProcess {
		return ""
	}
	if b.Path != "" {
		return b.Path
	}
	if pluginDir != "" {
		file := filepath.Join(pluginDir, fmt.Sprintf("fastpath-%s-%s", kind, name))
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// sumFile returns the SHA-256 of an executable file in hexadecimal digits.
func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not an executable file", path)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hasInterface looks into /proc, not /sys: the former shows the interfaces of the process's own network namespace.
func (k *checker) hasInterface(name string) bool {
	b, err := os.ReadFile(filepath.Join(k.m.Root, "/proc/self/net/dev"))
	if err != nil {
		return true // the driver will tell
	}
	for line := range strings.Lines(string(b)) {
		if n, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return true
		}
	}
	return false
}

// vdevInterface returns the interface that a virtual device of DPDK needs; "" if there is none. DPDK picks the driver by prefix; others
// than these make the interface that iface names.
func vdevInterface(vdev string) string {
	name, args, _ := strings.Cut(vdev, ",")
	if !strings.HasPrefix(name, "net_af_packet") && !strings.HasPrefix(name, "net_af_xdp") {
		return ""
	}
	for arg := range strings.SplitSeq(args, ",") {
		if name, ok := strings.CutPrefix(arg, "iface="); ok {
			return name
		}
	}
	return ""
}

// files checks what else the configuration names: interfaces, directories, captures.
func (k *checker) files() {
	for i, p := range k.c.Ports {
		key := fmt.Sprintf("port[%d]", i)
		k.kernel(key, &p)
		k.defaultRoute(key, &p)
		if p.Driver == DriverAFPacket && p.Interface != "" && !k.hasInterface(p.Interface) {
			k.err(key+".interface", "there is no interface %q: ip link", p.Interface)
		}
		if name := vdevInterface(p.Vdev); p.Driver == DriverDPDK && name != "" && !k.hasInterface(name) {
			k.err(key+".vdev", "there is no interface %q: ip link", name)
		}
		if p.Device != "" {
			if _, err := os.Stat(filepath.Join(k.m.Root, "/sys/bus/pci/devices", p.Device)); err != nil {
				k.err(key+".device", "there is no PCI device %q: lspci -D", p.Device)
			}
		}
		if p.Replay != "" {
			if _, err := os.Stat(p.Replay); err != nil {
				k.err(key+".replay", "%v", err)
			}
		}
	}
	for i, a := range k.c.Apps {
		if st, err := os.Stat(a.Root); a.Root != "" && err != nil {
			k.err(fmt.Sprintf("app[%d].root", i), "%v", err)
		} else if a.Root != "" && !st.IsDir() {
			k.err(fmt.Sprintf("app[%d].root", i), "%s is not a directory", a.Root)
		}
	}
	if dir := k.c.Modules.PluginDir; dir != "" {
		if st, err := os.Stat(dir); err != nil {
			k.err("modules.plugin_dir", "%v", err)
		} else if !st.IsDir() {
			k.err("modules.plugin_dir", "%s is not a directory", dir)
		}
	}
}

// FormatCPUs is the inverse of ParseCPUs for a sorted list.
func FormatCPUs(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, cpus[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", cpus[j])
		}
		i = j + 1
	}
	return b.String()
}
