package tcp

// table is the flow table: open addressing with linear probing over keyed hashes. It holds slots; the tuples are in the slots'
// connections.
type table struct {
	cells []cell
	n     int // used cells, deleted ones included
	live  int
}

type cell struct {
	hash uint32
	ref  uint32 // slot+2; 0: never used; 1: deleted
}

const deleted = 1

func (t *table) init() { t.cells = make([]cell, 64) }

func (e *Engine) hash(k *Tuple) uint32 { return e.env.Keys.Table.quick(k) }

// tuple returns the tuple of slot s.
func (e *Engine) tuple(s uint32) *Tuple {
	switch en := &e.slots[s]; {
	case en.conn != nil:
		return &en.conn.Tuple
	case en.half != nil:
		return &en.half.tuple
	default:
		return &en.tw.tuple
	}
}

// find returns the entry for k, or nil.
func (e *Engine) find(k *Tuple) *entry {
	h := e.hash(k)
	mask := uint32(len(e.table.cells) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		c := e.table.cells[i]
		if c.ref == 0 {
			return nil
		}
		if c.hash == h && c.ref != deleted && *e.tuple(c.ref - 2) == *k {
			return &e.slots[c.ref-2]
		}
	}
}

// insert adds slot s, whose tuple is not in the table.
func (e *Engine) insert(s uint32) {
	t := &e.table
	if t.n*4 >= len(t.cells)*3 {
		e.rehash()
	}
	h := e.hash(e.tuple(s))
	mask := uint32(len(t.cells) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if r := t.cells[i].ref; r <= deleted {
			if r == 0 {
				t.n++
			}
			t.cells[i] = cell{h, s + 2}
			t.live++
			return
		}
	}
}

// remove takes slot s out.
func (e *Engine) remove(s uint32) {
	t := &e.table
	h := e.hash(e.tuple(s))
	mask := uint32(len(t.cells) - 1)
	for i := h & mask; t.cells[i].ref != 0; i = (i + 1) & mask {
		if t.cells[i].ref == s+2 {
			t.cells[i].ref = deleted
			t.live--
			return
		}
	}
}

func (e *Engine) rehash() {
	t := &e.table
	old := t.cells
	size := len(old)
	for t.live*2 >= size {
		size *= 2
	}
	t.cells, t.n = make([]cell, size), 0
	mask := uint32(size - 1)
	for _, c := range old {
		if c.ref <= deleted {
			continue
		}
		i := c.hash & mask
		for t.cells[i].ref != 0 {
			i = (i + 1) & mask
		}
		t.cells[i] = c
		t.n++
	}
}
