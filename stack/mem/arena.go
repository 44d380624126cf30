package mem

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Class is a size of chunks.
type Class uint8

// Classes.
const (
	Small  Class = iota // 2 KiB
	Medium              // 16 KiB
	Large               // 64 KiB
	NumClasses
)

var (
	classSize  = [NumClasses]int{2 << 10, 16 << 10, 64 << 10}
	slabChunks = [NumClasses]int{128, 64, 32} // slabs of 256 KiB, 1 MiB and 2 MiB
	classNames = [NumClasses]string{"small", "medium", "large"}
)

// Size is the number of bytes of a chunk of this class.
func (c Class) Size() int { return classSize[c] }

func (c Class) String() string { return classNames[c] }

// ClassFor returns the smallest class for n bytes; Large if none is large enough.
func ClassFor(n int) Class {
	switch {
	case n <= classSize[Small]:
		return Small
	case n <= classSize[Medium]:
		return Medium
	}
	return Large
}

// Chunk is a block of memory off the heap, and what a stream keeps about it. Its holder may use all exported fields but Mem,
// which does not change. Descriptors are never freed, only reused.
type Chunk struct {
	Mem        []byte
	Start, End uint64                // stream offsets that the chunk covers
	Fill       uint64                // end of the data in it, where the holder needs that
	Extra      [2]uint64             // whatever the holder likes
	Next       atomic.Pointer[Chunk] // nil when taken

	free   *Chunk // next free one of the slab
	slab   *slab
	leases atomic.Int32 // beside its holder's own; -1 while the last one is being put back
	Class  Class
	taken  bool
}

// Lease makes the chunk's memory stay until one more Put. Only the chunk's holder may call it; the Puts may come from any goroutine
// and in any order.
func (ch *Chunk) Lease() { ch.leases.Add(1) }

// slab is one mapping and its chunks. It is in its class's list of slabs with free chunks, or full and in none, or cold.
type slab struct {
	mem        []byte
	chunks     []Chunk
	free       *Chunk // last in, first out
	used       int
	prev, next *slab
}

// quotaUnit is what a class takes from the budget at once and keeps at most: one atomic operation per 64 KiB, not per chunk.
const quotaUnit = 64 << 10

// class is one size class of an arena.
type class struct {
	mu       sync.Mutex
	list     slab   // ring of slabs with free chunks: nearly full ones first, empty ones last
	cold     *slab  // emptied ones whose pages went back to the system
	low      int    // least number of empty slabs in the present period of Age
	excess   int    // empty slabs that were not needed in all of the last one, less those that have been given back
	ages     int    // calls of Age in this period
	quota    int64  // bytes charged to the budget and not in use
	used     int    // chunks out
	empty    int    // slabs at the list's end that have no chunk out
	hot      int    // slabs that may have pages
	returned uint64 // slabs whose pages were given back, ever
	_        [16]byte
}

// Arena hands out chunks. All methods may be called from any goroutine.
type Arena struct {
	budget  *Budget
	backing Backing
	classes [NumClasses]class
}

// Backing is where an arena's slabs come from.
type Backing struct {
	Map    func(n int) ([]byte, error)
	Unmap  func(m []byte) error
	Return func(m []byte) error // gives the pages back and keeps the addresses
}

// NewArena returns an arena that maps its memory. Chunks in use are charged to b, in units of 64 KiB per class.
func NewArena(b *Budget) *Arena { return NewArenaOn(b, System) }

// NewHeapArena returns an arena on the Go heap, for tests: the race detector sees only that.
func NewHeapArena(b *Budget) *Arena { return NewArenaOn(b, Heap) }

// NewArenaOn returns an arena with its own source of memory.
func NewArenaOn(b *Budget, from Backing) *Arena {
	a := &Arena{budget: b, backing: from}
	for i := range a.classes {
		l := &a.classes[i].list
		l.prev, l.next = l, l
	}
	return a
}

// Budget returns the budget that the arena charges.
func (a *Arena) Budget() *Budget { return a.budget }

// Get takes a chunk, with nil Next and undefined content. It returns nil if the budget's high limit or the system refuses.
func (a *Arena) Get(c Class) *Chunk {
	k := &a.classes[c]
	size := int64(classSize[c])
	k.mu.Lock()
	if k.quota < size {
		if !a.budget.TryAdd(quotaUnit) {
			k.mu.Unlock()
			return nil
		}
		k.quota += quotaUnit
	}
	s := k.list.next
	if s == &k.list {
		if s = a.addSlab(c); s == nil {
			k.mu.Unlock()
			return nil
		}
	}
	if s.used == 0 {
		k.empty--
		k.low = min(k.low, k.empty)
	}
	ch := s.free
	s.free = ch.free
	s.used++
	if s.free == nil {
		s.unlink()
	}
	k.quota -= size
	k.used++
	ch.taken = true
	k.mu.Unlock()
	return ch
}

// Put gives a chunk back. One that was leased stays until there was a Put for each lease and one for its holder.
func (a *Arena) Put(ch *Chunk) {
	if ch.leases.Load() != 0 { // only the holder makes it grow, and it is done with the chunk, or somebody else holds it
		if ch.leases.Add(-1) >= 0 {
			return
		}
		ch.leases.Store(0)
	}
	if ch.Next.Load() != nil { // an atomic store costs more than a look
		ch.Next.Store(nil)
	}
	k := &a.classes[ch.Class]
	k.mu.Lock()
	if !ch.taken {
		k.mu.Unlock()
		panic("mem: Put of a free chunk")
	}
	ch.taken = false
	s := ch.slab
	if s.free == nil {
		s.linkAfter(&k.list) // nearly full: use it first, so that others run empty
	}
	ch.free = s.free
	s.free = ch
	s.used--
	k.used--
	k.quota += int64(classSize[ch.Class])
	surplus := int64(0)
	if k.quota > 2*quotaUnit {
		surplus = quotaUnit
		k.quota -= surplus
	}
	var idle *slab
	if s.used == 0 {
		s.unlink()
		s.linkAfter(k.list.prev)
		k.empty++
		if k.empty > minEmpty && a.budget.crowded() {
			idle = k.takeEmpty()
		}
	}
	k.mu.Unlock()
	if surplus != 0 {
		a.budget.Sub(surplus)
	}
	a.retireAll(k, idle)
}

// What is empty stays for the next burst: a transfer over a long path empties and fills as much as its window in a round trip, and a page
// that is given back costs more to get again than all that is done with its bytes. What was not needed for a period of agesPerPeriod
// calls of Age goes back in the next one, but for minEmpty slabs, and agePace bytes per call, since each takes the system a while.
const (
	minEmpty      = 4
	agesPerPeriod = 10
	agePace       = 8 << 20
)

// Age gives pages back that have not been needed for a while. It is to be called every 100 ms or so.
func (a *Arena) Age() {
	for i := range a.classes {
		k := &a.classes[i]
		var idle *slab
		k.mu.Lock()
		for n := min(k.excess, agePace/(slabChunks[i]*classSize[i])); n > 0 && k.empty > minEmpty; n-- {
			s := k.takeEmpty()
			k.excess--
			s.next, idle = idle, s
		}
		k.low = min(k.low, k.empty)
		if k.ages++; k.ages == agesPerPeriod {
			k.excess, k.low, k.ages = max(k.low-minEmpty, 0), k.empty, 0
		}
		k.mu.Unlock()
		a.retireAll(k, idle)
	}
}

// takeEmpty takes an empty slab out of the list.
func (k *class) takeEmpty() *slab {
	s := k.list.prev
	s.unlink()
	s.next = nil
	k.empty--
	k.hot--
	return s
}

// addSlab takes a cold slab or maps one, and links it; the class is locked. It returns nil if the system refuses.
func (a *Arena) addSlab(c Class) *slab {
	k := &a.classes[c]
	s := k.cold
	if s != nil {
		k.cold = s.next
	} else {
		n := slabChunks[c]
		mem, err := a.backing.Map(n * classSize[c])
		if err != nil {
			return nil
		}
		s = &slab{mem: mem, chunks: make([]Chunk, n)}
		for i := n - 1; i >= 0; i-- {
			ch := &s.chunks[i]
			ch.Mem = mem[i*classSize[c] : (i+1)*classSize[c] : (i+1)*classSize[c]]
			ch.Class, ch.slab, ch.free = c, s, s.free
			s.free = ch
		}
	}
	s.linkAfter(&k.list) // the list is empty
	k.hot++
	k.empty++
	a.budget.AddMapped(int64(len(s.mem)))
	return s
}

// retire gives the pages of a slab without chunks in use back to the system. The slab is in no list, so nobody else sees it.
func (a *Arena) retire(k *class, s *slab) {
	_ = a.backing.Return(s.mem) // if it fails, the memory stays ours and is used again all the same
	a.budget.AddMapped(-int64(len(s.mem)))
	k.mu.Lock()
	s.next, k.cold = k.cold, s
	k.returned++
	k.mu.Unlock()
}

// retireAll retires a list of slabs.
func (a *Arena) retireAll(k *class, idle *slab) {
	for idle != nil {
		next := idle.next
		a.retire(k, idle)
		idle = next
	}
}

// Trim gives back what the arena keeps for the next burst: empty slabs, and unused quota. For idle times.
func (a *Arena) Trim() {
	for i := range a.classes {
		k := &a.classes[i]
		k.mu.Lock()
		var idle *slab
		for k.empty > 0 {
			s := k.takeEmpty()
			s.next, idle = idle, s
		}
		quota := k.quota
		k.quota = 0
		k.mu.Unlock()
		if quota != 0 {
			a.budget.Sub(quota)
		}
		a.retireAll(k, idle)
	}
}

func (s *slab) linkAfter(p *slab) {
	s.prev, s.next = p, p.next
	p.next.prev = s
	p.next = s
}

func (s *slab) unlink() {
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
}

// ClassStats are the figures of one class.
type ClassStats struct {
	Class    string
	Size     int    // bytes per chunk
	Used     int    // chunks out
	Slabs    int    // slabs that may have pages
	Returned uint64 // slabs given back to the system, ever
}

// Stats returns the figures of each class.
func (a *Arena) Stats() [NumClasses]ClassStats {
	var r [NumClasses]ClassStats
	for i := range a.classes {
		k := &a.classes[i]
		k.mu.Lock()
		r[i] = ClassStats{classNames[i], classSize[i], k.used, k.hot, k.returned}
		k.mu.Unlock()
	}
	return r
}

// LeakError says how many chunks of which class did not come back.
type LeakError struct{ Used [NumClasses]int }

func (e *LeakError) Error() string {
	var s []string
	for c, n := range e.Used {
		if n > 0 {
			s = append(s, fmt.Sprintf("%d %s", n, Class(c)))
		}
	}
	return "mem: chunks leaked: " + strings.Join(s, ", ")
}

// CheckLeaks returns a *LeakError if chunks are out.
func (a *Arena) CheckLeaks() error {
	e := new(LeakError)
	for i, s := range a.Stats() {
		e.Used[i] = s.Used
	}
	if e.Used == ([NumClasses]int{}) {
		return nil
	}
	return e
}

// Close unmaps all memory. It refuses with a *LeakError while chunks are out.
func (a *Arena) Close() error {
	if err := a.CheckLeaks(); err != nil {
		return err
	}
	a.Trim()
	for i := range a.classes {
		k := &a.classes[i]
		k.mu.Lock()
		s := k.cold
		k.cold = nil
		k.mu.Unlock()
		for ; s != nil; s = s.next {
			if err := a.backing.Unmap(s.mem); err != nil {
				return fmt.Errorf("mem: unmapping a slab: %w", err)
			}
		}
	}
	return nil
}
