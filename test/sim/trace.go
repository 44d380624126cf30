package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// A trace file says how a link's rate changes with time. All its lines are of one of two kinds; empty ones, and what follows a #, do
// not count. Times count from the start of the simulation.
//
//	1.5s 10Mbit/s    from this time on the rate is that. The first line is for 0s, times ascend, and the last rate, not 0, goes on.
//	17               Mahimahi's format: after so many ms the link carries a packet of 1500 bytes, if one waits then. Times do not
//	                 descend; a line for each packet. After the last line they begin anew.

// maxTrace bounds a trace file: a minute of 100 Mbit/s as opportunities has 3.5 MB.
const maxTrace = 8 << 20

// loadTrace reads the trace file of a scenario: a name relative to the directory of that, and not outside of it.
func loadTrace(scenario, name string) (*memlink.Trace, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%q: the file must lie beside the scenario, or below", name)
	}
	file := filepath.Join(filepath.Dir(scenario), name)
	if i, err := os.Stat(file); err != nil {
		return nil, err
	} else if !i.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTrace+1))
	if err != nil {
		return nil, err
	}
	return parseTrace(file, data)
}

// parseTrace reads the text of a trace file. Errors name file and line.
func parseTrace(file string, data []byte) (*memlink.Trace, error) {
	if len(data) > maxTrace {
		return nil, fmt.Errorf("%s: more than %d MiB", file, maxTrace>>20)
	}
	t := &memlink.Trace{Start: Start}
	n := 0
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		n++
		text, _, _ := strings.Cut(lines.Text(), "#")
		if err := addLine(t, strings.Fields(text)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, n+1, err)
	}
	n = max(n, 1)
	switch steps, all := t.Steps, t.Opportunities; {
	case len(steps) == 0 && len(all) == 0:
		return nil, fmt.Errorf("%s:%d: no line with a time", file, n)
	case len(steps) > 0 && steps[len(steps)-1].Rate == 0:
		return nil, fmt.Errorf("%s:%d: the last rate goes on for ever, and is 0", file, n)
	case len(all) > 0 && all[len(all)-1] == 0:
		return nil, fmt.Errorf("%s:%d: the last time is 0, so nothing can begin anew after it", file, n)
	}
	return t, nil
}

// addLine takes the fields of a line.
func addLine(t *memlink.Trace, f []string) error {
	switch {
	case len(f) == 0:
		return nil
	case len(f) > 2:
		return fmt.Errorf("%d fields: write a time and a rate (1.5s 10Mbit/s), or a time in ms (17)", len(f))
	case len(f) == 2 && len(t.Opportunities) > 0, len(f) == 1 && len(t.Steps) > 0:
		return fmt.Errorf("lines of both kinds: of a time and a rate, and of a time in ms only")
	case len(f) == 2:
		return addStep(t, f[0], f[1])
	}
	ms, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a time in ms, a whole number", f[0])
	}
	at := time.Duration(ms) * time.Millisecond
	if at > time.Hour {
		return fmt.Errorf("%d ms is more than 1h", ms)
	}
	if n := len(t.Opportunities); n > 0 && at < t.Opportunities[n-1] {
		return fmt.Errorf("%d ms lies before the line above", ms)
	}
	t.Opportunities = append(t.Opportunities, at)
	return nil
}

func addStep(t *memlink.Trace, when, what string) error {
	var at conf.Duration
	var rate conf.Rate
	if err := at.UnmarshalText([]byte(when)); err != nil {
		return err
	}
	if err := rate.UnmarshalText([]byte(what)); err != nil {
		return err
	}
	switch n := len(t.Steps); {
	case n == 0 && at != 0:
		return fmt.Errorf("the first line is for 0s, not %v", at)
	case n > 0 && at.D() <= t.Steps[n-1].At:
		return fmt.Errorf("%v does not lie behind the line above", at)
	case at.D() > maxDuration:
		return fmt.Errorf("%v is more than %v", at, maxDuration)
	case rate.Bits() > 1e15:
		return fmt.Errorf("%v is more than 1000Tbit/s", rate)
	}
	t.Steps = append(t.Steps, memlink.Step{At: at.D(), Rate: rate.Bits()})
	return nil
}

// resolveTraces reads the trace files that the paths name.
func (s *Scenario) resolveTraces(file string, doc *conf.Document) {
	known, told := map[string]*memlink.Trace{}, map[string]bool{}
	resolve := func(key string, p *Path) {
		p.trace = nil
		if p.Trace == "" || told[key] {
			return
		}
		if t, ok := known[p.Trace]; ok {
			p.trace = t
			return
		}
		t, err := loadTrace(file, p.Trace)
		if err == nil {
			known[p.Trace], p.trace = t, t
		} else if doc.Has(key) { // else it is told where it stands
			doc.Errorf(key, "%v", err)
			told[key] = true
		}
	}
	resolve("link.both.trace", &s.Link.Both)
	resolve("link.a_to_b.trace", &s.Link.AtoB)
	resolve("link.b_to_a.trace", &s.Link.BtoA)
	for i := range s.Events {
		key := fmt.Sprintf("event[%d].set.trace", s.Events[i].index)
		resolve(key, &s.Events[i].aToB)
		resolve(key, &s.Events[i].bToA)
	}
}
