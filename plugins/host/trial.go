package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Trial says what a module must keep to for some time after a swap, else the swap is taken back.
type Trial struct {
	Time time.Duration
	// MaxRTTIncrease and MaxGoodputDrop are percentages of what the same flows had before the swap; 0 is no bound.
	MaxRTTIncrease, MaxGoodputDrop int
}

// TrialReport is how the flows of a trial did, before the swap and last. Only flows that were there all the time count.
type TrialReport struct {
	Flows                     int
	GoodputBefore, GoodputNow float64       // bytes per second, of all these flows together
	RTTBefore, RTTNow         time.Duration // mean of their smoothed round-trip times
	RolledBack                string        // why the swap was taken back; empty if it stands
}

// Check returns what is wrong with t.
func (t *Trial) Check() error {
	switch {
	case t.Time < 0 || t.MaxRTTIncrease < 0 || t.MaxGoodputDrop < 0 || t.MaxGoodputDrop > 100:
		return errors.New("a bound of the trial is out of range")
	case t.Time == 0 && (t.MaxRTTIncrease != 0 || t.MaxGoodputDrop != 0):
		return errors.New("bounds for a trial without a time")
	}
	return nil
}

// Windows of a trial: a quarter of its time within these limits is measured before the swap; the latest such window counts after it.
const (
	minWindow = 500 * time.Millisecond
	maxWindow = 3 * time.Second
	looks     = 5 // per window
	offences  = 2 // looks in a row that must find a bound broken
)

func (t *Trial) window() time.Duration { return min(max(t.Time/4, minWindow), maxWindow) }

// SwapOnTrial is Swap, measures the flows before and for t.Time afterwards, and takes the swap back if they do worse than t allows or the
// module fails.
func (m *Manager) SwapOnTrial(ctx context.Context, kind plugins.Kind, name string, sel plugins.Selection, t Trial) (rep SwapReport, tr TrialReport, err error) {
	engine, ok := m.cfg.Engine.(Trier)
	switch {
	case !ok:
		return rep, tr, errors.New("this engine has no trials")
	case sel.NewOnly:
		return rep, tr, errors.New("a trial compares present flows with themselves: it cannot be for new ones only")
	case t.Time <= 0:
		return rep, tr, errors.New("a trial needs a time")
	}
	if err := t.Check(); err != nil {
		return rep, tr, err
	}
	rep, err = m.locked(kind, name, func() (SwapReport, error) {
		window := t.window()
		before, err := m.measure(ctx, engine, sel, window)
		if err != nil {
			return SwapReport{}, err
		}
		m.mu.Lock()
		was, rules, fb := m.active[kind], m.rules[kind], m.fallback[kind]
		m.mu.Unlock()
		rep, err := m.swap(ctx, kind, name, sel, true)
		if err != nil {
			return rep, err
		}
		m.mu.Lock()
		mod, _, err := m.lookup(kind, name)
		if err != nil {
			m.mu.Unlock()
			return rep, err
		}
		in := mod.inst
		m.mu.Unlock()
		tr = m.try(ctx, engine, mod, in, sel, t, before, window)
		m.mu.Lock()
		defer m.mu.Unlock()
		if tr.RolledBack != "" {
			err = m.rollBack(engine, mod, tr.RolledBack, was, rules, fb)
		} else {
			m.settle(kind, fb, sel)
		}
		return rep, err
	})
	return rep, tr, err
}

// try watches the flows for the time of the trial.
func (m *Manager) try(ctx context.Context, engine Trier, mod *module, in *instance, sel plugins.Selection, t Trial, before span, window time.Duration) (tr TrialReport) {
	marks := []mark{m.look(engine, sel)}
	bad := 0
	for end := marks[0].at.Add(t.Time); ; {
		select {
		case <-ctx.Done():
			tr.RolledBack = "the trial was ended: " + context.Cause(ctx).Error()
			return tr
		default:
		}
		if !sleep(window/looks, m.stop) {
			return tr
		}
		now := m.look(engine, sel)
		marks = append(marks, now)
		if len(marks) <= looks {
			continue // a whole window is to be seen first
		}
		marks = marks[1:]
		why := m.fit(mod, in)
		if why == "" {
			if why = tr.compare(before, span{marks[0], now}, t); why != "" {
				if bad++; bad < offences {
					why = ""
				}
			} else {
				bad = 0
			}
		}
		if tr.RolledBack = why; why != "" || !now.at.Before(end) {
			return tr
		}
	}
}

// fit says why a module is not fit to serve; empty if it is.
func (m *Manager) fit(mod *module, in *instance) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case mod.inst == nil:
		return "it has died: " + mod.trouble
	case mod.inst != in:
		return "it has died, and was started again"
	case in.state() != plugins.Ready:
		return "it is " + in.state().String()
	}
	return ""
}

// rollBack takes back the swap that a trial began with.
func (m *Manager) rollBack(engine Trier, mod *module, why string, was *module, rules []rule, fb fallback) error {
	kind := mod.spec.Kind
	index := mod.place
	if mod.inst != nil {
		index = mod.inst.index
	}
	flows, err := engine.Undo(kind, index)
	if err != nil {
		return fmt.Errorf("the trial has failed (%s), and so has the way back: %w", why, err)
	}
	m.active[kind], m.rules[kind] = was, rules
	m.note(mod, mod.inst, Event{What: RolledBack, Flows: flows, Detail: why, To: was.spec.Name})
	now := m.fallback[kind]
	if fb.index != now.index {
		if err := m.cfg.Engine.SetFallback(kind, fb.index); err != nil {
			return err
		}
		m.fallback[kind] = fb
	}
	m.settle(kind, now, plugins.Selection{Percent: 1}) // others may have flows still: they drain
	return nil
}

// mark is how flows did at some time.
type mark struct {
	at    time.Time
	flows map[flowOf]plugins.FlowMeasure
}

type flowOf struct {
	worker int
	flow   plugins.Flow
}

// span is the time between two marks.
type span struct{ from, to mark }

func (m *Manager) look(engine Trier, sel plugins.Selection) mark {
	k := mark{at: wallNow(), flows: map[flowOf]plugins.FlowMeasure{}}
	for _, f := range engine.Measure(sel) {
		k.flows[flowOf{f.Worker, f.Flow}] = f
	}
	return k
}

func (m *Manager) measure(ctx context.Context, engine Trier, sel plugins.Selection, window time.Duration) (s span, err error) {
	s.from = m.look(engine, sel)
	if len(s.from.flows) == 0 {
		return s, errors.New("there is no flow to try it on")
	}
	if !sleep(window, m.stop) {
		return s, errors.New("the module manager is closed")
	}
	s.to = m.look(engine, sel)
	return s, context.Cause(ctx)
}

// compare fills in the report from what flows did before and lately, and says which bound is broken.
func (tr *TrialReport) compare(before, lately span, t Trial) string {
	*tr = TrialReport{}
	var was, is float64
	for id, now := range lately.to.flows {
		start, ok1 := lately.from.flows[id]
		b0, ok2 := before.from.flows[id]
		b1, ok3 := before.to.flows[id]
		if !ok1 || !ok2 || !ok3 {
			continue // it opened or closed meanwhile
		}
		tr.Flows++
		was += float64(b1.Delivered - b0.Delivered)
		is += float64(now.Delivered - start.Delivered)
		tr.RTTBefore += b1.SRTT
		tr.RTTNow += now.SRTT
	}
	if tr.Flows == 0 {
		return ""
	}
	tr.GoodputBefore = was / before.to.at.Sub(before.from.at).Seconds()
	tr.GoodputNow = is / lately.to.at.Sub(lately.from.at).Seconds()
	tr.RTTBefore /= time.Duration(tr.Flows)
	tr.RTTNow /= time.Duration(tr.Flows)
	if t.MaxGoodputDrop > 0 && tr.GoodputNow < tr.GoodputBefore*float64(100-t.MaxGoodputDrop)/100 {
		return fmt.Sprintf("the goodput of its flows fell from %.3g to %.3g Mbit/s", tr.GoodputBefore*8e-6, tr.GoodputNow*8e-6)
	}
	if t.MaxRTTIncrease > 0 && tr.RTTNow > tr.RTTBefore*time.Duration(100+t.MaxRTTIncrease)/100 {
		return fmt.Sprintf("the round-trip time of its flows rose from %v to %v", tr.RTTBefore.Round(time.Microsecond), tr.RTTNow.Round(time.Microsecond))
	}
	return ""
}
