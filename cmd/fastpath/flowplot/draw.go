package flowplot

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

var (
	lineColor = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	markColor = color.RGBA{R: 0xc0, G: 0x30, B: 0x20, A: 0xff}
)

// Plot draws delivery rate, window and round-trip time one above the other, with the marks as vertical lines, as SVG.
func (s *Series) Plot(path, title string) error {
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
		addMarks(pl, s.marks, t0, len(rows) == 0)
		rows = append(rows, []*plot.Plot{pl})
	}
	rows[0][0].Title.Text = title
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
