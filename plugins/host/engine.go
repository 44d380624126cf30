package host

import (
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Engine is what the stack offers. Methods may be called from any goroutine; they return when every worker has done it at a
// loop boundary.
type Engine interface {
	// Workers is the number of workers, which does not change.
	Workers() int
	// Attach adds a module: one plugins.Module[E, C] of the kind per worker. It returns the module's index, which flows hold.
	// A module that also is a plugins.Remote lives in another process.
	Attach(kind plugins.Kind, name string, perWorker []any) (index int, err error)
	// Use makes index the module of the flows of sel: of new ones until another Use says otherwise, and of present ones, which get
	// Resume, unless sel excludes them. It reports what was moved. A Use of all flows, or of all new ones, ends the selections
	// before it; else the youngest that matches decides.
	Use(kind plugins.Kind, index int, sel plugins.Selection) (SwapReport, error)
	// Count is how many flows Use would move; index is -1 for a module that is not attached.
	Count(kind plugins.Kind, index int, sel plugins.Selection) (flows int)
	// Replace puts a module in the place of the one at index, which keeps its selections, and returns how many of the flows
	// that were meant for the old one it got. Without instances the fallback has these flows until the next Replace or Detach.
	// After it returns no worker touches the old module.
	Replace(kind plugins.Kind, index int, perWorker []any) (flows int, err error)
	// Detach removes a module that is neither the one for new flows nor the fallback. Flows still on it go to the fallback first,
	// its selections end. After it returns no worker touches it.
	Detach(kind plugins.Kind, index int) error
	// SetFallback names the module that takes over flows of a module that is late or dead.
	SetFallback(kind plugins.Kind, index int) error
}

// SwapReport tells what a change of module did.
type SwapReport = plugins.SwapReport

// Trier is what an Engine may offer besides: it can take back a swap, and say how flows do.
type Trier interface {
	// Undo takes back the last Use of the kind, if that was for index.
	Undo(kind plugins.Kind, index int) (flows int, err error)
	Measure(sel plugins.Selection) []plugins.FlowMeasure
}

// Shadower is what an Engine may offer besides: a congestion control or pacing module that serves no flow gets all events, and what it
// decides is only looked at.
type Shadower interface {
	StartShadow(kind plugins.Kind, index int) error
	EndShadow() (flows []plugins.ShadowFlow, decisions uint64)
}

// FlowCounter is what an Engine may offer besides: the number of flows that the module at index serves, and of those that it was handed
// while they were alive.
type FlowCounter interface {
	Flows(kind plugins.Kind, index int) int
	Resumes(kind plugins.Kind, index int) uint64
}
