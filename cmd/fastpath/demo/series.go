package demo

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// series are the figures of the download's connection over time.
type series struct {
	mu     sync.Mutex
	at     []time.Time
	conns  []control.Conn
	cancel context.CancelFunc
	done   chan struct{}
}

// sampleEvery is how often the connection is looked at.
const sampleEvery = 50 * time.Millisecond

func (s *series) start(ctx context.Context, socket string) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.sample(ctx, socket)
			}
		}
	}()
}

// sample takes the connection that has sent most. A daemon that does not answer leaves a gap.
func (s *series) sample(ctx context.Context, socket string) {
	c, err := control.Dial(ctx, socket)
	if err != nil {
		return
	}
	defer c.Close()
	var r control.SSReply
	if err := c.Call(ctx, control.OpSS, control.SSRequest{States: []string{control.StateEstablished, control.StateFinWait1, control.StateCloseWait}}, &r); err != nil {
		return
	}
	var best *control.Conn
	for i := range r.Conns {
		if best == nil || r.Conns[i].SentBytes > best.SentBytes {
			best = &r.Conns[i]
		}
	}
	if best == nil || best.SentBytes == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Unix(0, r.TimeUnixNS))
	s.conns = append(s.conns, *best)
}

func (s *series) stop() {
	s.cancel()
	<-s.done
}

// last is the last sample; the zero Conn if there is none.
func (s *series) last() (c control.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.conns); n > 0 {
		c = s.conns[n-1]
	}
	return c
}

// plot draws delivery rate, window and round-trip time one above the other, with the marks as vertical lines.
func (s *series) plot(path string, marks []mark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.at) == 0 {
		return fmt.Errorf("the connection was never seen, there is nothing to plot")
	}
	t0 := s.at[0]
	var rows [][]*plot.Plot
	for _, p := range []struct {
		label string
		value func(*control.Conn) float64
	}{
		{"delivery rate (Mbit/s)", func(c *control.Conn) float64 { return float64(c.DeliveryBPS) / 1e6 }},
		{"cwnd (kB)", func(c *control.Conn) float64 { return float64(c.CwndBytes) / 1e3 }},
		{"srtt (ms)", func(c *control.Conn) float64 { return float64(c.SRTTNS) / 1e6 }},
	} {
		pl := plot.New()
		pl.Y.Label.Text = p.label
		pl.Y.Min = 0
		pts := make(plotter.XYs, len(s.at))
		for i := range s.at {
			pts[i] = plotter.XY{X: s.at[i].Sub(t0).Seconds(), Y: p.value(&s.conns[i])}
		}
		line, err := plotter.NewLine(pts)
		if err != nil {
			return err
		}
		line.Color = lineColor
		pl.Add(plotter.NewGrid(), line)
		addMarks(pl, marks, t0, len(rows) == 0)
		rows = append(rows, []*plot.Plot{pl})
	}
	rows[0][0].Title.Text = "download through the kernel's TCP"
	rows[2][0].X.Label.Text = "time (s)"
	return save(path, rows)
}

// addMarks draws vertical lines, with their texts in the uppermost plot only.
func addMarks(pl *plot.Plot, marks []mark, t0 time.Time, texts bool) {
	top := pl.Y.Max
	labels := plotter.XYLabels{}
	for i, m := range marks {
		x := m.at.Sub(t0).Seconds()
		if x < pl.X.Min || x > pl.X.Max {
			continue
		}
		l, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: top}})
		if err != nil {
			continue // two points are always a line
		}
		l.Color, l.Dashes = markColor, []vg.Length{vg.Points(4), vg.Points(3)}
		pl.Add(l)
		labels.XYs = append(labels.XYs, plotter.XY{X: x, Y: top * (0.30 - 0.12*float64(i%3))})
		labels.Labels = append(labels.Labels, " "+m.text)
	}
	if !texts {
		return
	}
	if l, err := plotter.NewLabels(labels); err == nil {
		pl.Add(l)
	}
}

func save(path string, rows [][]*plot.Plot) error {
	const width, height = 24 * vg.Centimeter, 22 * vg.Centimeter
	c := vgsvg.New(width, height)
	dc := draw.New(c)
	canvases := plot.Align(rows, draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Points(6), PadRight: vg.Points(12), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6)}, dc)
	for i := range rows {
		rows[i][0].Draw(canvases[i][0])
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
