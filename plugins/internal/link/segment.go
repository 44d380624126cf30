package link

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/ring"
)

// HostBlock is what the host writes and the module only reads, one per worker, before that worker's events.
type HostBlock struct {
	EvTail  ring.Cursor
	CmdHead ring.Cursor
	Bell    ring.Bell // wakes the module's loop; a loop that runs several workers or kinds uses the first one's
	_       [124]byte
	Turn    atomic.Uint64 // lockstep only: counts the host's turns
	Now     atomic.Int64  // lockstep only: the turn's time
	Room    atomic.Int64  // lockstep only: how many commands the turn may return
	_       [104]byte
}

// ModuleBlock is what the module writes, one per worker, before that worker's commands.
type ModuleBlock struct {
	EvHead   ring.Cursor
	CmdTail  ring.Cursor
	Deadline atomic.Int64  // as the module said after its last Poll
	Ran      atomic.Uint64 // 1 once the loop runs; in lockstep, the number of the last turn done
	_        [112]byte
}

// Geometry is the size of the shared memory. Both sides compute the rest from it.
type Geometry struct {
	Workers  int            `json:"workers"`
	Events   int            `json:"events"`   // slots of each event ring, a power of two
	Commands int            `json:"commands"` // slots of each command ring, a power of two
	Kinds    []plugins.Kind `json:"-"`        // that the process serves: for each, in this order, a segment per worker
}

// Limits of Geometry, which a module process checks before it maps anything.
const (
	maxWorkers = 256
	maxSlots   = 1 << 20
)

func (g Geometry) check() error {
	for _, n := range []int{g.Events, g.Commands} {
		if n < 2 || n > maxSlots || n&(n-1) != 0 {
			return fmt.Errorf("ring of %d slots (want a power of two, 2 to %d)", n, maxSlots)
		}
	}
	if g.Workers < 1 || g.Workers > maxWorkers {
		return fmt.Errorf("%d workers (want 1 to %d)", g.Workers, maxWorkers)
	}
	if len(g.Kinds) == 0 {
		return errors.New("no kind of module")
	}
	for i, k := range g.Kinds {
		if k >= plugins.NumKinds || slices.Contains(g.Kinds[:i], k) {
			return fmt.Errorf("kinds of module %v (want each once)", g.Kinds)
		}
	}
	return nil
}

// Segment is one worker's part of the shared memory.
type Segment[E, C any] struct {
	Host     *HostBlock
	Module   *ModuleBlock
	Events   []E
	Commands []C
}

// NewSegment makes a segment in ordinary Go memory: a module behind rings in this process, as tests use it.
func NewSegment[E, C any](events, commands int) Segment[E, C] {
	return Segment[E, C]{Host: new(HostBlock), Module: new(ModuleBlock), Events: make([]E, events), Commands: make([]C, commands)}
}

// ErrTooSmall says that a mapping does not hold what the geometry promises.
var ErrTooSmall = errors.New("shared memory is smaller than its geometry")
