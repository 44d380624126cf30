package sim

import (
	"bytes"
	"math"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// lossPoint is the goodput of one run in Mbit/s, at a random loss in per cent.
type lossPoint struct{ percent, mbit float64 }

// What was published of 100 Mbit/s, 100 ms (facts P1 to P3): BBR delivers what the loss leaves up to 5 %, and is close to it at 15 %; CUBIC's
// rate is a tenth at 0.1 %, and 3 Mbit/s at 1 %.
var (
	publishedBBR   = []lossPoint{{0.1, 99.9}, {1, 99}, {2, 98}, {5, 95}, {15, 85}}
	publishedCubic = []lossPoint{{0.1, 10}, {1, 3}}
)

// lossLeft is where no loss is drawn on the axis, which is logarithmic.
const lossLeft = 0.01

// lossPlot draws goodput over loss: ours as lines with dots, what was published as rings, the ceiling link·(1-p) and CUBIC's response
// function (RFC 9438, 5.1, and where it is larger Reno's 1.2/√p) dashed.
func lossPlot(t *testing.T, ours map[string][]lossPoint) []byte {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := plot.New()
	p.Title.Text = "100 Mbit/s, 100 ms, a queue of one BDP: payload delivered over random loss"
	p.X.Label.Text, p.Y.Label.Text = "frames lost at random [%]", "Mbit/s"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks{{Value: lossLeft, Label: "0"}, {Value: 0.1, Label: "0.1"}, {Value: 1, Label: "1"}, {Value: 2, Label: "2"},
		{Value: 5, Label: "5"}, {Value: 10, Label: "10"}, {Value: 20, Label: "20"}}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lossLeft, 25, 0, 105
	p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, 0.7*vg.Inch, 1.2*vg.Inch
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(9), vg.Points(2)
	p.Add(plotter.NewGrid())
	curve := func(name string, colour int, f func(p float64) float64) {
		var xy plotter.XYs
		for x := 0.02; x <= 20; x *= 1.1 {
			xy = append(xy, plotter.XY{X: x, Y: math.Min(f(x/100), 100)})
		}
		l, err := plotter.NewLine(xy)
		must(err)
		l.Color, l.Dashes = colours[colour], dashes
		p.Add(l)
		p.Legend.Add(name, l)
	}
	curve("link·(1−p)", 6, func(p float64) float64 { return 100 * (1 - p) })
	curve("RFC 9438's response function", 1, func(p float64) float64 {
		w := math.Max(1.054*math.Pow(0.1/p, 0.75), 1.2/math.Sqrt(p))
		return w * segPayload * 8 / 0.1 / 1e6
	})
	rings := func(name string, colour int, points []lossPoint) {
		var xy plotter.XYs
		for _, q := range points {
			xy = append(xy, plotter.XY{X: q.percent, Y: q.mbit})
		}
		s, err := plotter.NewScatter(xy)
		must(err)
		s.GlyphStyle = draw.GlyphStyle{Color: colours[colour], Radius: vg.Points(5), Shape: draw.RingGlyph{}}
		p.Add(s)
		p.Legend.Add(name, s)
	}
	rings("BBR, published", 0, publishedBBR)
	rings("CUBIC, published", 1, publishedCubic)
	for i, cc := range []string{"bbr", "cubic", "bbr3"} {
		var xy plotter.XYs
		for _, q := range ours[cc] {
			xy = append(xy, plotter.XY{X: math.Max(q.percent, lossLeft), Y: q.mbit})
		}
		l, s, err := plotter.NewLinePoints(xy)
		must(err)
		l.Color = colours[i]
		s.GlyphStyle = draw.GlyphStyle{Color: colours[i], Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
		p.Add(l, s)
		p.Legend.Add(cc+", fastpath", l, s)
	}
	c := vgsvg.New(8*vg.Inch, 5*vg.Inch)
	p.Draw(draw.New(c))
	var svg bytes.Buffer
	_, err := c.WriteTo(&svg)
	must(err)
	return svg.Bytes()
}
