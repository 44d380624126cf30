package tcp

import (
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

type (
	congSample   = cong.Sample
	congDecision = cong.Decision
	paceEvent    = pace.Event
	paceLine     = pace.Line
)

// maxModules bounds the modules of one kind that are attached at the same time.
const maxModules = 64

// instance is one module of one kind, as this worker uses it.
type instance[E, C any] struct {
	name    string
	mod     plugins.Module[E, C]
	remote  plugins.Remote // nil if the module is linked in
	in      []E            // this turn's events
	flows   int
	demoted bool // its flows were moved to the fallback, because it is late or dead
	gap     handover
}

// handover measures how long flows that were handed to a module by Use wait for its first answer.
type handover struct {
	since plugins.Time // 0 when it has answered
	took  time.Duration
}

// kind is the set of modules that answer one of the three questions.
type kind[E, C any] struct {
	insts    []*instance[E, C]
	current  int // serves new flows
	fallback int
	pending  int // events that no module has been given yet
	out      []C
	apply    func(index int, c *C)
}

// batch is the number of commands taken from a module at a time.
const batch = 256

func (k *kind[E, C]) attach(name string, m any) (int, error) {
	mod, ok := m.(plugins.Module[E, C])
	if !ok {
		return 0, fmt.Errorf("module %s: %T has not the records of its kind", name, m)
	}
	if k.out == nil {
		k.out = make([]C, batch)
	}
	in := &instance[E, C]{name: name, mod: mod}
	in.remote, _ = m.(plugins.Remote)
	for i := range k.insts {
		if k.insts[i] == nil {
			k.insts[i] = in
			return i, nil
		}
	}
	if len(k.insts) == maxModules {
		return 0, fmt.Errorf("module %s: %d modules of the kind are attached already", name, maxModules)
	}
	k.insts = append(k.insts, in)
	return len(k.insts) - 1, nil
}

// push returns room for an event to module i, to be filled in before the next push.
func (k *kind[E, C]) push(i uint8) *E {
	in := k.insts[i]
	k.pending++
	if n := len(in.in); n < cap(in.in) {
		in.in = in.in[:n+1]
	} else {
		var zero E
		in.in = append(in.in, zero)
	}
	return &in.in[len(in.in)-1]
}

// run gives every module its events and applies its commands.
func (k *kind[E, C]) run(now plugins.Time) {
	k.pending = 0
	for i, in := range k.insts {
		if in == nil || len(in.in) == 0 && in.remote == nil && in.mod.Deadline() > now {
			continue
		}
		if in.demoted {
			in.in = in.in[:0] // it keeps being polled, so that it can be seen to recover, but serves no flow
		}
		for {
			n := in.mod.Poll(now, in.in, k.out)
			if n > 0 && in.gap.since != 0 {
				in.gap = handover{took: now.Sub(in.gap.since)}
			}
			in.in = in.in[:0]
			for j := range k.out[:n] {
				k.apply(i, &k.out[j])
			}
			if n < len(k.out) {
				break
			}
		}
	}
}

func (k *kind[E, C]) deadline() plugins.Time {
	at := plugins.Never
	for _, in := range k.insts {
		if in != nil {
			at = min(at, in.mod.Deadline())
		}
	}
	return at
}

// usable reports whether module i can be given flows.
func (k *kind[E, C]) usable(i int) bool {
	return i >= 0 && i < len(k.insts) && k.insts[i] != nil
}

// forNew is the module that a new flow gets: the current one, or the fallback while that is late or dead.
func (k *kind[E, C]) forNew() uint8 {
	if k.insts[k.current].demoted {
		return uint8(k.fallback)
	}
	return uint8(k.current)
}

// Attach adds a module to the engine; m is a plugins.Module of the kind's records. It returns the index by which flows hold it.
// The first module of a kind serves new flows and is the fallback until Use and SetFallback say otherwise.
func (e *Engine) Attach(k plugins.Kind, name string, m any) (i int, err error) {
	defer func() {
		if _, ok := m.(plugins.Remote); ok && err == nil {
			e.remotes++
		}
	}()
	switch k {
	case plugins.Rtx:
		return e.rtx.attach(name, m)
	case plugins.Pace:
		return e.pace.attach(name, m)
	case plugins.Cong:
		return e.cong.attach(name, m)
	}
	return 0, fmt.Errorf("module %s: unknown kind %v", name, k)
}

// SetFallback makes module i the one that takes over flows of a module that is late or dead.
func (e *Engine) SetFallback(k plugins.Kind, i int) error {
	if err := e.check(k, i); err != nil {
		return err
	}
	*e.fallback(k) = i
	return nil
}

// Use makes module i serve new flows and, unless newOnly, all present ones. It returns how many flows changed owner.
func (e *Engine) Use(k plugins.Kind, i int, newOnly bool) (int, error) {
	if err := e.check(k, i); err != nil {
		return 0, err
	}
	*e.current(k) = i
	if newOnly {
		return 0, nil
	}
	n := e.move(k, -1, i)
	*e.handover(k, i) = handover{}
	if n > 0 {
		e.handover(k, i).since = e.now
	}
	return n, nil
}

// SwapGap is how long the flows that the last Use moved to module i had to wait for its first answer, in whole turns; waiting means
// that they still do.
func (e *Engine) SwapGap(k plugins.Kind, i int) (gap time.Duration, waiting bool) {
	if e.check(k, i) != nil {
		return 0, false
	}
	h := e.handover(k, i)
	return h.took, h.since != 0
}

func (e *Engine) handover(k plugins.Kind, i int) *handover {
	switch k {
	case plugins.Rtx:
		return &e.rtx.insts[i].gap
	case plugins.Pace:
		return &e.pace.insts[i].gap
	default:
		return &e.cong.insts[i].gap
	}
}

// Detach removes module i. Flows that it still serves go to the fallback.
func (e *Engine) Detach(k plugins.Kind, i int) error {
	if err := e.check(k, i); err != nil {
		return err
	}
	if *e.current(k) == i || *e.fallback(k) == i {
		return fmt.Errorf("%s module %d is in use", k, i)
	}
	e.move(k, i, *e.fallback(k))
	if e.isRemote(k, i) {
		e.remotes--
	}
	switch k {
	case plugins.Rtx:
		e.rtx.insts[i] = nil
	case plugins.Pace:
		e.pace.insts[i] = nil
	case plugins.Cong:
		e.cong.insts[i] = nil
	}
	return nil
}

// Flows is the number of flows that module i serves.
func (e *Engine) Flows(k plugins.Kind, i int) int {
	if e.check(k, i) != nil {
		return 0
	}
	switch k {
	case plugins.Rtx:
		return e.rtx.insts[i].flows
	case plugins.Pace:
		return e.pace.insts[i].flows
	default:
		return e.cong.insts[i].flows
	}
}

func (e *Engine) check(k plugins.Kind, i int) error {
	ok := false
	switch k {
	case plugins.Rtx:
		ok = e.rtx.usable(i)
	case plugins.Pace:
		ok = e.pace.usable(i)
	case plugins.Cong:
		ok = e.cong.usable(i)
	}
	if !ok {
		return fmt.Errorf("no %s module with index %d", k, i)
	}
	return nil
}

func (e *Engine) current(k plugins.Kind) *int {
	return [...]*int{&e.rtx.current, &e.pace.current, &e.cong.current}[k]
}

func (e *Engine) fallback(k plugins.Kind) *int {
	return [...]*int{&e.rtx.fallback, &e.pace.fallback, &e.cong.fallback}[k]
}

func (e *Engine) flowCount(k plugins.Kind, i uint8) *int {
	switch k {
	case plugins.Rtx:
		return &e.rtx.insts[i].flows
	case plugins.Pace:
		return &e.pace.insts[i].flows
	default:
		return &e.cong.insts[i].flows
	}
}

func (e *Engine) isRemote(k plugins.Kind, i int) bool {
	switch k {
	case plugins.Rtx:
		return e.rtx.insts[i].remote != nil
	case plugins.Pace:
		return e.pace.insts[i].remote != nil
	default:
		return e.cong.insts[i].remote != nil
	}
}

// moduleName is the name of module i, for users.
func (e *Engine) moduleName(k plugins.Kind, i uint8) string {
	switch k {
	case plugins.Rtx:
		return e.rtx.insts[i].name
	case plugins.Pace:
		return e.pace.insts[i].name
	default:
		return e.cong.insts[i].name
	}
}
