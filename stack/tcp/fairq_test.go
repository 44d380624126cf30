package tcp

import "testing"

// fairQueue is an engine with n new flows, which are ready.
func fairQueue(n int) (*Engine, []*Conn) {
	e := New(Config{}, Env{}, 1e9)
	flows := make([]*Conn, n)
	for i := range flows {
		flows[i] = &Conn{eng: e, slot: uint32(i), credit: firstCredit, lastSend: e.now}
		e.makeReady(flows[i])
	}
	return e, flows
}

// turn gives the next flow its turn: it sends bytes and, if more, still has something to send.
func turn(e *Engine, bytes int32, more func(*Conn) bool) *Conn {
	f, _ := e.nextReady()
	f.c.credit -= bytes
	if more(f.c) {
		e.ready.add(&e.ready.old, f)
	}
	return f.c
}

func always(*Conn) bool { return true }
func never1(*Conn) bool { return false }

// F12: flows share the port by bytes, however much each sends in one turn.
func TestFairQueueBytes(t *testing.T) {
	e, flows := fairQueue(3)
	size := []int32{16 * 1514, 16 * 266, 1514}
	var sent [3]int
	for range 10_000 {
		f, from := e.nextReady()
		f.c.credit -= size[f.c.slot]
		sent[f.c.slot] += int(size[f.c.slot])
		e.goesOn(f, from)
	}
	for i := range flows {
		if d := sent[i] - sent[0]; d > 2*16*1514 || d < -2*16*1514 {
			t.Errorf("flow %d sent %d bytes, flow 0 %d", i, sent[i], sent[0])
		}
	}
}

// F12: a flow that becomes ready goes before those that have used up their credit, until it has done so itself.
func TestFairQueueNewFlowFirst(t *testing.T) {
	e, flows := fairQueue(3)
	light := flows[2]
	for range 3 {
		turn(e, firstCredit, func(c *Conn) bool { return c != light })
	}
	turn(e, 16*1514, always)
	if light.credit = credit; light.inReady {
		t.Fatal("the light flow is still queued")
	}
	for left := int32(credit); left > 0; left -= 166 { // requests, one by one
		e.makeReady(light)
		if c := turn(e, 166, never1); c != light {
			t.Fatalf("flow %d had its turn, with %d bytes of the light flow's credit left", c.slot, left)
		}
	}
	e.makeReady(light) // it has been greedy, too
	seen := map[uint32]int{}
	for range 2 {
		seen[turn(e, 16*1514, always).slot]++
	}
	if seen[0]+seen[1] == 0 {
		t.Errorf("a flow without credit went before others: %v", seen)
	}
}

// A flow that is alone has no rounds to wait for, and its debt does not grow.
func TestFairQueueAlone(t *testing.T) {
	e, flows := fairQueue(1)
	for range 1000 {
		turn(e, 16*1514, always)
	}
	if flows[0].credit < -16*1514 {
		t.Errorf("credit %d", flows[0].credit)
	}
}

// A debt is forgotten after 40 ms without a segment, and a departure that has come queues behind what is ready.
func TestFairQueueRefillAndDepartures(t *testing.T) {
	e, flows := fairQueue(2)
	for range 2 {
		turn(e, 100_000, never1)
	}
	a, b := flows[0], flows[1]
	e.now = e.now.Add(refillDelay)
	e.makeReady(a)
	e.now++
	e.makeReady(b)
	if a.credit > 0 || b.credit != credit {
		t.Errorf("credits %d and %d after 40 ms and more", a.credit, b.credit)
	}
	turn(e, 0, never1)
	turn(e, 0, never1)
	a.credit, b.credit = credit, credit
	e.departs(a)
	e.departs(a)
	e.makeReady(b)
	if e.ready.n != 2 {
		t.Errorf("%d queued", e.ready.n)
	}
	if c := turn(e, 0, never1); c != b {
		t.Error("a departure went before a flow that became ready")
	}
}

// A flow that found no room keeps its turn.
func TestFairQueueKeepsTurn(t *testing.T) {
	e, flows := fairQueue(3)
	c, from := e.nextReady()
	e.stays(c, from)
	if again, _ := e.nextReady(); again != c || e.ready.n != 2 || flows[1].slot != 1 {
		t.Error("another flow has its turn")
	}
}
