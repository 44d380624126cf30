package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// process is a module process that has passed all checks, with the memory that it shares with us.
type process struct {
	client *plugin.Client
	child  atomic.Pointer[child]
	region *link.Region
	geo    link.Geometry
	dir    string                         // its sockets
	infos  [plugins.NumKinds]plugins.Info // of those that it runs
	path   string
	sha    string
	shared
}

// launch starts a process that runs the modules of specs, at most one of each kind, and lets it describe itself, attach and run its first
// turn. On an error nothing is left.
func (m *Manager) launch(ctx context.Context, specs []Spec, b *binary) (_ *process, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StartTimeout)
	defer cancel()
	p := &process{path: b.path, sha: b.sha}
	defer func() {
		if err != nil {
			p.stop()
			p.free()
		}
	}()
	p.geo = m.cfg.geometry(specs)
	if p.region, err = link.NewRegion(p.geo); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp(m.dir, ""); err != nil {
		return nil, err
	}
	if uid := m.cfg.Isolation.UID; uid != 0 {
		if err := os.Chown(p.dir, uid, m.cfg.Isolation.GID); err != nil {
			return nil, err
		}
	}
	control, err := p.handshake(ctx, m, specs, b)
	if err != nil {
		return nil, err
	}
	if err := p.describe(ctx, specs, control); err != nil {
		return nil, err
	}
	kind := specs[0].Kind // of modules that share a process, all have the same processors
	req := &link.AttachRequest{Geometry: p.geo, CPUs: m.use[kind].CPUs, Spin: m.spin(kind), Lockstep: m.cfg.Lockstep}
	for i := range specs {
		s := &specs[i]
		c := link.Chosen{Kind: s.Kind.String(), Name: p.infos[s.Kind].Name, Params: s.Params}
		for w := range p.geo.Workers {
			c.Seeds = append(c.Seeds, m.cfg.seed(s.Kind, w))
		}
		req.Modules = append(req.Modules, c)
	}
	if err := control.Attach(ctx, req); err != nil {
		return nil, refusal(err)
	}
	return p, nil
}

// handshake starts the process through go-plugin and returns its control service.
func (p *process) handshake(ctx context.Context, m *Manager, specs []Spec, b *binary) (*link.Client, error) {
	kind, name := namesOf(specs)
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  link.Handshake,
		VersionedPlugins: link.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     m.cfg.StartTimeout,
		UnixSocketConfig: m.cfg.Isolation.sockets(p.dir),
		Logger:           pluginLogger(m.cfg.Log.With("kind", kind, "module", name), name),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			group, err := m.cgroups.group(filepath.Base(p.dir), m.cfg.Isolation.Memory)
			if err != nil {
				return nil, err
			}
			env := slices.Concat(cmd.Env, inheritedEnv(), m.cfg.Isolation.env())
			c, err := newChild(b.path, b.args, &m.cfg.Isolation, group, env, append(p.region.Files(), b.file))
			if err != nil {
				group.remove()
				return nil, err
			}
			p.child.Store(c)
			return c, nil
		},
	})
	// go-plugin's start knows no context: it fails when the process is killed.
	defer context.AfterFunc(ctx, func() {
		if c := p.child.Load(); c != nil {
			_ = c.Kill(context.Background())
		}
	})()
	rpc, err := p.client.Client()
	p.region.CloseFiles()
	if err == nil {
		var raw any
		if raw, err = rpc.Dispense(link.PluginName); err == nil {
			return raw.(*link.Client), nil
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("does not answer in time: %w", ctx.Err())
	}
	return nil, p.explain(err)
}

// explain says what a failure of the start means.
func (p *process) explain(err error) error {
	var pe *os.PathError
	c := p.child.Load()
	last := func() string { // what it has said last
		if c == nil {
			return ""
		}
		<-c.exited // go-plugin has killed it by now
		c.stderr.drain()
		return c.said.suffix()
	}
	text := err.Error()
	switch {
	case errors.As(err, &pe):
		return fmt.Errorf("cannot be started: %w", pe.Err)
	case strings.Contains(text, "incompatible API version"):
		_, versions, _ := strings.Cut(text, "Plugin version: ")
		version, _, _ := strings.Cut(versions, ",")
		return fmt.Errorf("speaks module protocol version %s, this fastpath speaks %d: rebuild the module with this version's SDK", version, link.ProtocolVersion)
	case strings.Contains(text, "timeout while waiting"):
		return errors.New("does not answer: no handshake in time")
	case strings.Contains(text, "Failed to read any lines"), strings.Contains(text, "plugin exited before"):
		if said := last(); c != nil {
			return fmt.Errorf("ends in the handshake: %s%s", c.ended(), said)
		}
	case strings.Contains(text, "Unrecognized remote plugin message"):
		return fmt.Errorf("is no fastpath module: it does not shake hands%s", last())
	}
	return fmt.Errorf("handshake: %w", err)
}

// namesOf joins the kinds and the names of modules that share a process.
func namesOf(specs []Spec) (kinds, names string) {
	var k, n []string
	for i := range specs {
		k, n = append(k, specs[i].Kind.String()), append(n, specs[i].Name)
	}
	return strings.Join(k, "+"), strings.Join(n, "+")
}

// describe checks that the process has the modules that are asked for, of any name if none was, built for the same records.
func (p *process) describe(ctx context.Context, specs []Spec, control *link.Client) error {
	all, err := control.Describe(ctx)
	if err != nil {
		return refusal(err)
	}
	for i := range specs {
		if err := p.pick(&specs[i], all); err != nil {
			return err
		}
	}
	return nil
}

// maxOffered is the largest number of modules of one binary.
const maxOffered = 64

// pick finds the module of s in what the process says that it has.
func (p *process) pick(s *Spec, all []link.Description) error {
	if len(all) > maxOffered {
		return fmt.Errorf("%s says that it is %d modules (at most %d)", p.path, len(all), maxOffered)
	}
	var found []link.Description
	var have []string
	for _, d := range all {
		if d.Kind == s.Kind.String() && (s.Name == "" || d.Name == s.Name) && nameOK(d.Name) {
			found = append(found, d)
		}
		have = append(have, fmt.Sprintf("%.64s/%.64s", d.Kind, d.Name))
	}
	switch {
	case len(found) == 0:
		return fmt.Errorf("%s is the module %s", p.path, cmp.Or(strings.Join(have, ", "), "of nothing"))
	case len(found) > 1:
		return fmt.Errorf("%s has more than one %v module %s: %s", p.path, s.Kind, s.Name, strings.Join(have, ", "))
	}
	d := &found[0]
	layout, err := link.Layout(s.Kind)
	if err != nil {
		return err
	}
	if d.Layout != layout {
		return fmt.Errorf("version %s was built for other %s records (layout %016x, this fastpath has %016x): rebuild it against this version of github.com/fastpath-tcp/fastpath",
			d.Version, d.Kind, d.Layout, layout)
	}
	if lacking := plugins.Lacking(d.Needs); len(lacking) > 0 {
		return fmt.Errorf("version %s needs %.200q of its host, this fastpath offers %q: it is for a later one", d.Version, lacking, plugins.Features())
	}
	p.infos[s.Kind] = plugins.Info{Kind: s.Kind, Name: d.Name, Version: d.Version, Params: d.Params, Needs: d.Needs}
	return nil
}

// refusal takes the gRPC wrapping off a module's answer.
func refusal(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.InvalidArgument:
		return fmt.Errorf("refuses its %s", st.Message())
	case codes.DeadlineExceeded:
		return errors.New("does not answer in time")
	}
	return errors.New(st.Message())
}

// stopTimeout is how long a module may take to end when asked to.
const stopTimeout = time.Second

// stop ends the process: gently, then by SIGKILL. The shared memory stays.
func (p *process) stop() {
	if p.client != nil && p.child.Load() != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.client.Kill()
		}()
		if !within(stopTimeout, done) {
			p.kill()
			<-done
		}
		p.kill()
	}
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// kill kills the process, if it still lives, and waits for its end.
func (p *process) kill() { _ = p.child.Load().Kill(context.Background()) }

// free unmaps the shared memory. No worker may touch it any more.
func (p *process) free() {
	if p.region != nil {
		p.region.CloseFiles()
		_ = p.region.Unmap()
		p.region = nil
	}
}

// inheritedEnv is what a module process gets of our environment besides go-plugin's variables: what Go's runtime is debugged by.
func inheritedEnv() (env []string) {
	for _, k := range []string{"GODEBUG", "GOTRACEBACK", "GOCOVERDIR"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// tailBuffer keeps the last bytes of a module's standard error, for the message when it fails to start.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 512

func (t *tailBuffer) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - tailSize; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(b), nil
}

// suffix returns ": " and the last line, if there is one.
func (t *tailBuffer) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.buf))
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	if s == "" {
		return ""
	}
	return ": " + s
}
