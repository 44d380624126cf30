package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/host"
)

var (
	duration = flag.Duration("duration", time.Minute, "how long to make trouble")
	seedFlag = flag.Uint64("seed", 0, "of all draws; 0: another one each time")
	flows    = flag.Int("flows", 200, "connections at the same time")
)

// Limits of the guard: short, so that each way to fail is met often.
const (
	late = 50 * time.Millisecond
	dead = 500 * time.Millisecond
)

// monkey makes trouble for the modules of a stack.
type monkey struct {
	t    *testing.T
	m    *host.Manager
	rng  *rand.Rand
	did  map[string]int
	stop []int // processes that are stopped, with the time at which each goes on
	cont []time.Time
}

func TestChaos(t *testing.T) {
	if testing.Short() {
		*duration = min(*duration, 3*time.Second)
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	before := measure(t)
	tr := newTraffic(t, seed)
	runDir := t.TempDir()
	m, err := host.New(config(tr, runDir, seed))
	if err != nil {
		t.Fatal(err)
	}
	happened := map[string]int{}
	var mu sync.Mutex
	m.OnEvent(func(e host.Event) {
		mu.Lock()
		defer mu.Unlock()
		happened[e.What]++
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var servers, clients sync.WaitGroup
	servers.Go(func() { tr.serve(&servers) })
	for i := range *flows {
		clients.Go(func() { tr.client(uint64(i)) })
	}
	mk := &monkey{t: t, m: m, rng: rand.New(rand.NewPCG(seed, 99)), did: map[string]int{}}
	mk.run(*duration)
	if !settled(m) {
		t.Errorf("not every module has come back: %v", m.List())
	}
	tr.stop.Store(true)
	clients.Wait()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	tr.ln.Close()
	servers.Wait()
	for _, err := range tr.errs {
		t.Error(err)
	}
	if err := tr.a.Close(); err != nil {
		t.Error(err)
	}
	if err := tr.b.Close(); err != nil {
		t.Error(err)
	}
	if err := tr.arena.Close(); err != nil {
		t.Error(err)
	}
	if n := tr.arena.Budget().Used(); n != 0 {
		t.Errorf("%d bytes are still charged", n)
	}
	tr.report(t, mk, happened)
	if left, _ := filepath.Glob(filepath.Join(runDir, "*")); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
	leaks(t, before)
	for _, what := range []string{host.Swapped, host.Crashed, host.FellBack, host.Recovered, host.Started} {
		if happened[what] == 0 {
			t.Errorf("nothing was %q", what)
		}
	}
}

// config has all three kinds in processes, all in one or two of them, by the seed, and others standing by. cong/reno is cold: a swap starts it.
func config(tr *traffic, runDir string, seed uint64) host.Config {
	c := host.Config{Engine: tr.a, RunDir: runDir, Seed: seed, Ring: 1024, Together: []plugins.Kind{plugins.Rtx, plugins.Cong, plugins.Pace}[:2+seed%2]}
	for k, name := range map[plugins.Kind]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"} {
		c.Use = append(c.Use, host.Use{Spec: host.Spec{Kind: k, Name: name, Placement: host.Process}, Guard: host.Guard{Late: late, Dead: dead},
			Restart: host.Restart{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond, Limit: 1 << 30}})
	}
	for _, s := range standing[1:] {
		c.Standing = append(c.Standing, host.Spec{Kind: s.kind, Name: s.name, Placement: host.Process})
	}
	return c
}

// standing are modules to swap to; the first is not configured.
var standing = []struct {
	kind plugins.Kind
	name string
}{{plugins.Cong, "reno"}, {plugins.Cong, "bbr"}, {plugins.Cong, "cdg"}, {plugins.Rtx, "list"}, {plugins.Pace, "none"}}

var inUse = [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"}

// run makes trouble for d: a swap every 100 ms, a cold start every 3 s, an attack on a process every 400 ms.
func (mk *monkey) run(d time.Duration) {
	const tick = 100 * time.Millisecond
	for i, end := 1, time.Now().Add(d); time.Now().Before(end); i++ {
		time.Sleep(tick)
		mk.wake(false)
		mk.swap()
		if i%30 == 0 {
			mk.swapTo(plugins.Kind(mk.rng.IntN(int(plugins.NumKinds))), "", plugins.Selection{})
		}
		if i%4 == 0 {
			mk.attack()
		}
	}
	mk.wake(true)
}

// swap gives flows to a module, at random.
func (mk *monkey) swap() {
	x := mk.rng.IntN(len(standing) + int(plugins.NumKinds))
	k, name := plugins.Kind(0), ""
	if x < len(standing) {
		k, name = standing[x].kind, standing[x].name
	} else {
		k = plugins.Kind(x - len(standing))
		name = inUse[k]
	}
	var sel plugins.Selection
	switch mk.rng.IntN(6) {
	case 0:
		sel.NewOnly = true
	case 1:
		sel.Percent = 1 + mk.rng.IntN(100)
	case 2:
		sel.Peer, sel.Percent = netip.MustParsePrefix("10.0.0.0/30"), 50
	}
	mk.swapTo(k, name, sel)
}

// swapTo swaps; without a name to a fresh process of what is in use.
func (mk *monkey) swapTo(k plugins.Kind, name string, sel plugins.Selection) {
	what := "swap"
	if name == "" {
		what = "cold start"
		for _, s := range mk.m.List() {
			if s.Kind == k && s.Role == "active" {
				name = s.Name
			}
		}
	}
	if _, err := mk.m.Swap(mk.t.Context(), k, name, sel); err != nil {
		what += " refused" // it is late, dead or just restarted
		if testing.Verbose() {
			mk.t.Log(err)
		}
	}
	mk.did[what]++
}

// attack does something bad to a module process.
func (mk *monkey) attack() {
	var pids []int
	for _, s := range mk.m.List() {
		if s.PID != 0 && s.Flows > 0 {
			pids = append(pids, s.PID)
		}
	}
	if len(pids) == 0 {
		return
	}
	pid := pids[mk.rng.IntN(len(pids))]
	sig, what := unix.SIGKILL, "kill"
	switch mk.rng.IntN(5) {
	case 0:
		sig, what = unix.SIGSTOP, "stop for a while"
		mk.pause(pid, time.Duration(mk.rng.Int64N(int64(dead))))
	case 1:
		sig, what = unix.SIGSTOP, "stop for good"
	case 2:
		sig, what = sigHang, "hang"
	case 3:
		sig, what = sigCorrupt, "corrupt"
	}
	if err := unix.Kill(pid, sig); err == nil { // or it has just died
		mk.did[what]++
	}
}

func (mk *monkey) pause(pid int, d time.Duration) {
	mk.stop = append(mk.stop, pid)
	mk.cont = append(mk.cont, time.Now().Add(d))
}

// wake lets stopped processes go on whose time is over, or all.
func (mk *monkey) wake(all bool) {
	for i := len(mk.stop) - 1; i >= 0; i-- {
		if all || time.Now().After(mk.cont[i]) {
			if slices.Contains(children(mk.t), fmt.Sprint(mk.stop[i])) { // else its number may be another's
				_ = unix.Kill(mk.stop[i], unix.SIGCONT)
			}
			mk.stop, mk.cont = slices.Delete(mk.stop, i, i+1), slices.Delete(mk.cont, i, i+1)
		}
	}
}

// settled waits until every module is ready again.
func settled(m *host.Manager) bool {
	return within(20*time.Second, func() bool {
		return !slices.ContainsFunc(m.List(), func(s host.Status) bool { return s.State != "ready" })
	})
}

// within waits until ok, for d at most.
func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// report says what was done, what happened, and how long flows stood still.
func (tr *traffic) report(t *testing.T, mk *monkey, happened map[string]int) {
	t.Logf("did %v", mk.did)
	t.Logf("modules: %v", happened)
	slices.Sort(tr.gaps)
	n := len(tr.gaps)
	if n == 0 {
		t.Error("no transfer has ended")
		return
	}
	t.Logf("%d transfers, %d MB, all exact; longest silence of a transfer: p50 %v, p99 %v, worst %v", tr.transfers.Load(), tr.bytes.Load()/1e6,
		tr.gaps[n/2], tr.gaps[n*99/100], tr.gaps[n-1])
}

// usage is what must not grow.
type usage struct{ children, files, memfds, maps, goroutines int }

func measure(t *testing.T) (u usage) {
	u.children = len(children(t))
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	u.files = len(fds)
	for _, f := range fds {
		l, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err == nil && strings.Contains(l, "memfd:fastpath") {
			u.memfds++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	u.maps = strings.Count(string(maps), "memfd:fastpath")
	u.goroutines = runtime.NumGoroutine()
	return u
}

// slack is what Go's runtime, the permanent threads of host and stack, and libraries may keep whatever the number of crashes.
const slack = 12

func leaks(t *testing.T, before usage) {
	var after usage
	if !within(10*time.Second, func() bool {
		after = measure(t)
		return after.children == 0 && after.memfds == 0 && after.maps == 0 && after.files <= before.files+slack && after.goroutines <= before.goroutines+slack
	}) {
		t.Errorf("left behind: %+v; before: %+v", after, before)
	}
	t.Logf("before %+v, after %+v", before, after)
}

// children are the child processes, zombies included.
func children(t *testing.T) (pids []string) {
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tasks {
		if b, err := os.ReadFile(f); err == nil {
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return pids
}
