package chaos

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// attacks are what a hostile module does, and what must come of it: an event, with a cause.
var attacks = []struct{ name, what, cause string }{
	{"dies", host.Crashed, "exit status 3"},
	{"hangs", host.Crashed, "silent for"},
	{"stops", host.Crashed, "silent for"},
	{"spins", host.Crashed, "silent for"},
	{"late", host.WentLate, "unconsumed for more than"},
	{"others", host.Crashed, "command for slot"},
	{"floods", host.Crashed, "floods its ring"},
	{"noise", host.Crashed, ""}, // by a cursor or by a record
	{"leaks", host.Crashed, "process has ended"},
	{"exits", host.Refused, "ends in the handshake: exit status 4"},
}

// hostileName is the module that does so, and the file that it runs from.
func hostileName(attack string) string { return "hostile_" + attack }

// provoked is how many events a hostile module answers before it shows what it is.
const provoked = 50

// hostile is an honest module until it is provoked.
type hostile[E, C any] struct {
	plugins.Module[E, C]
	attack string
	flow   func(*C) *plugins.Flow
	seen   int
	kept   [][]byte
	said   bool
	last   C // what the honest module has said last
}

// honest are the modules that hostile ones begin as.
var honest = [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "reno"}

func serveHostile(kind plugins.Kind, attack string) {
	if attack == "exits" {
		os.Exit(4)
	}
	e, _ := builtin.Find(kind, honest[kind])
	m := sdk.Module{Info: plugins.Info{Kind: kind, Name: hostileName(attack), Version: "6.6.6"}}
	switch kind {
	case plugins.Rtx:
		m.Rtx = provoke(attack, e.Rtx, func(c *rtx.Command) *plugins.Flow { return &c.Flow })
	case plugins.Pace:
		m.Pace = provoke(attack, e.Pace, func(c *pace.Line) *plugins.Flow { return &c.Flow })
	case plugins.Cong:
		m.Cong = provoke(attack, e.Cong, func(c *cong.Decision) *plugins.Flow { return &c.Flow })
	}
	sdk.Serve(m)
}

func provoke[E, C any, N ~func(plugins.Params, uint64) (plugins.Module[E, C], error)](attack string, make N, flow func(*C) *plugins.Flow) N {
	return func(p plugins.Params, seed uint64) (plugins.Module[E, C], error) {
		m, err := make(p, seed)
		return &hostile[E, C]{Module: m, attack: attack, flow: flow}, err
	}
}

func (h *hostile[E, C]) Poll(now plugins.Time, in []E, out []C) int {
	h.seen += len(in)
	n := h.Module.Poll(now, in, out)
	if n > 0 {
		h.said, h.last = true, out[n-1]
	}
	if h.seen < provoked || !h.said {
		return n
	}
	switch h.attack {
	case "dies":
		os.Exit(3)
	case "hangs":
		select {}
	case "stops":
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	case "spins":
		for x := uint64(1); x != 0; {
			x = x*6364136223846793005 + 1
		}
	case "late":
		time.Sleep(3 * late)
	case "others":
		if len(out) > 0 {
			out[0] = h.last
			*h.flow(&out[0]) = plugins.Flow{Slot: 1 << 20, Gen: 1}
			return 1
		}
	case "floods":
		for i := range out {
			out[i] = h.last
		}
		return len(out)
	case "noise":
		scribble()
	case "leaks":
		b := make([]byte, 4<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		h.kept = append(h.kept, b)
	}
	return n
}

func (h *hostile[E, C]) Deadline() plugins.Time {
	if h.seen >= provoked && (h.attack == "floods" || h.attack == "leaks") {
		return 0 // again, at once
	}
	return h.Module.Deadline()
}

// scribble writes noise over all memory that this process shares with its host and may write.
func scribble() {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		os.Exit(5)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		var perm string
		if !strings.Contains(lines.Text(), "memfd:fastpath-commands") {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &perm); err != nil || !strings.HasPrefix(perm, "rw") {
			continue
		}
		for mem := unsafe.Slice((*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&from))), (to-from)/8); ; {
			for i := range mem {
				mem[i] = rng.Uint64()
			}
		}
	}
	os.Exit(6) // nothing to write on would be no attack
}

// steady is connections that each want the same rate, whatever happens to others.
type steady struct {
	a, b  *stack.Stack
	arena *mem.Arena
	stop  atomic.Bool
	wg    sync.WaitGroup
	got   [2]atomic.Int64 // bytes read at the ports of the bystanders and of the victims
	mu    sync.Mutex
	errs  []error
}

const (
	bystanders, victims = 10, 3 // of each kind: by one port for each, those of the others are left alone
	victimPort          = port + 1
	flowRate            = 250_000 // bytes per second
)

func newSteady(t *testing.T) *steady {
	t.Helper()
	path := memlink.Path{Rate: 500e6, QueueBytes: 1 << 20, Delay: time.Millisecond}
	pa, pb, err := memlink.New(memlink.Config{AtoB: path, BtoA: path, Seed: 1, Now: stack.Monotonic{}.Now, Bufs: 8192})
	if err != nil {
		t.Fatal(err)
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s := &steady{arena: mem.NewArena(budget)}
	cfg := stack.Config{Port: pa, Arena: s.arena, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}
	if s.a, err = stack.New(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Port, cfg.Addrs = pb, []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}
	if s.b, err = stack.New(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// open makes n connections to a port, and has them send.
func (s *steady) open(t *testing.T, group, n int, port uint16) {
	t.Helper()
	ln, err := sock.Listen(s.b, "tcp", fmt.Sprintf("10.0.0.2:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	for i := range n {
		c, err := (&sock.Dialer{Stack: s.a}).DialContext(t.Context(), "tcp", fmt.Sprintf("10.0.0.2:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		seed := uint64(group*100 + i)
		s.wg.Go(func() { s.fail(s.send(c, seed)) })
		s.wg.Go(func() { s.fail(s.receive(in, group, seed)) })
	}
}

func (s *steady) fail(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}
}

// send sends what its seed says, as much as is due by the clock.
func (s *steady) send(c net.Conn, seed uint64) error {
	defer c.Close()
	src := rand.NewChaCha8([32]byte{0: byte(seed), 1: byte(seed >> 8)})
	buf := make([]byte, 64<<10)
	for sent, start := 0, time.Now(); !s.stop.Load(); time.Sleep(2 * time.Millisecond) {
		n := min(int(time.Since(start).Seconds()*flowRate)-sent, len(buf))
		src.Read(buf[:n]) // it never fails
		if _, err := c.Write(buf[:n]); err != nil {
			return fmt.Errorf("sender %d: %w", seed, err)
		}
		sent += n
	}
	return nil
}

func (s *steady) receive(c net.Conn, group int, seed uint64) error {
	defer c.Close()
	src := rand.NewChaCha8([32]byte{0: byte(seed), 1: byte(seed >> 8)})
	buf, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := 0; ; {
		n, err := c.Read(buf)
		src.Read(want[:n])
		if !slices.Equal(buf[:n], want[:n]) {
			return fmt.Errorf("receiver %d: wrong bytes within %d of %d", seed, n, at)
		}
		at += n
		s.got[group].Add(int64(n))
		if err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("receiver %d: %w", seed, err)
		}
	}
}

// goodput runs f, and for at least d, and says how much the two groups got meanwhile, as a share of what they want.
func (s *steady) goodput(d time.Duration, f func()) (other, own float64) {
	start, a, b := time.Now(), s.got[0].Load(), s.got[1].Load()
	f()
	time.Sleep(d - time.Since(start))
	took := time.Since(start).Seconds()
	return float64(s.got[0].Load()-a) / (took * flowRate * bystanders), float64(s.got[1].Load()-b) / (took * flowRate * victims * float64(plugins.NumKinds))
}

// A hostile module of each kind ends in a rejection that is told, with its cause; the flows of other modules, in processes too, get on as
// before. The attacked flows go on with the fallback, and every byte of all is right.
func TestHostile(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, a := range attacks {
		for k := range plugins.NumKinds {
			if err := os.Symlink(exe, filepath.Join(dir, fmt.Sprintf("fastpath-%v-%s", k, hostileName(a.name)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := newSteady(t)
	// The ring takes more at once than a module may write in the longest time that a turn counts for: a flood shows on a busy machine, too.
	cfg := host.Config{Engine: s.a, RunDir: t.TempDir(), PluginDir: dir, AllowUnpinned: true, Ring: 1 << 14,
		Isolation: host.Isolation{Launcher: []string{"launch"}, Memory: 48 << 20}}
	for k := range plugins.NumKinds {
		cfg.Together = append(cfg.Together, k) // the bystanders' modules, as by default
		cfg.Use = append(cfg.Use, host.Use{Spec: host.Spec{Kind: k, Name: inUse[k], Placement: host.Process}, Guard: host.Guard{Late: late, Dead: dead / 2},
			Restart: host.Restart{Min: time.Millisecond, Max: 2 * time.Millisecond, Limit: 1}})
	}
	m, err := host.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	told := map[string][]string{} // by module: what happened
	id := func(k plugins.Kind, name string) string { return k.String() + "/" + name }
	m.OnEvent(func(e host.Event) {
		mu.Lock()
		defer mu.Unlock()
		told[id(e.Kind, e.Name)] = append(told[id(e.Kind, e.Name)], e.What+": "+e.Detail)
	})
	what := func(k plugins.Kind, attack string) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told[id(k, hostileName(attack))])
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.open(t, 0, bystanders, port)
	for k := range plugins.NumKinds {
		s.open(t, 1, victims, victimPort+uint16(k))
	}
	time.Sleep(200 * time.Millisecond)
	calm, _ := s.goodput(time.Second, func() {})
	all, _ := s.goodput(0, func() {
		for _, a := range attacks {
			other, own := s.goodput(300*time.Millisecond, func() {
				for k := range plugins.NumKinds {
					_, err := m.Swap(t.Context(), k, hostileName(a.name), plugins.Selection{PeerPort: victimPort + uint16(k)})
					if (err != nil) != (a.what == host.Refused) {
						t.Errorf("%v %s: the swap: %v", k, a.name, err)
					}
				}
				for k := range plugins.NumKinds {
					if !within(10*time.Second, func() bool {
						return slices.ContainsFunc(what(k, a.name), func(e string) bool { return strings.HasPrefix(e, a.what+": ") && strings.Contains(e, a.cause) })
					}) {
						t.Errorf("%v %s: nothing was %q by %q: %q", k, a.name, a.what, a.cause, what(k, a.name))
					}
				}
			})
			t.Logf("%-7s goodput of others %.3f of before, of its own flows %.2f of what they want", a.name, other/calm, own)
		}
	})
	// Who wants a rate gets what a busy machine has kept back afterwards: only a lasting disturbance shows.
	if t.Logf("goodput of others while all attacks last: %.3f of before", all/calm); all < 0.95*calm {
		t.Error("others are disturbed")
	}
	for k, name := range inUse {
		if _, err := m.Swap(t.Context(), plugins.Kind(k), name, plugins.Selection{}); err != nil {
			t.Error(err)
		}
	}
	s.stop.Store(true)
	s.wg.Wait()
	for _, err := range s.errs {
		t.Error(err)
	}
	for _, c := range []io.Closer{m, s.a, s.b, s.arena} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if !within(20*time.Second, func() bool { return len(children(t)) == 0 }) {
		t.Errorf("children left: %v", children(t))
	}
}
