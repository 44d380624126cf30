package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/capture"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd/pcap"
	"github.com/fastpath-tcp/fastpath/pmd/trace"
)

const (
	drainEvery    = 2 * time.Millisecond
	captureMemory = 16 << 20 // bytes of copies that a queue keeps at most
)

// Capture implements control.Handler.
func (d *Daemon) Capture(ctx context.Context, r control.CaptureRequest, emit func(control.Frame) error) (*control.CaptureSummary, error) {
	filter, err := capture.Parse(r.Filter)
	if err != nil {
		return nil, control.Refuse("%v", err)
	}
	var seen atomic.Uint64
	keep := func(frame []byte) bool {
		seen.Add(1)
		return filter.Match(frame)
	}
	runs, err := d.startCaptures(r, keep)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, c := range runs {
			c.Stop()
		}
	}()
	sum := &control.CaptureSummary{}
	err = d.drainCaptures(ctx, r, runs, sum, emit)
	for _, c := range runs {
		c.Stop()
		sum.Dropped += c.Dropped()
	}
	sum.Seen = seen.Load()
	if errors.Is(err, errComplete) {
		err = nil
	}
	return sum, err
}

// startCaptures arms the wanted ports, all or none.
func (d *Daemon) startCaptures(r control.CaptureRequest, keep func([]byte) bool) (runs map[*port]*trace.Capture, err error) {
	runs = map[*port]*trace.Capture{}
	defer func() {
		if err != nil {
			for _, c := range runs {
				c.Stop()
			}
		}
	}()
	for _, p := range d.ports {
		if r.Port != "" && p.conf.Name != r.Port {
			continue
		}
		whole := p.trace.Info().MTU + 18 // Ethernet header and VLAN tag
		snap := whole
		if r.SnapLen > 0 {
			snap = min(r.SnapLen, whole)
		}
		slots := 1024
		for slots < 1<<15 && 2*slots*snap <= captureMemory {
			slots *= 2
		}
		c, err := p.trace.Start(trace.Options{Keep: keep, Snap: snap, Slots: slots})
		if errors.Is(err, trace.ErrBusy) {
			return runs, control.Refuse("a capture is running on port %s already", p.conf.Name)
		}
		if err != nil {
			return runs, err
		}
		runs[p] = c
	}
	if len(runs) == 0 {
		return runs, control.Refuse("there is no port %q", r.Port)
	}
	return runs, nil
}

// errComplete says that a capture has its count of frames.
var errComplete = errors.New("the capture is complete")

// drainCaptures passes frames on until there are enough, ctx ends or the daemon stops.
func (d *Daemon) drainCaptures(ctx context.Context, r control.CaptureRequest, runs map[*port]*trace.Capture, sum *control.CaptureSummary,
	emit func(control.Frame) error,
) error {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		ended := ctx.Err() != nil
		if ended { // what was copied until now is still passed on
			for _, c := range runs {
				c.Stop()
			}
		}
		for p, c := range runs {
			ended = ended || c.Stopped()
			if _, err := c.Each(func(f trace.Frame) error {
				if r.Count > 0 && sum.Captured == uint64(r.Count) {
					return errComplete
				}
				sum.Captured++
				return emit(control.Frame{TimeUnixNS: d.epoch + int64(f.At), Port: p.conf.Name, Dir: direction(f.Dir), LengthBytes: f.Length, Data: f.Data})
			}); err != nil {
				return err
			}
		}
		if r.Count > 0 && sum.Captured == uint64(r.Count) || ended {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func direction(d pcap.Direction) string {
	if d == pcap.Out {
		return control.DirOut
	}
	return control.DirIn
}
