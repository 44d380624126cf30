package host

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// fakeEngine is an engine whose workers do nothing but ask congestion control, for a few flows each.
type fakeEngine struct {
	workers []*fakeWorker
	stop    atomic.Bool
	wg      sync.WaitGroup
	refuse  atomic.Bool // Use fails
}

type fakeModule struct {
	name    string
	cong    cong.Module // nil for other kinds
	remote  plugins.Remote
	demoted bool
	in      []cong.Sample
	answers int
}

type fakeFlow struct {
	mod    int
	home   int
	resume bool
	asOf   uint64 // of the last answer
}

type fakeWorker struct {
	mu       sync.Mutex // the loop boundary
	mods     [plugins.NumKinds][]*fakeModule
	current  [plugins.NumKinds]int
	fallback [plugins.NumKinds]int
	flows    []fakeFlow
	event    uint64
	burst    int // samples per flow and turn
	out      []cong.Decision
	resumes  int
	moved    time.Time // of the last move away from a module that was not ready
	silent   bool      // no samples
	bad      error     // an answer that no module may give
}

func newFakeEngine(t *testing.T, workers, flows int) *fakeEngine {
	e := &fakeEngine{}
	for range workers {
		w := &fakeWorker{flows: make([]fakeFlow, flows), burst: 1, out: make([]cong.Decision, 64)}
		for i := range w.flows {
			w.flows[i].resume = true
		}
		e.workers = append(e.workers, w)
		e.wg.Go(func() {
			for !e.stop.Load() {
				w.turn(link.Now())
				runtime.Gosched()
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	t.Cleanup(func() {
		e.stop.Store(true)
		e.wg.Wait()
		for i, w := range e.workers {
			if w.bad != nil {
				t.Errorf("worker %d: %v", i, w.bad)
			}
		}
	})
	return e
}

func (w *fakeWorker) turn(now plugins.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mods := w.mods[plugins.Cong]
	if len(mods) == 0 {
		return
	}
	for i, m := range mods {
		if m == nil || m.remote == nil {
			continue
		}
		ready := m.remote.State() == plugins.Ready
		if !ready && !m.demoted {
			m.demoted = true
			w.move(i, w.fallback[plugins.Cong])
			w.moved = time.Now()
		} else if ready && m.demoted {
			m.demoted = false
			w.comeHome(i)
		}
		for _, f := range m.remote.Dropped(nil) {
			w.flows[f.Slot].resume = true
			w.resumes++
		}
	}
	for slot := range w.flows {
		if w.silent {
			break
		}
		f := &w.flows[slot]
		for range w.burst {
			w.event++
			s := cong.Sample{Flow: plugins.Flow{Slot: uint32(slot), Gen: 7}, ID: w.event, Now: now, Kind: cong.KindAck, MSS: 1448, Acked: 1448, Cwnd: 14480, Ssthresh: cong.InfiniteSsthresh}
			if f.resume {
				s.Kind, f.resume = cong.KindResume, false
			}
			mods[f.mod].in = append(mods[f.mod].in, s)
		}
	}
	for i, m := range mods {
		if m == nil {
			continue
		}
		n := m.cong.Poll(now, m.in, w.out)
		m.in = m.in[:0]
		for _, d := range w.out[:n] {
			if d.Flow.Gen != 7 || int(d.Flow.Slot) >= len(w.flows) || d.AsOf > w.event {
				w.bad = fmt.Errorf("module %d answers %+v at event %d", i, d, w.event)
				continue
			}
			if w.flows[d.Flow.Slot].mod == i {
				w.flows[d.Flow.Slot].asOf = d.AsOf
				m.answers++
			}
		}
	}
}

func (w *fakeWorker) move(from, to int) (n int) {
	for i := range w.flows {
		if f := &w.flows[i]; f.mod != to && (from < 0 || f.mod == from) {
			f.mod, f.resume = to, true
			n++
		}
	}
	return n
}

func (e *fakeEngine) each(f func(*fakeWorker) error) error {
	for _, w := range e.workers {
		w.mu.Lock()
		err := f(w)
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *fakeEngine) Workers() int { return len(e.workers) }

func (e *fakeEngine) Attach(k plugins.Kind, name string, per []any) (index int, err error) {
	err = e.each(func(w *fakeWorker) error {
		m := &fakeModule{name: name}
		mod := per[0]
		per = per[1:]
		if k == plugins.Cong {
			m.cong = mod.(cong.Module)
		}
		m.remote, _ = mod.(plugins.Remote)
		w.mods[k] = append(w.mods[k], m)
		index = len(w.mods[k]) - 1
		return nil
	})
	return index, err
}

// Replace implements Engine.
func (e *fakeEngine) Replace(k plugins.Kind, index int, per []any) (n int, err error) {
	err = e.each(func(w *fakeWorker) error {
		m := w.mods[k][index]
		m.demoted, m.remote, m.cong, m.in, m.answers = true, absent{}, absent{}, nil, 0
		if k == plugins.Cong && w.move(index, w.fallback[k]) > 0 {
			w.moved = time.Now()
		}
		if per == nil {
			return nil
		}
		mod := per[0]
		per = per[1:]
		if k == plugins.Cong {
			m.cong = mod.(cong.Module)
		}
		m.remote, _ = mod.(plugins.Remote)
		m.demoted = false
		if k == plugins.Cong {
			n += w.comeHome(index)
		}
		return nil
	})
	return n, err
}

// absent stands in the place of a dead module.
type absent struct{}

func (absent) Poll(plugins.Time, []cong.Sample, []cong.Decision) int { return 0 }
func (absent) Deadline() plugins.Time                                { return plugins.Never }
func (absent) State() plugins.RemoteState                            { return plugins.Dead }
func (absent) Dropped(dst []plugins.Flow) []plugins.Flow             { return dst }
func (absent) Room() int                                             { return 0 }

func (w *fakeWorker) comeHome(i int) (n int) {
	for s := range w.flows {
		if f := &w.flows[s]; f.home == i && f.mod != i {
			f.mod, f.resume = i, true
			n++
		}
	}
	return n
}

// ends are the addresses of the flow of a slot.
func ends(slot int) (local, peer netip.AddrPort) {
	return netip.MustParseAddrPort("10.0.0.1:80"), netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), uint16(slot+1))
}

// Count implements Engine.
func (e *fakeEngine) Count(k plugins.Kind, index int, sel plugins.Selection) (n int) {
	_ = e.each(func(w *fakeWorker) error {
		for i := range w.flows {
			local, peer := ends(i)
			if k == plugins.Cong && !sel.NewOnly && w.flows[i].home != index && sel.Match(local, peer) {
				n++
			}
		}
		return nil
	})
	return n
}

func (e *fakeEngine) Use(k plugins.Kind, index int, sel plugins.Selection) (r SwapReport, err error) {
	if e.refuse.Load() {
		return r, errors.New("the engine refuses")
	}
	err = e.each(func(w *fakeWorker) error {
		if sel.All() {
			w.current[k] = index
		}
		for i := range w.flows {
			f := &w.flows[i]
			local, peer := ends(i)
			if k != plugins.Cong || sel.NewOnly || !sel.Match(local, peer) || f.home == index && f.mod == index {
				continue
			}
			if f.mod, f.home = index, index; w.mods[k][index].demoted {
				f.mod = w.fallback[k]
			}
			f.resume = true
			r.Flows++
		}
		return nil
	})
	return r, err
}

func (e *fakeEngine) Detach(k plugins.Kind, index int) error {
	return e.each(func(w *fakeWorker) error {
		if w.current[k] == index || w.fallback[k] == index {
			return fmt.Errorf("module %d is in use", index)
		}
		if k == plugins.Cong && w.move(index, w.fallback[k]) > 0 {
			w.moved = time.Now()
		}
		for i := range w.flows {
			if k == plugins.Cong && w.flows[i].home == index {
				w.flows[i].home = w.fallback[k]
			}
		}
		w.mods[k][index] = nil
		return nil
	})
}

func (e *fakeEngine) SetFallback(k plugins.Kind, index int) error {
	return e.each(func(w *fakeWorker) error { w.fallback[k] = index; return nil })
}

func (e *fakeEngine) Resumes(plugins.Kind, int) uint64 { return 0 }

func (e *fakeEngine) Flows(k plugins.Kind, index int) (n int) {
	_ = e.each(func(w *fakeWorker) error {
		for _, f := range w.flows {
			if k == plugins.Cong && f.mod == index {
				n++
			}
		}
		return nil
	})
	return n
}

// serving returns the name of the module that serves all flows of all workers, "" if there are several.
func (e *fakeEngine) serving() (name string) {
	first := true
	_ = e.each(func(w *fakeWorker) error {
		for _, f := range w.flows {
			n := fmt.Sprint(w.mods[plugins.Cong][f.mod].name, " remote=", w.mods[plugins.Cong][f.mod].remote != nil)
			if first {
				name, first = n, false
			} else if n != name {
				name = ""
			}
		}
		return nil
	})
	return name
}

// answers counts what the module that serves worker 0's first flow has answered.
func (e *fakeEngine) answers() (n int) {
	w := e.workers[0]
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mods[plugins.Cong][w.flows[0].mod].answers
}

// idleEngine is an engine without workers: it keeps what is attached, for a test that calls the modules itself.
type idleEngine struct {
	mu   sync.Mutex
	mods [plugins.NumKinds][]any // per index, that of worker 0
	seed uint64
}

func (e *idleEngine) Workers() int { return 1 }

func (e *idleEngine) Attach(k plugins.Kind, _ string, per []any) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mods[k] = append(e.mods[k], per[0])
	return len(e.mods[k]) - 1, nil
}

func (e *idleEngine) Use(plugins.Kind, int, plugins.Selection) (SwapReport, error) {
	return SwapReport{}, nil
}
func (e *idleEngine) Count(plugins.Kind, int, plugins.Selection) int { return 0 }
func (e *idleEngine) Replace(plugins.Kind, int, []any) (int, error)  { return 0, nil }
func (e *idleEngine) Detach(plugins.Kind, int) error                 { return nil }
func (e *idleEngine) SetFallback(plugins.Kind, int) error            { return nil }

// remote returns the module of kind k that lives in a process.
func (e *idleEngine) remote(k plugins.Kind) any {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.mods[k] {
		if _, ok := m.(plugins.Remote); ok {
			return m
		}
	}
	return nil
}
