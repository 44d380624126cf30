package sim

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
)

// page is a report on contenders: a summary, and for each scenario its figures and plots. It needs nothing from elsewhere.
var page = template.Must(template.New("page").Funcs(template.FuncMap{"mbit": mbit, "ms": ms, "percent": percent, "again": again, "jain": fairness}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title><style>
body{font:14px/1.4 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:.8em 0}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}tr.subject{font-weight:bold}svg{width:100%;height:auto}
</style></head><body><h1>{{.Title}}</h1>
<p>The real stack on virtual time: the same scenario and seed give the same figures on every machine. All of it is repeated by
<code>{{.Command}}</code>.</p>
<h2>Goodput in Mbit/s</h2><table><tr><th></th>{{range .Names}}<th><a href="#{{.}}">{{.}}</a></th>{{end}}</tr>
{{range $row := .Summary}}<tr{{if .Subject}} class="subject"{{end}}><td>{{.Name}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{range .Scenarios}}<h2 id="{{.Name}}">{{.Name}}</h2><p>{{.Description}} Seed {{.Seed}}.</p>
<table><tr><th></th><th>goodput Mbit/s</th><th>link used</th><th>RTT p50</th><th>p95</th><th>queue, mean</th><th>sent again</th><th>RTOs</th><th>fairness</th></tr>
{{range .Trials}}<tr{{if .Subject}} class="subject"{{end}}><td>{{.Contender}}</td><td>{{mbit .GoodputBPS}}</td><td>{{percent .UsedPerMille}}</td><td>{{ms .RTT.P50NS}}</td><td>{{ms .RTT.P95NS}}</td><td>{{ms .QueueMeanNS}}</td><td>{{again .Trial}}</td><td>{{.Timeouts}}</td><td>{{jain .Jain}}</td></tr>
{{end}}</table>{{.Plot}}
{{end}}<p>Goodput, RTTs, what was sent again and RTOs are of the flows of the algorithm that is named; with several flows, goodput is their
sum, RTTs those of the flow with the longest. Fairness is Jain's index over all flows of the scenario: 1 if all have the same.</p></body></html>
`))

func mbit(bps int64) string { return fmt.Sprintf("%.2f", float64(bps)/1e6) }

func ms(ns int64) string { return fmt.Sprintf("%.1f ms", float64(ns)/1e6) }

func percent(perMille int64) string { return fmt.Sprintf("%.1f %%", float64(perMille)/10) }

func again(t *Trial) string {
	return fmt.Sprintf("%.2f %%", float64(t.Retransmits)*100/float64(max(t.Segments, 1)))
}

func fairness(perMille int64) string {
	if perMille == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f", float64(perMille)/1000)
}

type pageRow struct {
	*Trial
	Subject bool
}

type pageScenario struct {
	Name, Description string
	Seed              uint64
	Trials            []pageRow
	Plot              template.HTML
}

type pageSummary struct {
	Name    string
	Subject bool
	Cells   []string
}

// WriteHTML writes a report on trials, which stand in the order of their scenarios, with the same contenders in each: the first is the one
// that the report is about. command repeats it.
func WriteHTML(w io.Writer, title, command string, descriptions map[string]string, trials []*Trial) error {
	data := struct {
		Title, Command string
		Names          []string
		Summary        []pageSummary
		Scenarios      []pageScenario
	}{Title: title, Command: command}
	for len(trials) > 0 {
		n := 1
		for n < len(trials) && trials[n].Scenario == trials[0].Scenario {
			n++
		}
		group := trials[:n]
		trials = trials[n:]
		s := pageScenario{Name: group[0].Scenario, Description: descriptions[group[0].Scenario], Seed: group[0].result.Report.Seed}
		for i, t := range group {
			s.Trials = append(s.Trials, pageRow{t, i == 0})
			if len(data.Names) == 0 {
				data.Summary = append(data.Summary, pageSummary{Name: t.Contender, Subject: i == 0})
			}
			data.Summary[i].Cells = append(data.Summary[i].Cells, mbit(t.GoodputBPS))
		}
		svg, err := trialPlot(group)
		if err != nil {
			return err
		}
		s.Plot = template.HTML(svg) //nolint:gosec // ours
		data.Names = append(data.Names, s.Name)
		data.Scenarios = append(data.Scenarios, s)
	}
	return page.Execute(w, &data)
}

// trialPlot draws goodput, round-trip time, losses and queue of a scenario over time, a line for each contender.
func trialPlot(group []*Trial) ([]byte, error) {
	rate, rtt := newPanel("rate [Mbit/s]", "goodput"), newPanel("srtt [ms]", "smoothed round-trip time")
	again, queue := newPanel("segments", "sent again, in all"), newPanel("queue [kB]", "waiting for the bottleneck")
	for i, t := range group {
		points := t.sums()
		xy := func(y func(*report.Point) float64) (out plotter.XYs) {
			for j := range points {
				out = append(out, plotter.XY{X: seconds(points[j].TimeNS), Y: y(&points[j])})
			}
			return out
		}
		rate.line(t.Contender, coarseGoodput(points), i, i >= len(colours))
		rtt.line("", xy(func(p *report.Point) float64 { return float64(p.SRTTNS) / 1e6 }), i, i >= len(colours))
		again.line("", xy(func(p *report.Point) float64 { return float64(p.Retransmits) }), i, i >= len(colours))
		queue.line("", xy(func(p *report.Point) float64 { return float64(p.QueueBytes) / 1e3 }), i, i >= len(colours))
	}
	var svg bytes.Buffer
	if err := writeSVG(&svg, []*panel{rate, rtt, again, queue}); err != nil {
		return nil, err
	}
	_, body, ok := bytes.Cut(svg.Bytes(), []byte("<svg"))
	if !ok {
		return nil, fmt.Errorf("sim: the plot is no SVG")
	}
	return append([]byte("<svg"), body...), nil
}

// coarse is how many points of a line a report has.
const coarse = 240

// sums adds up the contender's flows at each time, thinned out. Round-trip times are the longest.
func (t *Trial) sums() (out []report.Point) {
	own := map[int]bool{}
	for _, i := range t.own {
		own[i] = true
	}
	for i := range t.result.Points {
		p := t.result.Points[i]
		if !own[p.Flow] {
			continue
		}
		if n := len(out); n > 0 && out[n-1].TimeNS == p.TimeNS {
			q := &out[n-1]
			q.DeliveredBytes += p.DeliveredBytes
			q.Retransmits += p.Retransmits
			q.SRTTNS = max(q.SRTTNS, p.SRTTNS)
			continue
		}
		out = append(out, p)
	}
	step := (len(out) + coarse - 1) / coarse
	thin := out[:0]
	for i := 0; i < len(out); i += step {
		thin = append(thin, out[i])
	}
	return thin
}

// coarseGoodput is what arrived between two points, over two seconds or ten points, whichever is less.
func coarseGoodput(points []report.Point) (out plotter.XYs) {
	from := 0
	for i := range points {
		q := &points[i]
		for i-from > goodputOver || i > from+1 && time.Duration(q.TimeNS-points[from].TimeNS) > 2*time.Second {
			from++
		}
		if p := &points[from]; q.TimeNS > p.TimeNS {
			rate := max(q.DeliveredBytes-p.DeliveredBytes, 0) // a flow that has ended is in the sum no more
			out = append(out, plotter.XY{X: seconds(q.TimeNS), Y: float64(rate) * 8e3 / float64(q.TimeNS-p.TimeNS)})
		}
	}
	return out
}
