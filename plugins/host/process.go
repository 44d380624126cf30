package host

import (
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
	dir    string // its sockets
	info   plugins.Info
	path   string
	sha    string
}

// launch starts a module process and lets it describe itself, attach and run its first turn. On an error nothing is left.
func (m *Manager) launch(ctx context.Context, s *Spec, b *binary) (_ *process, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.StartTimeout)
	defer cancel()
	p := &process{path: b.path, sha: b.sha}
	defer func() {
		if err != nil {
			p.stop()
			p.free()
		}
	}()
	geo := m.cfg.geometry()
	if p.region, err = link.NewRegion(s.Kind, geo); err != nil {
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
	control, err := p.handshake(ctx, m, s, b)
	if err != nil {
		return nil, err
	}
	if err := p.describe(ctx, s, control); err != nil {
		return nil, err
	}
	req := &link.AttachRequest{Geometry: geo, Params: s.Params, CPUs: m.use[s.Kind].CPUs, Spin: m.spin(s.Kind), Lockstep: m.cfg.Lockstep}
	for w := range geo.Workers {
		req.Seeds = append(req.Seeds, m.cfg.seed(s.Kind, w))
	}
	if err := control.Attach(ctx, req); err != nil {
		return nil, refusal(err)
	}
	return p, nil
}

// handshake starts the process through go-plugin and returns its control service.
func (p *process) handshake(ctx context.Context, m *Manager, s *Spec, b *binary) (*link.Client, error) {
	var tail tailBuffer
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  link.Handshake,
		VersionedPlugins: link.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     m.cfg.StartTimeout,
		UnixSocketConfig: m.cfg.Isolation.sockets(p.dir),
		Stderr:           &tail,
		Logger:           pluginLogger(m.cfg.Log.With("kind", s.Kind.String(), "module", s.Name), s.Name),
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
	return nil, p.explain(err, &tail)
}

// explain says what a failure of the start means.
func (p *process) explain(err error, tail *tailBuffer) error {
	var pe *os.PathError
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
		if c := p.child.Load(); c != nil {
			<-c.exited // go-plugin has killed it by now
			return fmt.Errorf("ends in the handshake: %s%s", c.ended(), tail.suffix())
		}
	case strings.Contains(text, "Unrecognized remote plugin message"):
		return fmt.Errorf("is no fastpath module: it does not shake hands%s", tail.suffix())
	}
	return fmt.Errorf("handshake: %w", err)
}

// describe checks that the process is the module that was asked for, of any name if none was, built for the same records.
func (p *process) describe(ctx context.Context, s *Spec, control *link.Client) error {
	d, err := control.Describe(ctx)
	if err != nil {
		return refusal(err)
	}
	if d.Kind != s.Kind.String() || s.Name != "" && d.Name != s.Name || !nameOK(d.Name) {
		return fmt.Errorf("%s is the module %s/%s", p.path, d.Kind, d.Name)
	}
	layout, err := link.Layout(s.Kind)
	if err != nil {
		return err
	}
	if d.Layout != layout {
		return fmt.Errorf("version %s was built for other %s records (layout %016x, this fastpath has %016x): rebuild it against this version of github.com/fastpath-tcp/fastpath",
			d.Version, d.Kind, d.Layout, layout)
	}
	p.info = plugins.Info{Kind: s.Kind, Name: d.Name, Version: d.Version, Params: d.Params}
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
