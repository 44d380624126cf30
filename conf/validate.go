package conf

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// validator checks the values of a configuration and how they fit together.
type validator struct {
	*document
	c *Config
}

func (v *validator) run() {
	v.memory()
	v.tcp()
	v.modules()
	v.standing()
	v.ports()
	v.apps()
	v.filters(v.c.Filters)
	v.dpdk()
	if !v.broken { // else what a worker names may have stood on a line that could not be read
		v.workers()
	}
	v.require("control.socket", v.c.Control.Socket == "")
	if len(v.c.Control.Socket) > maxSocketPath {
		v.at("control.socket", "%d bytes is too long for the path of a socket (at most %d)", len(v.c.Control.Socket), maxSocketPath)
	}
}

// maxSocketPath is the space in sockaddr_un less its terminating zero.
const maxSocketPath = 107

// at notes an error of key.
func (v *validator) at(key, format string, args ...any) { v.errorf(v.line(key), key, format, args...) }

// has reports whether the file sets key, with a good value or a bad one.
func (v *validator) has(key string) bool {
	_, ok := v.lines[key]
	return ok
}

// require notes that key is missing. A key that was given, but with a value that could not be used, has its error already,
// and in a file with syntax errors it may have stood on a line that could not be read.
func (v *validator) require(key string, missing bool) {
	switch {
	case !missing || v.broken:
	case !v.has(key):
		v.at(key, "is missing")
	case !v.bad(key):
		v.at(key, "is empty")
	}
}

// between checks lo ≤ x ≤ hi.
func between[T cmp.Ordered](v *validator, key string, x, lo, hi T) {
	if (x < lo || x > hi) && !v.bad(key) {
		v.at(key, "%v is out of range (%v to %v)", x, lo, hi)
	}
}

func (v *validator) memory() {
	m := &v.c.Memory
	low, pressure, high := !v.bad("memory.low"), !v.bad("memory.pressure"), !v.bad("memory.high") // readable
	between(v, "memory.low", m.Low, 4*MiB, 1<<40)
	between(v, "memory.heap", m.Heap, 32*MiB, 1<<40)
	if m.Pressure < m.Low && low && pressure {
		v.at("memory.pressure", "%v is below low (%v)", m.Pressure, m.Low)
	}
	if m.High < m.Pressure && pressure && high {
		v.at("memory.high", "%v is below pressure (%v)", m.High, m.Pressure)
	}
}

func (v *validator) tcp() {
	t := &v.c.TCP
	dur := func(key string, d, lo, hi time.Duration) { between(v, "tcp."+key, d, lo, hi) }
	between(v, "tcp.send_buffer", t.SendBuffer, 4*KiB, 1*GiB)
	between(v, "tcp.receive_buffer", t.ReceiveBuffer, 4*KiB, 1*GiB) // RFC 7323, 2.3: the largest window is 1 GiB
	between(v, "tcp.receive_start", t.ReceiveStart, 4*KiB, 1*GiB)
	between(v, "tcp.min_path_mtu", t.MinPathMTU, 68, 1500) // RFC 791: no link takes less than 68
	between(v, "tcp.initial_window", t.InitialWindow, 1, 100)
	dur("delayed_ack", t.DelayedACK.D(), 0, 499*time.Millisecond) // RFC 9293, 3.8.6.3: less than 0.5 s
	dur("min_rto", t.MinRTO.D(), time.Millisecond, time.Minute)
	dur("max_rto", t.MaxRTO.D(), time.Second, 10*time.Minute)
	if t.MaxRTO < t.MinRTO && !v.bad("tcp.max_rto") && !v.bad("tcp.min_rto") {
		v.at("tcp.max_rto", "%v is below min_rto (%v)", t.MaxRTO, t.MinRTO)
	}
	between(v, "tcp.syn_retries", t.SYNRetries, 1, 127)
	between(v, "tcp.syn_linear_timeouts", t.SYNLinearTimeouts, 0, 127)
	between(v, "tcp.fast_open_queue", t.FastOpenQueue, 0, 65536)
	between(v, "tcp.retries", t.Retries, 1, 127)
	if t.AdvertisedTimeout != 0 {
		dur("advertised_timeout", t.AdvertisedTimeout.D(), time.Second, 32767*time.Minute)
	}
	dur("min_user_timeout", t.MinUserTimeout.D(), time.Second, 24*time.Hour)
	dur("max_user_timeout", t.MaxUserTimeout.D(), time.Second, 32767*time.Minute)
	if t.MaxUserTimeout < t.MinUserTimeout && !v.bad("tcp.max_user_timeout") && !v.bad("tcp.min_user_timeout") {
		v.at("tcp.max_user_timeout", "%v is below min_user_timeout (%v)", t.MaxUserTimeout, t.MinUserTimeout)
	}
	dur("keepalive_idle", t.KeepAliveIdle.D(), time.Second, 32767*time.Second)
	dur("keepalive_interval", t.KeepAliveInterval.D(), time.Second, 32767*time.Second)
	between(v, "tcp.keepalive_probes", t.KeepAliveProbes, 1, 127)
	dur("time_wait", t.TimeWait.D(), 0, 10*time.Minute)
	dur("orphan_timeout", t.OrphanTimeout.D(), time.Second, time.Hour)
	between(v, "tcp.max_orphans", t.MaxOrphans, 1, 1<<24)
	between(v, "tcp.max_time_waits", t.MaxTimeWaits, 1, 1<<24)
	between(v, "tcp.challenge_limit", t.ChallengeLimit, 1, 1<<24)
	dur("fin_wait", t.FinWait.D(), time.Second, 10*time.Minute)
	between(v, "tcp.backlog", t.Backlog, 1, 65536)
	if n := int(t.Ports.Max) - int(t.Ports.Min) + 1; n < 64 {
		v.at("tcp.ports", "%d ports are too few for active opens (at least 64)", n)
	}
}

// maxModuleCPU is the highest number that a module's process can be bound to.
const maxModuleCPU = 1023

func (v *validator) modules() {
	between(v, "modules.start_timeout", v.c.Modules.StartTimeout.D(), time.Second, 10*time.Minute)
	between(v, "modules.spin", v.c.Modules.Spin.D(), time.Nanosecond, time.Second)
	if v.c.Modules.MemoryLimit != 0 {
		between(v, "modules.memory_limit", v.c.Modules.MemoryLimit, 32<<20, 1<<40)
	}
	for k := plugins.Kind(0); k < plugins.NumKinds; k++ {
		u, key := v.c.Modules.Kind(k), "modules."+k.String()
		v.moduleName(key+".use", u.Use)
		if u.Fallback != "" {
			v.moduleName(key+".fallback", u.Fallback)
		}
		v.binary(key, &u.Binary)
		for i, c := range u.CPUs {
			between(v, fmt.Sprintf("%s.cpus", key), c, 0, maxModuleCPU)
			if slices.Contains(u.CPUs[:i], c) {
				v.at(key+".cpus", "%d is there twice", c)
			}
		}
		between(v, key+".late", u.Late.D(), 0, time.Minute)
		between(v, key+".dead", u.Dead.D(), 100*time.Millisecond, time.Minute)
		between(v, key+".restart_min", u.RestartMin.D(), time.Millisecond, time.Hour)
		between(v, key+".restart_max", u.RestartMax, u.RestartMin, Duration(24*time.Hour))
		between(v, key+".restart_limit", u.RestartLimit, 1, 1000)
		between(v, key+".restart_window", u.RestartWindow.D(), time.Second, 24*time.Hour)
	}
	v.together()
}

// together checks the kinds that share a process.
func (v *validator) together() {
	var first *Use
	kinds := v.c.Modules.Together
	for i, s := range kinds {
		key := fmt.Sprintf("modules.together[%d]", i)
		k, err := plugins.ParseKind(s)
		if err != nil {
			v.at(key, "%v", err)
			return
		}
		u := v.c.Modules.Kind(k)
		switch {
		case slices.Contains(kinds[:i], s):
			v.at(key, "%s is there twice", s)
		case u.Placement != PlacementProcess && !v.bad("modules."+s+".placement"):
			v.at(key, "[modules.%s] has not placement = \"process\"", s)
		case first != nil && !slices.Equal(u.CPUs, first.CPUs) && !v.bad("modules."+s+".cpus"):
			v.at(key, "[modules.%s] has other cpus than [modules.%s]", s, kinds[0])
		}
		if first == nil {
			first = u
		}
	}
	if len(kinds) == 1 {
		v.at("modules.together", "%s alone cannot share a process", kinds[0])
	}
}

func (v *validator) standing() {
	seen := map[string]int{}
	for i := range v.c.Standing {
		m, key := &v.c.Standing[i], fmt.Sprintf("module[%d]", i)
		v.binary(key, &m.Binary)
		v.require(key+".kind", m.Kind == "")
		v.require(key+".name", m.Name == "")
		if m.Name == "" || m.Kind == "" {
			continue
		}
		v.moduleName(key+".name", m.Name)
		id := m.Kind + " " + m.Name
		if first, ok := seen[id]; ok {
			v.at(key+".name", "%s is there already, on line %d", id, first)
			continue
		}
		seen[id] = v.line(key)
		if k, err := plugins.ParseKind(m.Kind); err == nil && v.c.Modules.Kind(k).Use == m.Name {
			v.at(key+".name", "%s is in use already by [modules.%s]", id, m.Kind)
		}
	}
}

// moduleName checks a name that becomes part of a file name.
func (v *validator) moduleName(key, name string) {
	if v.bad(key) {
		return
	}
	if name == "" || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		v.at(key, "%q is not a module's name (1 to 32 of a-z, 0-9 and _)", name)
	}
}

func (v *validator) binary(key string, b *Binary) {
	if v.bad(key + ".placement") {
		return
	}
	if b.Placement == PlacementBuiltin {
		for _, k := range []struct {
			name string
			set  bool
		}{{"path", b.Path != ""}, {"sha256", b.SHA256 != ""}, {"allow_unpinned", b.AllowUnpinned}} {
			if k.set {
				v.at(key+"."+k.name, "has no meaning with placement = \"builtin\"")
			}
		}
		return
	}
	if b.Path != "" && !filepath.IsAbs(b.Path) && !strings.HasPrefix(b.Path, ".") {
		v.at(key+".path", "%q is neither absolute nor begins with a dot; a module is never searched in PATH", b.Path)
	}
	if b.SHA256 != "" && b.AllowUnpinned {
		v.at(key+".allow_unpinned", "contradicts sha256")
	}
	if b.Path != "" && b.SHA256 == "" && !b.AllowUnpinned && !v.bad(key+".sha256") && !v.broken {
		v.at(key+".path", "needs sha256 = \"…\", or allow_unpinned = true")
	}
}

func (v *validator) dpdk() {
	d := &v.c.DPDK
	if d.FilePrefix == "" || strings.ContainsAny(d.FilePrefix, "/ ") {
		if !v.bad("dpdk.file_prefix") {
			v.at("dpdk.file_prefix", "%q cannot be part of a file name", d.FilePrefix)
		}
	}
	between(v, "dpdk.memory", d.Memory, 0, 1<<40)
	for i, a := range d.Args {
		for _, own := range []string{"--no-huge", "--file-prefix", "--vdev", "-a", "--allow", "-m", "--socket-mem", "-l", "--lcores", "-c"} {
			if name, _, _ := strings.Cut(a, "="); name == own {
				v.at(fmt.Sprintf("dpdk.args[%d]", i), "%s is set by the daemon itself, from hugepages, file_prefix, memory, the ports and the workers", own)
			}
		}
	}
}
