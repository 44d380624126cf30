// Package daemon is `fastpath run`: it builds ports, stacks, modules and applications from a configuration, serves until it is told
// to stop, and answers the control socket.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/host"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// Options of a daemon.
type Options struct {
	Config  string       // path of the configuration, for `ctl info`
	Version string       // for `ctl info`
	Log     *slog.Logger // default: what the configuration says, on standard error
	Force   bool         // ports may be on devices that carry the machine's default route
}

// Daemon is a running daemon.
type Daemon struct {
	conf    *conf.Config
	opts    Options
	log     *slog.Logger
	started time.Time
	machine control.MachineStat // at the start
	epoch   int64               // Unix time in ns at which the stacks' clock is 0

	budget  *mem.Budget
	arena   *mem.Arena
	buffers int64 // bytes of packet buffers, which the budget holds from start to end
	ports   []*port
	engine  *engine
	modules *host.Manager
	names   *moduleNames
	network *network
	rules   rules
	apps    []*app
	counts  apps.Counts
	events  *events
	control *control.Server
	metrics net.Addr   // where they are served; nil if they are not
	failed  chan error // the first application that ended by itself

	undo []func() error // what Stop does, last first
	stop sync.Once
	err  error
}

// port is a [[port]] with its stack.
type port struct {
	conf  *conf.Port
	trace *trace.Port
	stack *stack.Stack
	first int // number of its first worker, counted over all ports
}

// Run runs the daemon that c describes until ctx ends, and then stops it, which takes the configured time to drain at most. It returns
// nil after an orderly end.
func Run(ctx context.Context, c *conf.Config, o Options) error {
	d, err := Start(ctx, c, o)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // told to stop before it served
		}
		return err
	}
	d.notify("READY=1", fmt.Sprintf("STATUS=serving on %d ports with %d workers", len(d.ports), d.engine.Workers()))
	select {
	case <-ctx.Done():
	case err = <-d.failed:
		d.log.Error("stopping", "err", err)
	}
	d.notify("STOPPING=1", "STATUS=connections may finish for "+d.conf.Shutdown.Drain.String())
	return errors.Join(err, d.Stop())
}

// Start starts a daemon. When it returns without an error everything is up: applications listen, modules are in use, the control
// socket answers. An error names its cause, and nothing of the daemon is left then.
func Start(ctx context.Context, c *conf.Config, o Options) (_ *Daemon, err error) {
	if o.Log == nil {
		o.Log = Logger(c.Log, os.Stderr)
	}
	d := &Daemon{conf: c, opts: o, log: o.Log, events: newEvents(), failed: make(chan error, 1)}
	d.started = time.Now()
	d.machine = readMachine()
	d.epoch = d.started.UnixNano() - int64(stack.Monotonic{}.Now())
	defer func() {
		if err == nil {
			return
		}
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			d.log.Info("stopped before it served", "was", err)
		}
		err = errors.Join(err, d.unwind())
	}()
	if err := d.check(); err != nil {
		return nil, err
	}
	// The control socket comes first: its lock keeps a second daemon from the ports. It answers when all is up.
	if d.control, err = control.Listen(c.Control.Socket, d, d.log); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	d.onStop(d.control.Close)
	for _, step := range []func(context.Context) error{
		d.setMemory, d.openPorts, d.startStacks, d.startDHCP, d.startFilter, d.startModules, d.startMetrics, d.startApps,
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	d.startMonitor()
	go func() {
		if err := d.control.Serve(); err != nil {
			d.log.Error("control socket", "err", err)
		}
	}()
	d.events.add(control.EventStart, fmt.Sprintf("serving on %d ports with %d workers", len(d.ports), d.engine.Workers()),
		"pid", os.Getpid(), "version", o.Version)
	d.log.Info("serving", "ports", len(d.ports), "workers", d.engine.Workers(), "apps", len(d.apps), "control", c.Control.Socket)
	return d, nil
}

// check compares the configuration with this machine and this program.
func (d *Daemon) check() error {
	m, err := conf.ReadMachine("")
	if err != nil {
		return err
	}
	m.Force = d.opts.Force
	errs, warnings := conf.Check(d.conf, m, builtin.Checker)
	for _, w := range warnings {
		d.log.Warn(w.Message, "key", w.Key, "line", w.Line)
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

func isBuiltin(k plugins.Kind, name string) bool {
	_, ok := builtin.Find(k, name)
	return ok
}

// onStop has f called when the daemon stops, before what was noted earlier.
func (d *Daemon) onStop(f func() error) { d.undo = append(d.undo, f) }

func (d *Daemon) unwind() error {
	var errs []error
	for i := len(d.undo) - 1; i >= 0; i-- {
		errs = append(errs, d.undo[i]())
	}
	d.undo = nil
	return errors.Join(errs...)
}

// Stop stops listening, lets connections finish for the configured time, resets those that are left, and then ends modules, stacks and
// ports. Further calls return the same.
func (d *Daemon) Stop() error {
	d.stop.Do(func() {
		began := time.Now()
		d.events.add(control.EventStop, fmt.Sprintf("draining for up to %v", d.conf.Shutdown.Drain))
		d.log.Info("stopping", "drain", d.conf.Shutdown.Drain.D())
		d.drain()
		d.err = d.unwind()
		d.log.Info("stopped", "took", time.Since(began).Round(time.Millisecond))
	})
	return d.err
}

// drain stops the applications and waits until their connections are closed at both ends, as long as the configuration allows.
func (d *Daemon) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), d.conf.Shutdown.Drain.D())
	defer cancel()
	d.stopApps(ctx)
	for _, p := range d.ports {
		if err := p.stack.Drain(ctx); err != nil {
			d.log.Info("connections reset at shutdown", "port", p.conf.Name, "err", err)
		}
	}
}
