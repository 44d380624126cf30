package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// withProcess lets another process decide, by modules of all kinds.
var withProcess = strings.NewReplacer(`placement = "builtin"`, `placement = "process"`)

// config is the daemon's configuration with a number of queues.
func config(device string, queues int, more string) string {
	return fmt.Sprintf(`
[[port]]
name = "p"
driver = "dpdk"
device = %q
addresses = ["%s/24"]
queues = %d
buffers = 2048
[tcp]
time_wait = "1s"
[dpdk]
hugepages = "require"
memory = "64MiB"
[modules]
start_timeout = "80s"
[modules.cong]
use = "cdg"
placement = "builtin"
late = "2s"
dead = "20s"
restart_min = "50ms"
restart_limit = 20
[modules.rtx]
placement = "builtin"
late = "2s"
dead = "20s"
restart_min = "50ms"
restart_limit = 20
[modules.pace]
placement = "builtin"
late = "2s"
dead = "20s"
restart_min = "50ms"
restart_limit = 20
[[module]]
kind = "cong"
name = "bbr"
[[app]]
kind = "http"
listen = "%s:80"
seed = 7
upload = true
rate = "40Mbit/s"
%s`, device, serverIP, queues, serverIP, more)
}

// start starts the daemon and waits until it answers.
func (m *machine) start(toml string) {
	m.Helper()
	m.configure(toml)
	m.run("begin")
	m.eventually(func() error {
		if _, status := m.try("kill -0 $daemon"); status != 0 {
			m.Fatal("the daemon has ended")
		}
		if out, status := m.try("fastpath ctl info >/dev/null"); status != 0 {
			return errors.New(out)
		}
		return nil
	})
}

// stop ends the daemon in order: it has lost no buffer on the way, and leaves nothing behind.
func (m *machine) stop() {
	m.Helper()
	m.run("kill -%d $daemon", syscall.SIGTERM)
	m.run("ended")
	if left := m.run("ls -A /run/fastpath /var/run/dpdk /dev/hugepages 2>/dev/null | grep -v :; true"); left != "" {
		m.Errorf("the daemon has left files: %s", left)
	}
	if free, all := m.run("cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"), m.run("cat /proc/sys/vm/nr_hugepages"); free != all {
		m.Errorf("of %s hugepages %s are free", all, free)
	}
}

// ctl asks the daemon.
func (m *machine) ctl(reply any, command string) {
	m.Helper()
	out := m.run("fastpath ctl %s --json", command)
	if err := json.Unmarshal([]byte(out), reply); err != nil {
		m.Fatalf("fastpath ctl %s: %v\n%s", command, err, out)
	}
}

// module returns what the daemon says about a congestion control.
func (m *machine) module(name string) control.Module {
	m.Helper()
	var r control.ModulesReply
	m.ctl(&r, "modules")
	for _, mod := range r.Modules {
		if mod.Kind == "cong" && mod.Name == name {
			return mod
		}
	}
	m.Fatalf("no module %s: %+v", name, r)
	return control.Module{}
}

// crash kills the process of the module that serves, and waits for another one.
func (m *machine) crash(name string) {
	m.Helper()
	victim := m.module(name)
	if victim.State != control.ModuleActive || victim.PID == 0 {
		m.Fatalf("%s does not serve: %+v", name, victim)
	}
	m.run("kill -%d %d", syscall.SIGKILL, victim.PID)
	m.eventually(func() error {
		if mod := m.module(name); mod.State != control.ModuleActive || mod.PID == victim.PID || mod.PID == 0 || mod.Restarts < 1 {
			return fmt.Errorf("the module that was killed is not back: %+v", mod)
		}
		return nil
	})
}

// healthy wants the daemon to have found no frame bad, and returns what it says of its port.
func (m *machine) healthy() *control.StatReply {
	m.Helper()
	var s control.StatReply
	m.ctl(&s, "stat")
	for name, n := range s.Counters {
		if n != 0 && strings.HasPrefix(name, "drop_") && (strings.HasSuffix(name, "checksum") || strings.HasSuffix(name, "short") || strings.HasSuffix(name, "length")) {
			m.Errorf("%s = %d", name, n)
		}
	}
	if p := s.Ports[0]; p.RxErrors+p.TxErrors != 0 || !p.LinkUp || p.MAC != serverMAC {
		m.Errorf("port: %+v", p)
	}
	return &s
}
