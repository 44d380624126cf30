package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/sdk"
)

// The test binary is its own module binary: with arguments, as the daemon gets them, or with a mode of misbehaviour.
func TestMain(m *testing.M) {
	if len(os.Args) >= 4 && os.Args[1] == "plugin" {
		if err := ServeBuiltin(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "launch" {
		fmt.Fprintln(os.Stderr, Launch(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) == 1 && os.Args[0] == "fastpath-cong-third" { // as an upgrade
		testInfo.Version = "0.2.0"
		testModule("good")
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "test-module" {
		testModule(os.Args[2])
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "test-host" {
		testHost(os.Args[2])
	}
	os.Exit(m.Run())
}

// testHost is a daemon with one module process, in a run directory; it waits to be killed.
func testHost(dir string) {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	m, err := New(Config{Engine: &idleEngine{}, RunDir: dir, Use: []Use{{Spec: Spec{Kind: plugins.Cong, Name: "third", Placement: Process, Path: exe,
		Args: []string{"test-module", "good"}, AllowUnpinned: true}}}})
	if err == nil {
		err = m.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	fmt.Println(m.find("third", "active").PID)
	select {}
}

var testInfo = plugins.Info{Kind: plugins.Cong, Name: "third", Version: "0.1.0", Params: []plugins.Param{{Name: "cwnd", Type: "uint"}}}

// third answers every sample by a window that tells the sample.
func third(p plugins.Params, seed uint64) (cong.Module, error) {
	base := uint32(10_000)
	for k, v := range p {
		if k != "cwnd" {
			return nil, fmt.Errorf("unknown parameter %q", k)
		}
		if _, err := fmt.Sscan(v, &base); err != nil {
			return nil, err
		}
	}
	return cong.Each(func(n *uint32, in *cong.Sample, out *cong.Decision) {
		*n++
		out.Cwnd = base + *n
		out.Aux[0], out.Aux[1] = seed, uint64(in.Now)
	}), nil
}

func testModule(mode string) {
	m := sdk.Module{Info: testInfo, Cong: third}
	switch mode {
	case "good":
		sdk.Serve(m)
	case "logs":
		m.Cong = func(p plugins.Params, seed uint64) (cong.Module, error) {
			slog.Info("hello from the module", "answer", 42)
			return third(p, seed)
		}
		sdk.Serve(m)
	case "exit":
		fmt.Fprintln(os.Stderr, "library libfoo is missing")
		os.Exit(3)
	case "probe": // refuses its parameters, and says what it may not do
		m.Cong = func(plugins.Params, uint64) (cong.Module, error) { return nil, errors.New(mayNot()) }
		sdk.Serve(m)
	case "leak": // takes memory with each event, until it has none
		m.Cong = func(plugins.Params, uint64) (cong.Module, error) { return &leaker{}, nil }
		sdk.Serve(m)
	case "silent":
		time.Sleep(time.Minute)
	case "chatty":
		fmt.Println("hello, world")
		time.Sleep(time.Minute)
	case "protocol":
		old := map[int]plugin.PluginSet{7: {link.PluginName: &link.Plugin{}}}
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: link.Handshake, VersionedPlugins: old, GRPCServer: plugin.DefaultGRPCServer,
			Logger: hclog.NewNullLogger()})
	case "layout":
		serveRaw(&rawServer{layout: 1})
	case "needs":
		m.Info.Needs = []string{plugins.FeaturePacing, "telepathy"}
		sdk.Serve(m)
	case "name":
		m.Info.Name = "fourth"
		sdk.Serve(m)
	case "together":
		sdk.Serve(m, builtinModule(plugins.Rtx, "btree"), builtinModule(plugins.Pace, "edt"))
	case "together-liar":
		m.Cong = func(plugins.Params, uint64) (cong.Module, error) { return liar{}, nil }
		sdk.Serve(m, builtinModule(plugins.Rtx, "btree"), builtinModule(plugins.Pace, "edt"))
	case "together-twice", "together-many", "together-layout", "together-lazy":
		serveRaw(&rawServer{mode: mode, offers: offers(mode)})
	case "stuck":
		m.Cong = func(plugins.Params, uint64) (cong.Module, error) { return stuck{}, nil }
		sdk.Serve(m)
	default: // garbage of some kind, on the shared memory
		serveRaw(&rawServer{mode: mode})
	}
}

// mayNot says what this process may not do.
func mayNot() string {
	_, inet := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	nnp, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	var files, data unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	_ = unix.Getrlimit(unix.RLIMIT_DATA, &data)
	host := os.Getppid()
	var cpus unix.CPUSet
	_ = unix.SchedGetaffinity(0, &cpus)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	_ = unix.Capget(&head, &caps[0])
	_, fork := os.StartProcess("/proc/self/exe", []string{"x"}, &os.ProcAttr{})
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", host), os.O_RDWR, 0)
	if err == nil {
		_, err = mem.ReadAt(make([]byte, 1), 0x1000) // EIO if only the address is bad
	}
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("not refused: %v", err)
	} else {
		err = nil
	}
	seals, _ := unix.FcntlInt(link.ModuleFD, unix.F_GET_SEALS, 0)
	exe, _ := os.Readlink("/proc/self/exe")
	exe, _, _ = strings.Cut(exe, " ")
	env := 0
	for _, e := range os.Environ() {
		if k, _, _ := strings.Cut(e, "="); !strings.HasPrefix(k, "PLUGIN_") && !strings.HasPrefix(k, "GO") && k != link.Handshake.MagicCookieKey {
			env++
		}
	}
	return fmt.Sprintf("uid %d, inet %v, unshare %v, kill %v, stop self %v, affinity %v, fork %v, caps %x, memory of the host %v, nnp %d, files %d, data %d, "+
		"seals %d, exe %s, environment %d", os.Getuid(), inet, unix.Unshare(unix.CLONE_NEWNET), unix.Kill(host, 0), unix.Kill(os.Getpid(), 0),
		unix.SchedSetaffinity(host, &cpus), errors.Is(fork, unix.EPERM), caps[0].Permitted|caps[0].Effective, err, nnp, files.Max, data.Max>>20, seals, exe, env)
}

// leaker keeps a megabyte for each event.
type leaker struct{ kept [][]byte }

func (l *leaker) Poll(_ plugins.Time, in []cong.Sample, _ []cong.Decision) int {
	for range in {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		l.kept = append(l.kept, b)
	}
	return 0
}
func (*leaker) Deadline() plugins.Time { return plugins.Never }

type stuck struct{}

func (stuck) Poll(_ plugins.Time, in []cong.Sample, _ []cong.Decision) int {
	if len(in) > 0 {
		select {}
	}
	return 0
}
func (stuck) Deadline() plugins.Time { return plugins.Never }

// builtinModule is a module of the list as the SDK takes it.
func builtinModule(kind plugins.Kind, name string) sdk.Module {
	e, ok := builtin.Find(kind, name)
	if !ok {
		panic(name)
	}
	return sdk.Module{Info: e.Info, Rtx: e.Rtx, Pace: e.Pace, Cong: e.Cong}
}

// offers is what a process that serves several modules says, in some way that is wrong.
func offers(mode string) (all []link.Description) {
	for k, name := range [plugins.NumKinds]string{"btree", "edt", "third"} {
		l, err := link.Layout(plugins.Kind(k))
		if err != nil {
			panic(err)
		}
		if mode == "together-layout" && k == int(plugins.Pace) {
			l++
		}
		all = append(all, link.Description{Kind: plugins.Kind(k).String(), Name: name, Version: "6.6.6", Layout: l})
	}
	switch mode {
	case "together-twice":
		all = append(all, all[plugins.Rtx])
	case "together-many":
		for i := 0; len(all) < 1000; i++ {
			all = append(all, all[i])
		}
	}
	return all
}

func serveRaw(s *rawServer) {
	plugin.Serve(&plugin.ServeConfig{HandshakeConfig: link.Handshake, VersionedPlugins: link.Plugins(s), GRPCServer: plugin.DefaultGRPCServer,
		Logger: hclog.NewNullLogger()})
}

// rawServer is a module that does not use the SDK, and means no good.
type rawServer struct {
	layout uint64
	mode   string
	offers []link.Description
}

func (r *rawServer) Describe() (link.Descriptions, error) {
	if r.offers != nil {
		return link.Descriptions{Modules: r.offers}, nil
	}
	l, err := link.Layout(plugins.Cong)
	if r.layout != 0 {
		l = r.layout
	}
	return link.Descriptions{Modules: []link.Description{{Kind: "cong", Name: "third", Version: "6.6.6", Layout: l}}}, err
}

func (r *rawServer) Attach(req *link.AttachRequest) error {
	g, err := req.Shape()
	if err != nil {
		return err
	}
	host, module, err := link.MapInherited(g)
	if err != nil {
		return err
	}
	seg, err := link.Carve[cong.Sample, cong.Decision](plugins.Cong, g, host, module, 0)
	if err != nil {
		return err
	}
	seg.Module.Ran.Store(1)
	for w := 1; w < g.Workers; w++ {
		s, err := link.Carve[cong.Sample, cong.Decision](plugins.Cong, g, host, module, w)
		if err != nil {
			return err
		}
		s.Module.Ran.Store(1)
	}
	switch r.mode {
	case "together-lazy": // the others never run
	case "noise": // all of its memory, for ever
		block := len(module) / 8
		go func() {
			time.Sleep(50 * time.Millisecond)
			for rng := rand.New(rand.NewPCG(1, 2)); ; {
				i := rng.IntN(block) * 8
				for j := range 8 {
					module[i+j] = byte(rng.Uint32())
				}
			}
		}()
	case "records": // right cursors, wrong records
		go func() {
			time.Sleep(50 * time.Millisecond)
			l, _ := link.NewLane(liar{}, seg, false)
			for {
				l.Turn(link.Now())
			}
		}()
	default:
		return errors.New("no such mode")
	}
	return nil
}

// liar answers for flows that it was never given.
type liar struct{}

func (liar) Poll(_ plugins.Time, in []cong.Sample, out []cong.Decision) int {
	if len(in) == 0 || len(out) == 0 {
		return 0
	}
	out[0] = cong.Decision{Flow: plugins.Flow{Slot: 1 << 20, Gen: 1}, AsOf: 1, Cwnd: 1}
	return 1
}
func (liar) Deadline() plugins.Time { return plugins.Never }
