package daemon

import (
	"context"
	"fmt"
	"sync"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/conf"
)

// app is a running [[app]].
type app struct {
	name     string
	serve    func() error
	shutdown func(context.Context) error
	ended    chan struct{}
}

// openApp makes the application that c describes listen.
func (d *Daemon) openApp(ctx context.Context, c conf.App) (*app, error) {
	run := &app{name: c.Name, ended: make(chan struct{})}
	if c.UDP() {
		a, err := apps.NewPacket(c, d.log)
		if err != nil {
			return nil, err
		}
		cs, err := d.network.ListenPacket(ctx, c.Listen)
		if err != nil {
			return nil, err
		}
		run.serve, run.shutdown = func() error { return a.ServePackets(cs) }, a.Shutdown
		return run, nil
	}
	a, err := apps.New(c, d.network, &d.counts, d.log)
	if err != nil {
		return nil, err
	}
	l, err := d.network.Listen(ctx, c.Listen)
	if err != nil {
		return nil, err
	}
	run.serve, run.shutdown = func() error { return a.Serve(l) }, a.Shutdown
	return run, nil
}

// startApps makes all applications listen and serve.
func (d *Daemon) startApps(ctx context.Context) error {
	d.network = &network{ports: d.ports, backlog: d.conf.TCP.Backlog, keepAlive: d.conf.TCP.KeepAlive}
	d.onStop(func() error { // for a start that fails half way; after drain there is nothing left to do
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		d.stopApps(ctx)
		return nil
	})
	for i, c := range d.conf.Apps {
		run, err := d.openApp(ctx, c)
		if err != nil {
			return fmt.Errorf("app[%d] %q: %w", i, c.Name, err)
		}
		d.apps = append(d.apps, run)
		go func() {
			defer close(run.ended)
			if err := run.serve(); err != nil {
				select {
				case d.failed <- fmt.Errorf("app %q: %w", c.Name, err):
				default: // another one is the reason for the end
				}
			}
		}()
		d.log.Info("listening", "app", c.Name, "kind", c.Kind, "addr", c.Listen)
	}
	return nil
}

// stopApps stops the listeners, and returns when the last connection is closed, or reset because ctx has ended.
func (d *Daemon) stopApps(ctx context.Context) {
	var wg sync.WaitGroup
	for _, a := range d.apps {
		wg.Go(func() {
			if err := a.shutdown(ctx); err != nil && ctx.Err() == nil {
				d.log.Warn("stopping", "app", a.name, "err", err)
			}
			<-a.ended
		})
	}
	wg.Wait()
	d.apps = nil
}
