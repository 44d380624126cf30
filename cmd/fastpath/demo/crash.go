package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// crash kills the process of the module that serves, or that will serve again: on a busy machine it may be late just now.
func (d *demo) crash(ctx context.Context) error {
	var m control.Module
	if err := d.eventually(ctx, 10*time.Second, func() (err error) {
		m, err = d.module(ctx, "cdg")
		return err
	}); err != nil {
		return err
	}
	d.result.killed = time.Now()
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing module cdg, process %d: %w", m.PID, err)
	}
	d.result.KilledPID = m.PID
	d.mark("module killed")
	return nil
}

// recovered waits until a new process of the killed module serves, and takes the times from the daemon's events.
func (d *demo) recovered(ctx context.Context) error {
	if err := d.eventually(ctx, 20*time.Second, func() error {
		m, err := d.module(ctx, "cdg")
		if err == nil && m.PID == d.result.KilledPID {
			err = fmt.Errorf("module cdg, process %d, was not killed", m.PID)
		}
		if err == nil {
			d.result.RecoveredPID = m.PID
		}
		return err
	}); err != nil {
		return err
	}
	var fellBack, returned time.Time
	err := d.events(ctx, func(e control.Event) {
		at := time.Unix(0, e.TimeUnixNS)
		if at.Before(d.result.killed) {
			return
		}
		switch {
		case e.Kind == control.EventDead && fellBack.IsZero():
			fellBack = at
		case e.Kind == control.EventReturn && returned.IsZero():
			returned = at
		}
	})
	if err != nil {
		return err
	}
	if fellBack.IsZero() || returned.IsZero() {
		return fmt.Errorf("the daemon's events do not tell of the fallback (%v) and of the return (%v)", !fellBack.IsZero(), !returned.IsZero())
	}
	d.series.Mark(returned, "module back")
	d.result.FallbackUsec = float64(fellBack.Sub(d.result.killed).Nanoseconds()) / 1e3
	d.result.RecoveryMsec = float64(returned.Sub(d.result.killed).Nanoseconds()) / 1e6
	return nil
}

// events calls f for each of the daemon's events so far.
func (d *demo) events(ctx context.Context, f func(control.Event)) error {
	c, err := control.Dial(ctx, d.server.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Stream(ctx, control.OpEvents, control.EventsRequest{}, func(b json.RawMessage) error {
		var e control.Event
		if err := json.Unmarshal(b, &e); err != nil {
			return err
		}
		f(e)
		return nil
	}, nil)
}
