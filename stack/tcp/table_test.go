package tcp

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/fastpath-tcp/fastpath/stack/timer"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

func testTuple(i uint32) Tuple {
	a := func(n byte) wire.Addr { return wire.AddrFrom(netip.AddrFrom4([4]byte{10, 0, 0, n})) }
	return Tuple{Local: a(1), Remote: a(byte(2 + i>>6&3)), LocalPort: 80, RemotePort: uint16(1000 + i&63)}
}

// TestTableModel compares the flow table with a map. The keys are few, so that deleted cells are met again, and in one case they are
// such that all tuples collide.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &Engine{wheel: timer.New(0)}
		e.cfg.MaxConns = 1 << 20
		e.table.init()
		e.env.Keys.Table = Key{rapid.Uint64().Draw(t, "k0"), rapid.Uint64().Draw(t, "k1")}
		model := map[Tuple]uint32{}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				k := testTuple(rapid.Uint32Range(0, 255).Draw(t, "i"))
				if _, ok := model[k]; ok {
					t.Skip("is there")
				}
				s, ok := e.newSlot()
				if !ok {
					t.Fatal("no slot")
				}
				if rapid.Bool().Draw(t, "time-wait") {
					e.slots[s].tw = &timeWait{lastSeg: lastSeg{tuple: k}}
				} else {
					e.slots[s].conn = &Conn{Tuple: k}
				}
				e.insert(s)
				model[k] = s
			},
			"remove": func(t *rapid.T) {
				k := testTuple(rapid.Uint32Range(0, 255).Draw(t, "i"))
				s, ok := model[k]
				if !ok {
					t.Skip("is not there")
				}
				if got := e.slotOf(&k); got != s {
					t.Fatalf("slotOf is %d, want %d", got, s)
				}
				gen := e.slots[s].gen
				e.remove(s)
				e.freeSlot(s)
				if e.slots[s].gen == gen {
					t.Fatal("a freed slot keeps its generation")
				}
				delete(model, k)
			},
			"": func(t *rapid.T) {
				for i := range uint32(256) {
					k := testTuple(i)
					en := e.find(&k)
					if s, ok := model[k]; !ok && en != nil || ok && en != &e.slots[s] {
						t.Fatalf("find(%v) is %v, want slot %d, %v", k, en, s, ok)
					}
				}
				if e.table.live != len(model) || e.table.n < e.table.live || e.table.n >= len(e.table.cells) {
					t.Fatalf("live %d, used %d of %d, want %d", e.table.live, e.table.n, len(e.table.cells), len(model))
				}
			},
		})
	})
}

// TestTableChurn: cells of removed flows are taken back, so the table of a busy server does not grow with the flows that were.
func TestTableChurn(t *testing.T) {
	e := &Engine{wheel: timer.New(0)}
	e.cfg.MaxConns = 1 << 20
	e.table.init()
	for i := range uint32(100_000) {
		s, _ := e.newSlot()
		k := testTuple(i % 256)
		k.LocalPort = uint16(i)
		e.slots[s].conn = &Conn{Tuple: k}
		e.insert(s)
		e.remove(s)
		e.freeSlot(s)
	}
	if len(e.table.cells) != 64 || len(e.slots) != 1 {
		t.Errorf("%d cells and %d slots after one flow at a time", len(e.table.cells), len(e.slots))
	}
}

func TestMaxConns(t *testing.T) {
	e := &Engine{wheel: timer.New(0)}
	e.cfg.MaxConns = 2
	a, ok1 := e.newSlot()
	_, ok2 := e.newSlot()
	if _, ok3 := e.newSlot(); !ok1 || !ok2 || ok3 {
		t.Errorf("slots: %v %v %v, want two", ok1, ok2, ok3)
	}
	e.freeSlot(a)
	if s, ok := e.newSlot(); !ok || s != a {
		t.Errorf("a freed slot is not used again: %d, %v", s, ok)
	}
}
