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

// member is what the engine keeps about one module, whatever its records.
type member struct {
	name    string
	flows   int
	resumes uint64         // flows that were handed to it while alive
	remote  plugins.Remote // nil if the module is linked in
	demoted bool           // its flows were moved to the fallback, because it is late or dead
	gap     handover
}

// handover measures how long flows that were handed to a module by Use or Replace wait for its first answer.
type handover struct {
	since plugins.Time // 0 when it has answered
	took  time.Duration
}

// roster is the list of the modules of one kind, by index; nil where one was detached.
type roster struct {
	members  []*member
	current  int    // serves new flows that no rule is for
	rules    []rule // the first that matches decides
	fallback int
	last     *lastUse // nil: nothing to undo
}

// usable reports whether module i can be given flows.
func (r *roster) usable(i int) bool { return i >= 0 && i < len(r.members) && r.members[i] != nil }

func (r *roster) base() *roster { return r }

// changed reports whether a module in another process became late or dead, or recovered, and watch has not acted on it yet.
func (r *roster) changed() bool {
	for i, m := range r.members {
		if m != nil && m.remote != nil && i != r.fallback && (m.remote.State() != plugins.Ready) != m.demoted {
			return true
		}
	}
	return false
}

func (e *Engine) changed() bool { return e.rtx.changed() || e.pace.changed() || e.cong.changed() }

// instance is a member with its module and this turn's events.
type instance[E, C any] struct {
	*member
	mod plugins.Module[E, C]
	in  []E
}

// kind is the set of modules that answer one of the three questions.
type kind[E, C any] struct {
	roster
	insts   []*instance[E, C] // in step with the roster
	pending int               // events that no module has been given yet
	out     []C
	apply   func(index int, c *C)
}

// anyKind is a kind, whatever its records.
type anyKind interface {
	base() *roster
	attach(name string, m any) (int, error)
	replace(i int, m any) error
	detach(i int)
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
	mem := &member{name: name}
	mem.remote, _ = m.(plugins.Remote)
	in := &instance[E, C]{member: mem, mod: mod}
	for i := range k.insts {
		if k.insts[i] == nil {
			k.members[i], k.insts[i] = mem, in
			return i, nil
		}
	}
	if len(k.insts) == maxModules {
		return 0, fmt.Errorf("module %s: %d modules of the kind are attached already", name, maxModules)
	}
	k.members, k.insts = append(k.members, mem), append(k.insts, in)
	return len(k.insts) - 1, nil
}

// replace puts m in the place of module i, whose events are dropped; nil leaves the place empty.
func (k *kind[E, C]) replace(i int, m any) error {
	in := k.insts[i]
	if m == nil {
		in.mod, in.remote = absent[E, C]{}, absent[E, C]{}
	} else {
		mod, ok := m.(plugins.Module[E, C])
		if !ok {
			return fmt.Errorf("module %s: %T has not the records of its kind", in.name, m)
		}
		in.mod = mod
		in.remote, _ = m.(plugins.Remote)
	}
	in.in = in.in[:0]
	in.resumes, in.gap = 0, handover{}
	return nil
}

// absent stands in the place of a module that has died and may come back.
type absent[E, C any] struct{}

func (absent[E, C]) Poll(plugins.Time, []E, []C) int           { return 0 }
func (absent[E, C]) Deadline() plugins.Time                    { return plugins.Never }
func (absent[E, C]) State() plugins.RemoteState                { return plugins.Dead }
func (absent[E, C]) Dropped(dst []plugins.Flow) []plugins.Flow { return dst }
func (absent[E, C]) Room() int                                 { return 0 }

func (k *kind[E, C]) detach(i int) { k.members[i], k.insts[i] = nil, nil }

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

// Attach adds a module to the engine; m is a plugins.Module of the kind's records. It returns the index by which flows hold it.
// The first module of a kind serves new flows and is the fallback until Use and SetFallback say otherwise.
func (e *Engine) Attach(k plugins.Kind, name string, m any) (int, error) {
	if k >= plugins.NumKinds {
		return 0, fmt.Errorf("module %s: unknown kind %v", name, k)
	}
	i, err := e.kinds[k].attach(name, m)
	if err == nil && e.member(k, i).remote != nil {
		e.remotes++
	}
	return i, err
}

// SetFallback makes module i the one that takes over flows of a module that is late or dead.
func (e *Engine) SetFallback(k plugins.Kind, i int) error {
	if err := e.check(k, i); err != nil {
		return err
	}
	e.roster(k).fallback = i
	return nil
}

// SwapGap is how long the flows that the last Use or Replace moved to module i had to wait for its first answer, in whole turns; waiting means
// that they still do.
func (e *Engine) SwapGap(k plugins.Kind, i int) (gap time.Duration, waiting bool) {
	if e.check(k, i) != nil {
		return 0, false
	}
	h := e.member(k, i).gap
	return h.took, h.since != 0
}

// Detach removes module i. Flows that it still serves go to the fallback.
func (e *Engine) Detach(k plugins.Kind, i int) error {
	if err := e.check(k, i); err != nil {
		return err
	}
	r := e.roster(k)
	if r.current == i || r.fallback == i {
		return fmt.Errorf("%s module %d is in use", k, i)
	}
	e.abandon(k, i)
	r.last.forget(i, r.fallback)
	if e.member(k, i).remote != nil {
		e.remotes--
	}
	e.kinds[k].detach(i)
	return nil
}

// Resumes is the number of flows that module i of kind k was handed while they were alive.
func (e *Engine) Resumes(k plugins.Kind, i int) uint64 {
	if e.check(k, i) != nil {
		return 0
	}
	return e.member(k, i).resumes
}

// Flows is the number of flows that module i serves.
func (e *Engine) Flows(k plugins.Kind, i int) int {
	if e.check(k, i) != nil {
		return 0
	}
	return e.member(k, i).flows
}

func (e *Engine) check(k plugins.Kind, i int) error {
	if k >= plugins.NumKinds || !e.roster(k).usable(i) {
		return fmt.Errorf("no %s module with index %d", k, i)
	}
	return nil
}

func (e *Engine) roster(k plugins.Kind) *roster { return e.kinds[k].base() }

// member is module i of kind k, which is attached.
func (e *Engine) member(k plugins.Kind, i int) *member { return e.roster(k).members[i] }

// of is the module of kind k that serves c.
func (e *Engine) of(c *Conn, k plugins.Kind) *member { return e.member(k, int(c.mod[k])) }
