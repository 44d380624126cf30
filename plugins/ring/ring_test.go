package ring

import (
	"fmt"
	"testing"
	"time"
	"unsafe"
)

type record struct {
	N   uint64
	Pad [15]uint64
}

func fresh(t testing.TB, n int) (*Producer[record], *Consumer[record], *Cursor, *Cursor) {
	t.Helper()
	var tail, head Cursor
	slots := make([]record, n)
	p, err := NewProducer(slots, &tail, &head)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(slots, &head, &tail)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, &tail, &head
}

func TestCursorHasItsOwnLines(t *testing.T) {
	if s := unsafe.Sizeof(Cursor{}); s != 128 {
		t.Fatalf("Cursor has %d bytes, want 128", s)
	}
}

func TestCapacity(t *testing.T) {
	for _, n := range []int{0, 3, 6, 100} {
		if _, err := NewProducer(make([]record, n), new(Cursor), new(Cursor)); err == nil {
			t.Errorf("producer accepts capacity %d", n)
		}
		if _, err := NewConsumer(make([]record, n), new(Cursor), new(Cursor)); err == nil {
			t.Errorf("consumer accepts capacity %d", n)
		}
	}
}

func TestFullAndEmpty(t *testing.T) {
	p, c, _, _ := fresh(t, 4)
	dst := make([]record, 8)
	for round := range uint64(10) {
		for i := range uint64(4) {
			if !p.Push(&record{N: round*4 + i}) {
				t.Fatalf("round %d: ring of 4 refuses record %d", round, i)
			}
		}
		if p.Push(&record{}) || p.Room() != 0 || p.Outstanding() != 4 {
			t.Fatal("a full ring takes more")
		}
		if c.Pop(dst) != 0 {
			t.Fatal("records are visible before Publish")
		}
		p.Publish()
		if n := c.Pop(dst); n != 4 {
			t.Fatalf("popped %d, want 4", n)
		}
		for i := range uint64(4) {
			if dst[i].N != round*4+i {
				t.Fatalf("record %d is %d", round*4+i, dst[i].N)
			}
		}
		if p.Room() != 0 {
			t.Fatal("slots are free before the consumer publishes")
		}
		c.Publish()
		if p.Room() != 4 {
			t.Fatalf("room %d after all was consumed, want 4", p.Room())
		}
	}
}

// A hostile peer may store anything in its cursor.
func TestHostileCursors(t *testing.T) {
	for _, bad := range []uint64{1 << 63, 3, 6, ^uint64(0), 1 << 40} {
		t.Run(fmt.Sprintf("head=%#x", bad), func(t *testing.T) {
			p, c, _, head := fresh(t, 4)
			for range 5 { // two batches, so that going back to 0 is a step backwards
				p.Push(&record{})
				p.Publish()
				c.Pop(make([]record, 1))
				c.Publish()
			}
			p.Room()
			head.pos.Store(bad)
			if p.Room() != 0 || p.Err() != ErrCursor || p.Push(&record{}) && p.Err() == nil {
				t.Fatalf("cursor %#x was accepted: room %d, err %v", bad, p.Room(), p.Err())
			}
			head.pos.Store(5)
			if p.Room() != 0 || p.Err() == nil {
				t.Fatal("the error does not last")
			}
		})
		t.Run(fmt.Sprintf("tail=%#x", bad), func(t *testing.T) {
			p, c, tail, _ := fresh(t, 4)
			if bad == 3 || bad == 6 {
				bad += 20 // within capacity of 5 these would be legal
			}
			for range 5 {
				p.Push(&record{})
				p.Publish()
				c.Pop(make([]record, 1))
				c.Publish()
			}
			tail.pos.Store(bad)
			if n := c.Pop(make([]record, 4)); n != 0 || c.Err() != ErrCursor {
				t.Fatalf("cursor %#x was accepted: popped %d, err %v", bad, n, c.Err())
			}
		})
	}
}

// Two goroutines; run it with -race. The consumer parks whenever it finds nothing.
func TestConcurrent(t *testing.T) {
	p, c, _, _ := fresh(t, 64)
	var bell Bell
	const total = 50_000
	done := make(chan error, 1)
	go func() {
		dst := make([]record, 16)
		for want := uint64(0); want < total; {
			n := c.Pop(dst)
			for _, r := range dst[:n] {
				if r.N != want || r.Pad[14] != ^want {
					done <- fmt.Errorf("got record %d/%d, want %d", r.N, ^r.Pad[14], want)
					return
				}
				want++
			}
			c.Publish()
			if n > 0 {
				continue
			}
			seen := bell.Seen()
			if c.Park() {
				bell.Wait(seen, time.Second)
				c.Unpark()
			}
		}
		done <- nil
	}()
	for i := uint64(0); i < total; {
		for range 8 {
			r := record{N: i}
			r.Pad[14] = ^i
			if i == total || !p.Push(&r) {
				break
			}
			i++
		}
		if p.Publish() {
			bell.Ring()
		}
		if len(done) > 0 && i < total { // it ends early only with an error
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestBellWakes(t *testing.T) {
	var bell Bell
	seen := bell.Seen()
	woke := make(chan struct{})
	go func() {
		for bell.Seen() == seen {
			bell.Wait(seen, -1)
		}
		close(woke)
	}()
	bell.Ring()
	<-woke
	bell.Wait(bell.Seen(), time.Microsecond) // the time-out ends it
}

func TestNoAllocation(t *testing.T) {
	p, c, _, _ := fresh(t, 64)
	var r record
	dst := make([]record, 64)
	if n := testing.AllocsPerRun(100, func() {
		for range 40 {
			p.Push(&r)
		}
		p.Publish()
		c.Pop(dst)
		c.Publish()
	}); n != 0 {
		t.Fatalf("%v allocations per batch", n)
	}
}

// FuzzRing compares the ring with a slice. Each byte is an operation.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 2, 3, 0, 1, 0x12, 3})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x72, 3, 0, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p, c, _, _ := fresh(t, 8)
		var pushed, popped, published, released uint64 // the model: positions in an endless sequence
		for _, op := range ops {
			switch op & 3 {
			case 0:
				ok := p.Push(&record{N: pushed})
				if want := pushed-released < 8; ok != want {
					t.Fatalf("push at %d (released %d): %v, want %v", pushed, released, ok, want)
				}
				if ok {
					pushed++
				}
			case 1:
				p.Publish()
				published = pushed
			case 2:
				dst := make([]record, op>>4)
				n := c.Pop(dst)
				if want := min(int(published-popped), len(dst)); n != want {
					t.Fatalf("pop of %d at %d: %d, want %d", len(dst), popped, n, want)
				}
				for _, r := range dst[:n] {
					if r.N != popped {
						t.Fatalf("record %d where %d should be", r.N, popped)
					}
					popped++
				}
			case 3:
				c.Publish()
				released = popped
			}
			if p.Err() != nil || c.Err() != nil {
				t.Fatal(p.Err(), c.Err())
			}
		}
	})
}

func BenchmarkRing(b *testing.B) {
	for _, batch := range []int{1, 8, 32, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			p, c, _, _ := fresh(b, 1024)
			var r record
			dst := make([]record, batch)
			for i := 0; i < b.N; i += batch {
				for range batch {
					p.Push(&r)
				}
				p.Publish()
				c.Pop(dst)
				c.Publish()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/record")
		})
	}
}
