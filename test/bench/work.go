package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// BulkResult is one run of Bulk.
type BulkResult struct {
	Bytes        int64
	Elapsed, CPU time.Duration
	BitsPerSec   float64 // payload that the reader got
	CPUPerGB     float64 // seconds of CPU, both ends, per 10^9 bytes
	AllocsPerK   float64 // heap allocations per 1000 packets of payload
}

// Bulk writes o.Size bytes at a time for o.Time on o.Flows connections and counts what the readers get.
func Bulk(o Options) (r BulkResult, err error) {
	p, err := newPair(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	flows := max(o.Flows, 1)
	type end struct {
		n   int64
		err error
	}
	got := make(chan end, flows)
	go func() {
		for range flows {
			c, err := p.ln.Accept()
			if err != nil {
				return
			}
			go func() {
				n, err := drain(c)
				got <- end{n, err}
			}()
		}
	}()
	conns := make([]*sock.Conn, flows)
	for i := range conns {
		if conns[i], err = p.connect(); err != nil {
			return r, err
		}
	}
	if o.Look != nil {
		o.Look(false)
	}
	u0 := used()
	wrote := make(chan end, flows)
	for _, c := range conns {
		go func() {
			n, err := write(c, o.Size, u0.at.Add(o.Time))
			wrote <- end{n, err}
		}()
	}
	sent := int64(0)
	for range flows {
		w, g := <-wrote, <-got
		sent += w.n
		r.Bytes += g.n
		err = errors.Join(err, w.err, g.err)
	}
	if err == nil && sent != r.Bytes {
		err = fmt.Errorf("bench: %d bytes written, %d read", sent, r.Bytes)
	}
	if err != nil {
		return r, err
	}
	u1 := used()
	if o.Look != nil {
		o.Look(true)
	}
	r.Elapsed, r.CPU = u1.at.Sub(u0.at), u1.cpu-u0.cpu
	r.BitsPerSec = float64(r.Bytes) * 8 / r.Elapsed.Seconds()
	r.CPUPerGB = r.CPU.Seconds() / (float64(r.Bytes) / 1e9)
	r.AllocsPerK = float64(u1.allocs-u0.allocs) / (float64(r.Bytes) / 1448 / 1000)
	for _, c := range conns {
		c.Close()
	}
	return r, nil
}

// drain reads to the end of the stream.
func drain(c net.Conn) (n int64, err error) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		k, err := c.Read(buf)
		n += int64(k)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// write writes until end, looking at the clock once per 64 KiB, and then ends the stream.
func write(c *sock.Conn, size int, end time.Time) (n int64, err error) {
	buf := make([]byte, size)
	per := max(1, 65536/size)
	for time.Now().Before(end) {
		for range per {
			k, err := c.Write(buf)
			n += int64(k)
			if err != nil {
				return n, err
			}
		}
	}
	return n, c.CloseWrite()
}

// RRResult is one run of RequestResponse.
type RRResult struct {
	Count        int
	Elapsed, CPU time.Duration
	PerSec       float64
	P50, P99     time.Duration
	Timers       uint64 // pacing timers armed, at both ends
}

// RequestResponse exchanges messages of o.Size bytes, one outstanding per connection, for o.Time on o.Flows connections.
func RequestResponse(o Options) (r RRResult, err error) {
	p, err := newPair(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	go func() {
		for {
			c, err := p.ln.Accept()
			if err != nil {
				return
			}
			go echo(c, o.Size)
		}
	}()
	flows := max(o.Flows, 1)
	lats := make([][]time.Duration, flows)
	errs := make([]error, flows)
	var wg sync.WaitGroup
	u0 := used()
	for i := range flows {
		c, err := p.connect()
		if err != nil {
			return r, err
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			lats[i], errs[i] = ask(c, o.Size, u0.at.Add(o.Time))
			c.Close()
		}()
	}
	wg.Wait()
	u1 := used()
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	var all []time.Duration
	for _, l := range lats {
		all = append(all, l...)
	}
	slices.Sort(all)
	r.Timers = p.stats().PacingTimers
	r.Count = len(all)
	r.Elapsed, r.CPU = u1.at.Sub(u0.at), u1.cpu-u0.cpu
	r.PerSec = float64(r.Count) / r.Elapsed.Seconds()
	r.P50, r.P99 = all[len(all)/2], all[len(all)*99/100]
	return r, nil
}

func echo(c net.Conn, size int) {
	defer c.Close()
	b := make([]byte, size)
	for {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// ask sends messages and waits for each to come back, until end, and once at the least.
func ask(c net.Conn, size int, end time.Time) (lat []time.Duration, err error) {
	b := make([]byte, size)
	lat = make([]time.Duration, 0, 1<<20)
	for t := time.Now(); len(lat) == 0 || t.Before(end); {
		if _, err := c.Write(b); err != nil {
			return lat, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return lat, err
		}
		now := time.Now()
		lat = append(lat, now.Sub(t))
		t = now
	}
	return lat, nil
}

// CPSResult is one run of ConnectionsPerSecond.
type CPSResult struct {
	Count        int
	Elapsed, CPU time.Duration
	PerSec       float64
}

// ConnectionsPerSecond opens o.Count connections one after the other, exchanges one message of o.Size bytes on each, and lets the
// server close first.
func ConnectionsPerSecond(o Options) (r CPSResult, err error) {
	p, err := newPair(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	go func() {
		for {
			c, err := p.ln.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, o.Size)
				io.ReadFull(c, b) //nolint:errcheck // the client counts
				c.Write(b)        //nolint:errcheck
				c.Close()
			}()
		}
	}()
	b := make([]byte, o.Size)
	u0 := used()
	t0 := u0.at
	for r.Count < o.Count && time.Since(t0) < o.Time {
		c, err := p.connect()
		if err != nil {
			return r, err
		}
		if _, err = c.Write(b); err == nil {
			_, err = io.ReadFull(c, b)
		}
		if err != nil {
			return r, fmt.Errorf("bench: connection %d: %w", r.Count, err)
		}
		c.Close()
		r.Count++
	}
	u1 := used()
	r.Elapsed, r.CPU = u1.at.Sub(t0), u1.cpu-u0.cpu
	r.PerSec = float64(r.Count) / r.Elapsed.Seconds()
	return r, nil
}

// IdleResult is one run of Idle.
type IdleResult struct {
	Endpoints         int
	HeapPerEndpoint   float64 // bytes of heap and stacks
	MappedPerEndpoint float64 // bytes mapped outside the heap
	BytesPerEndpoint  float64
}

// Idle opens o.Count connections and measures the memory that they hold at rest, mapped memory counted.
func Idle(o Options) (r IdleResult, err error) {
	p, err := newPair(o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	keep := make([]net.Conn, 0, 2*o.Count) // the application's, not the stack's
	h0, m0 := heap(), float64(p.arena.Budget().Stats().Mapped)
	for range o.Count {
		c, err := p.connect()
		if err != nil {
			return r, err
		}
		s, err := p.ln.Accept()
		if err != nil {
			return r, err
		}
		keep = append(keep, c, s)
	}
	time.Sleep(time.Second) // delayed acknowledgements
	h1, m1 := heap(), float64(p.arena.Budget().Stats().Mapped)
	r.Endpoints = len(keep)
	r.HeapPerEndpoint = (h1 - h0) / float64(r.Endpoints)
	r.MappedPerEndpoint = (m1 - m0) / float64(r.Endpoints)
	r.BytesPerEndpoint = r.HeapPerEndpoint + r.MappedPerEndpoint
	for _, c := range keep {
		c.Close()
	}
	runtime.KeepAlive(keep)
	return r, nil
}
