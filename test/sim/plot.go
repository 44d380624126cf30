package sim

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
)

// colours are those of Okabe and Ito, which the colour-blind can tell apart.
var colours = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255},
}

var dashes = []vg.Length{vg.Points(3), vg.Points(2)}

// maxPoints is how many points of a line are drawn.
const maxPoints = 2000

// panel is one of the plots that stand below each other.
type panel struct {
	*plot.Plot
	err error
}

func newPanel(y, lines string) *panel {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = lines, y
	p.Title.TextStyle.Font.Size = vg.Points(9)
	p.X.Label.Text = "time [s]"
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(9), vg.Points(9)
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Top = true
	p.Legend.Padding, p.Legend.ThumbnailWidth = vg.Points(2), vg.Points(16)
	p.Legend.TextStyle.Font.Size = vg.Points(8)
	p.Add(plotter.NewGrid())
	return &panel{Plot: p}
}

// line adds a line to the panel, and to its legend if it has a name.
func (p *panel) line(name string, xy plotter.XYs, colour int, dashed bool) {
	if len(xy) == 0 {
		return
	}
	step := (len(xy) + maxPoints - 1) / maxPoints
	thin := make(plotter.XYs, 0, maxPoints)
	for i := 0; i < len(xy); i += step {
		thin = append(thin, xy[i])
	}
	l, err := plotter.NewLine(thin)
	if err != nil {
		p.err = err
		return
	}
	l.Color = colours[colour%len(colours)]
	l.Width = vg.Points(0.8 * float64(1+colour/len(colours))) // where there are more lines than colours, thicker ones
	if dashed {
		l.Dashes = dashes
	}
	p.Add(l)
	if name != "" {
		p.Legend.Add(name+"  ", l) // viewers with wider fonts
	}
}

// mark adds a vertical line at an event.
func (p *panel) mark(at float64) {
	l, err := plotter.NewLine(plotter.XYs{{X: at, Y: 0}, {X: at, Y: p.Y.Max}})
	if err != nil {
		p.err = err
		return
	}
	l.Color = color.Gray{128}
	l.Dashes = []vg.Length{vg.Points(1), vg.Points(2)}
	p.Add(l)
}

// WritePlot draws the time series of one or more runs as SVG, one below the other: rates, windows, smoothed round-trip time,
// retransmissions and losses, and the queue at the bottleneck. Dotted vertical lines are the scenario's events.
func WritePlot(w io.Writer, runs ...*Result) error {
	rate, window := newPanel("rate [Mbit/s]", "goodput (dashed: delivery rate)"), newPanel("window [kB]", "cwnd (dashed: in flight)")
	rtt := newPanel("srtt [ms]", "smoothed round-trip time")
	loss := newPanel("segments", "sent again, in all (dashed: marked lost)")
	queue := newPanel("queue [kB]", "waiting for the bottleneck, "+linkNames[0]+" (dashed: "+linkNames[1]+")")
	panels := []*panel{rate, window, rtt, loss, queue}
	title, colour := "", 0
	for i, r := range runs {
		rep := &r.Report
		if i > 0 {
			title += "  |  "
		}
		title += fmt.Sprintf("%s, seed %d", rep.Scenario, rep.Seed)
		prefix := ""
		if len(runs) > 1 {
			prefix = fmt.Sprintf("%d: ", i+1)
		}
		for f := range rep.Flows {
			drawFlow(panels, prefix+"flow "+rep.Flows[f].Name, r, f, colour)
			colour++
		}
		for d, name := range linkNames {
			if rep.Links[d].QueueMaxBytes > 0 {
				queue.line(prefix+name, r.queue(d), i, d == 1)
			}
		}
	}
	rate.Title.Text = title + ": " + rate.Title.Text
	for _, r := range runs {
		for _, e := range r.Report.Events {
			for _, p := range panels {
				p.mark(seconds(e.TimeNS))
			}
		}
	}
	return writeSVG(w, panels)
}

func drawFlow(panels []*panel, name string, r *Result, flow, colour int) {
	points := r.of(flow)
	xy := func(y func(p *report.Point) float64) (out plotter.XYs) {
		for i := range points {
			out = append(out, plotter.XY{X: seconds(points[i].TimeNS), Y: y(&points[i])})
		}
		return out
	}
	rate, window, rtt, loss := panels[0], panels[1], panels[2], panels[3]
	rate.line(name, goodput(points), colour, false)
	rate.line("", xy(func(p *report.Point) float64 { return float64(p.DeliveryBPS) / 1e6 }), colour, true)
	window.line("", xy(func(p *report.Point) float64 { return float64(p.CwndBytes) / 1e3 }), colour, false)
	window.line("", xy(func(p *report.Point) float64 { return float64(p.InFlightBytes) / 1e3 }), colour, true)
	rtt.line("", xy(func(p *report.Point) float64 { return float64(p.SRTTNS) / 1e6 }), colour, false)
	loss.line("", xy(func(p *report.Point) float64 { return float64(p.Retransmits) }), colour, false)
	loss.line("", xy(func(p *report.Point) float64 { return float64(p.Lost) }), colour, true)
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// of returns the points of a flow.
func (r *Result) of(flow int) (points []report.Point) {
	for i := range r.Points {
		if r.Points[i].Flow == flow {
			points = append(points, r.Points[i])
		}
	}
	return points
}

// goodputOver is the number of samples over which goodput is averaged: what the receiver gets after a gap is filled comes at once.
const goodputOver = 10

// goodput is what arrived lately, in Mbit/s.
func goodput(points []report.Point) (out plotter.XYs) {
	for i := goodputOver; i < len(points); i++ {
		p, q := &points[i-goodputOver], &points[i]
		if q.TimeNS > p.TimeNS {
			out = append(out, plotter.XY{X: seconds(q.TimeNS), Y: float64(q.DeliveredBytes-p.DeliveredBytes) * 8e3 / float64(q.TimeNS-p.TimeNS)})
		}
	}
	return out
}

func (r *Result) queue(direction int) (out plotter.XYs) {
	for i := range r.Links {
		out = append(out, plotter.XY{X: seconds(r.Links[i].TimeNS), Y: float64(r.Links[i].QueueBytes[direction]) / 1e3})
	}
	return out
}

// writeSVG draws the panels below each other, with their axes in line.
func writeSVG(w io.Writer, panels []*panel) error {
	const width, height = 10 * vg.Inch, 2.2 * vg.Inch
	end := 0.0
	for _, p := range panels {
		if p.err != nil {
			return fmt.Errorf("sim: plot: %w", p.err)
		}
		end = max(end, p.X.Max)
	}
	rows := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		p.X.Max = max(end, 1e-3)
		if p.Y.Max <= p.Y.Min {
			p.Y.Max = 1
		}
		rows[i] = []*plot.Plot{p.Plot}
	}
	c := vgsvg.New(width, height*vg.Length(len(panels)))
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadTop: 4, PadBottom: 4, PadLeft: 4, PadRight: 8, PadY: 6}
	canvases := plot.Align(rows, tiles, draw.New(c))
	for i := range panels {
		panels[i].Draw(canvases[i][0])
	}
	_, err := c.WriteTo(w)
	return err
}

// WriteCSV writes the time series.
func (r *Result) WriteCSV(w io.Writer) error {
	s, err := report.NewSeries(w)
	if err != nil {
		return err
	}
	for i := range r.Points {
		if err := s.Add(&r.Points[i]); err != nil {
			return err
		}
	}
	return s.Flush()
}
