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
	// Use makes index the module of all flows (or of new flows only) of the kind; existing flows get Resume. It reports what
	// was moved.
	Use(kind plugins.Kind, index int, newOnly bool) (SwapReport, error)
	// Detach removes a module that serves no flow any more (flows still on it go to the fallback first). After it returns no
	// worker touches it.
	Detach(kind plugins.Kind, index int) error
	// SetFallback names the module that takes over flows of a module that is late or dead.
	SetFallback(kind plugins.Kind, index int) error
}

// SwapReport tells what a change of module did.
type SwapReport = plugins.SwapReport

// FlowCounter is what an Engine may offer besides: the number of flows that the module at index serves, and of those that it was handed
// while they were alive.
type FlowCounter interface {
	Flows(kind plugins.Kind, index int) int
	Resumes(kind plugins.Kind, index int) uint64
}
