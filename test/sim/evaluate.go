package sim

import (
	"embed"
	"errors"
	"fmt"
	"io"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// Contender is a congestion control that is compared with others.
type Contender struct {
	Name   string
	Params map[string]string
	// Open makes an instance of a module that is not built in: a cong.Module, and what ends it when the run is over. nil: built in.
	Open func(seed uint64) (any, io.Closer, error)
}

//go:embed testdata/clean.toml testdata/loss.toml testdata/mess.toml testdata/bufferbloat.toml testdata/shallow.toml testdata/steps.toml
//go:embed testdata/fairness.toml testdata/rtts.toml testdata/coexist.toml
var scenarioFiles embed.FS

// set is the scenario set, in the order of reports.
var set = []string{"clean", "loss", "mess", "bufferbloat", "shallow", "steps", "fairness", "rtts", "coexist"}

// Set returns the scenarios on which congestion controls are compared. Flows that name a congestion control keep it, others are those of
// the contender.
func Set() (list []*Scenario) {
	for _, name := range set {
		file := "testdata/" + name + ".toml"
		data, err := scenarioFiles.ReadFile(file)
		if err != nil {
			panic(err) // it is part of the program
		}
		s, err := Parse(file, data)
		if err != nil {
			panic(err)
		}
		list = append(list, s)
	}
	return list
}

// Trial is one contender in one scenario. The figures are of the contender's own flows, the queue's are of the link from a to b.
type Trial struct {
	Scenario, Contender string
	GoodputBPS          int64 // of all flows of the contender
	UsedPerMille        int64 // of the link, by all flows
	RTT                 report.RTT
	QueueMeanNS         int64 // what a frame waits at the bottleneck, on average over time; 0 without a rate
	Segments            int64
	Retransmits         int64
	Timeouts            int64
	Jain                int64 // 1/1000, over all flows; 0 with one flow
	Verified            bool  // the bytes that came are those that were sent, in all flows

	result *Result
	own    []int // flows
}

// Try runs a scenario with a contender. The scenario is changed: make another for the next.
func Try(s *Scenario, c *Contender, o Options) (t *Trial, err error) {
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			err = errors.Join(err, c.Close())
		}
	}()
	use := Use{Use: c.Name, Params: c.Params}
	if c.Open != nil {
		s.external = map[string]func(uint64) (any, error){c.Name: func(seed uint64) (any, error) {
			m, closer, err := c.Open(seed)
			if err == nil {
				closers = append(closers, closer)
			}
			return m, err
		}}
	} else if e, ok := builtin.Find(plugins.Cong, c.Name); !ok {
		return nil, fmt.Errorf("sim: no cong module %q", c.Name)
	} else if _, err := e.New(c.Params, 1); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	t = &Trial{Scenario: s.Name, Contender: c.Name, Verified: true}
	for i := range s.Flows {
		if f := &s.Flows[i]; !f.own[plugins.Cong] {
			f.Cong, f.own[plugins.Cong] = use, true
			t.own = append(t.own, i)
		}
	}
	if t.result, err = Run(s, o); err != nil {
		return nil, err
	}
	t.measure()
	return t, nil
}

func (t *Trial) measure() {
	r := &t.result.Report
	for _, i := range t.own {
		f := &r.Flows[i]
		t.GoodputBPS += f.GoodputBPS
		t.Segments += f.Segments
		t.Retransmits += f.Retransmits
		t.Timeouts += f.Timeouts
		if f.RTT.P95NS > t.RTT.P95NS {
			t.RTT = f.RTT
		}
	}
	for i := range r.Flows {
		t.Verified = t.Verified && r.Flows[i].Verified
	}
	l := &r.Links[0]
	t.UsedPerMille = l.UtilPerMille
	if l.RateBPS > 0 {
		t.QueueMeanNS = l.QueueMeanBytes * 8e9 / l.RateBPS
	}
	if len(r.Flows) > 1 {
		t.Jain = r.Jain()
	}
}
