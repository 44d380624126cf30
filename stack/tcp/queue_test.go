package tcp

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFlowQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q flowQueue
		var model []flow
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					f := flow{c: new(Conn)}
					q.push(f)
					model = append(model, f)
				}
			},
			"pop": func(t *rapid.T) {
				for range min(rapid.IntRange(1, 100).Draw(t, "n"), len(model)) {
					if f := q.pop(); f != model[0] {
						t.Fatal("not the first one")
					}
					model = model[1:]
				}
			},
			"": func(t *rapid.T) {
				if q.n != len(model) {
					t.Fatalf("length %d, want %d", q.n, len(model))
				}
				held := 0
				for _, f := range q.ring {
					if f != (flow{}) {
						held++
					}
				}
				if held != len(model) {
					t.Fatalf("holds %d flows, want %d", held, len(model))
				}
			},
		})
	})
}

// The mailbox holds a connection once however often it is kicked, and hands them over in order.
func TestMailbox(t *testing.T) {
	woken := 0
	e := &Engine{}
	e.mail.wake = func() { woken++ }
	var conns [3]Conn
	for range 2 {
		for i := range conns {
			conns[i].eng = e
			conns[i].kick(kickRead)
			conns[i].kick(kickWrite)
		}
	}
	c := e.mail.take()
	for i := range conns {
		if c != &conns[i] || c.pend.Load() != kickRead|kickWrite {
			t.Fatalf("entry %d is not connection %d with both bits", i, i)
		}
		c = c.mailNext
	}
	if c != nil || e.mail.take() != nil || woken != 1 {
		t.Errorf("too many entries, or %d wakes for one filling", woken)
	}
}

func TestWaiter(t *testing.T) {
	var w Waiter
	w.Wake() // nobody waits
	w.Arm()
	w.Wake()
	w.Wake()
	w.Wait()
	w.Arm()
	w.Disarm()
	w.Arm()
	w.Wake()
	w.Disarm() // takes the wake
	if w.Armed() || w.ch != nil {
		t.Error("armed, or holds a channel")
	}
	done := make(chan struct{})
	close(done)
	w.Arm()
	if w.WaitOr(done) || w.Armed() {
		t.Error("a wait that was given up is a wake, or stays armed")
	}
}
