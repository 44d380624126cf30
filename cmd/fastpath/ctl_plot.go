package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/flowplot"
)

func (c *ctl) plot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plot -o FILE",
		Short: "Draw a connection over time: delivery rate, window, round-trip time",
		Long: `Draw a connection over time, as SVG: delivery rate, congestion window and round-trip time, with swaps and failures of modules as marks.
It waits for a connection that sends, takes of several the one that has sent most, and ends with it, after --for, or when it is interrupted.`,
		Example: `  fastpath ctl plot -o flow.svg --for 1m
  fastpath ctl plot -o flow.svg --local :80 --peer 10.7.0.0/24`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	file := f.StringP("out", "o", "", "file to write")
	limit := f.Duration("for", 0, "stop after so long (default: when the connection ends)")
	local := f.String("local", "", "only this local address or network, with :PORT or only :PORT")
	peer := f.String("peer", "", "only this peer address or network, with :PORT or only :PORT")
	_ = cmd.MarkFlagRequired("out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s := &flowplot.Series{Socket: c.socket}
		var err error
		if s.Select.Local, s.Select.LocalPort, err = parseSelector(*local); err != nil {
			return fmt.Errorf("--local: %w", err)
		}
		if s.Select.Peer, s.Select.PeerPort, err = parseSelector(*peer); err != nil {
			return fmt.Errorf("--peer: %w", err)
		}
		if err := writable(*file); err != nil { // before the connection is over
			return err
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		if *limit > 0 {
			defer time.AfterFunc(*limit, cancel).Stop()
		}
		if err := c.followFlow(ctx, s); err != nil {
			return errors.Join(err, os.Remove(*file))
		}
		n, span := s.Len()
		last := s.Last()
		if n == 0 {
			return errors.Join(errors.New("no connection has sent anything"), os.Remove(*file))
		}
		if err := s.Plot(*file, fmt.Sprintf("%s → %s", last.Local, last.Peer)); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d samples in %.1f s\n", *file, n, span.Seconds())
		return err
	}
	return cmd
}

func writable(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// followFlow samples until the connection has ended, or ctx has. Events that come meanwhile become marks.
func (c *ctl) followFlow(ctx context.Context, s *flowplot.Series) error {
	ctx, cancel := context.WithCancel(ctx)
	start := time.Now()
	events := make(chan struct{})
	defer func() { // no mark comes after the plot
		cancel()
		<-events
	}()
	go func() {
		defer close(events)
		_ = c.stream(ctx, control.OpEvents, control.EventsRequest{Follow: true, Last: 1}, func(item json.RawMessage) error {
			var e control.Event
			if err := json.Unmarshal(item, &e); err != nil {
				return err
			}
			if text := markOf(&e); text != "" && e.TimeUnixNS >= start.UnixNano() {
				s.Mark(time.Unix(0, e.TimeUnixNS), text)
			}
			return nil
		}, nil)
	}()
	tick := time.NewTicker(flowplot.Every)
	defer tick.Stop()
	for seen := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := s.Sample(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !seen:
			return err
		case err != nil, seen && !now:
			return nil
		}
		seen = now
	}
}

// markOf is what a plot says of an event; nothing of those that are not about modules.
func markOf(e *control.Event) string {
	switch e.Kind {
	case control.EventSwap:
		return e.Fields["from"] + " → " + e.Fields["module"]
	case control.EventRollback, control.EventLate, control.EventDead, control.EventFallback, control.EventReturn:
		return e.Fields["module"] + " " + e.Kind
	}
	return ""
}
