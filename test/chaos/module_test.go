package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// Signals that make a module of this binary misbehave.
const (
	sigHang    = unix.SIGUSR1 // never returns from Poll
	sigCorrupt = unix.SIGUSR2 // answers noise
)

var hang, corrupt atomic.Bool

// The test binary is its own module binary, as the daemon's is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "launch" {
		fmt.Fprintln(os.Stderr, host.Launch(os.Args[2:]))
		os.Exit(1)
	}
	for k := range plugins.NumKinds {
		if attack, ok := strings.CutPrefix(filepath.Base(os.Args[0]), fmt.Sprintf("fastpath-%v-%s", k, hostileName(""))); ok {
			serveHostile(k, attack)
			os.Exit(0)
		}
	}
	if len(os.Args) >= 4 && os.Args[1] == "plugin" {
		serve(os.Args[2:])
		os.Exit(0)
	}
	if len(os.Args) == 1 && filepath.Base(os.Args[0]) == "fastpath-cong-reno" { // an upgrade
		sdk.Serve(upgrade())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve serves the modules of args, KIND NAME each.
func serve(args []string) {
	var all []sdk.Module
	for i := 0; i+1 < len(args); i += 2 {
		all = append(all, module(args[i], args[i+1]))
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, sigHang, sigCorrupt)
	go func() {
		for s := range c {
			if s == sigHang {
				hang.Store(true)
			} else {
				corrupt.Store(true)
			}
		}
	}()
	sdk.Serve(all...)
}

func module(kind, name string) sdk.Module {
	k, err := plugins.ParseKind(kind)
	if name == snailName {
		return snail
	}
	e, ok := builtin.Find(k, name)
	if err != nil || !ok {
		fmt.Fprintln(os.Stderr, kind, name, "is not built in")
		os.Exit(1)
	}
	m := sdk.Module{Info: e.Info}
	switch k {
	case plugins.Rtx:
		m.Rtx = wrap(e.Rtx)
	case plugins.Pace:
		m.Pace = wrap(e.Pace)
	case plugins.Cong:
		m.Cong = wrap(e.Cong)
	}
	return m
}

// upgrade is what this binary serves as another version of reno: its last byte says which.
func upgrade() sdk.Module {
	m := snail
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil && b[len(b)-1] != goodUpgrade {
		m.Info = plugins.Info{Kind: plugins.Cong, Name: "reno", Version: "99.0.0"}
		return m
	}
	m = module("cong", "reno")
	m.Info.Version = "2.0.0"
	return m
}

// Last bytes of upgrades of reno.
const (
	goodUpgrade = 'g'
	badUpgrade  = 'b' // a snail
)

const snailName = "snail"

// snail has a congestion window of one segment.
var snail = sdk.Module{Info: plugins.Info{Kind: plugins.Cong, Name: snailName, Version: "1.0.0"},
	Cong: func(plugins.Params, uint64) (cong.Module, error) {
		return cong.Each(func(_ *struct{}, in *cong.Sample, out *cong.Decision) { out.Cwnd, out.Ssthresh = in.MSS, in.MSS }), nil
	}}

// sick is a module that misbehaves when it is told to.
type sick[E, C any] struct {
	plugins.Module[E, C]
	rng *rand.Rand
}

func wrap[E, C any, N ~func(plugins.Params, uint64) (plugins.Module[E, C], error)](make N) func(plugins.Params, uint64) (plugins.Module[E, C], error) {
	return func(p plugins.Params, seed uint64) (plugins.Module[E, C], error) {
		m, err := make(p, seed)
		return &sick[E, C]{m, rand.New(rand.NewPCG(seed, 1))}, err
	}
}

func (s *sick[E, C]) Poll(now plugins.Time, in []E, out []C) int {
	if hang.Load() {
		select {}
	}
	n := s.Module.Poll(now, in, out)
	if corrupt.Load() && len(in) > 0 && len(out) > 0 {
		n = max(n, 1)
		noise := unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), unsafe.Sizeof(out[0]))
		for i := range noise {
			noise[i] = byte(s.rng.Uint32())
		}
	}
	return n
}
