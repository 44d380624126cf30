package daemon

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/mem"
)

// setMemory makes the process's memory budget, and fits the Go runtime to a small heap beside it and to the workers.
func (d *Daemon) setMemory(context.Context) (err error) {
	m := &d.conf.Memory
	if d.budget, err = mem.NewBudget(mem.Limits{Low: int64(m.Low), Pressure: int64(m.Pressure), High: int64(m.High)}); err != nil {
		return err
	}
	d.arena = mem.NewArena(d.budget)
	d.onStop(d.arena.Close)
	percent, limit := m.GC()
	oldPercent, oldLimit := debug.SetGCPercent(percent), debug.SetMemoryLimit(limit)
	oldProcs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(oldProcs, pollers(d.conf.Workers)+1))
	d.onStop(func() error {
		runtime.GOMAXPROCS(oldProcs)
		debug.SetGCPercent(oldPercent)
		debug.SetMemoryLimit(oldLimit)
		return nil
	})
	return nil
}

// pollers is the number of goroutines that poll: one for each spinning worker, and one for all adaptive ones. Go needs a further
// processor, or kernel sockets wait for its monitor thread.
func pollers(ws []conf.Worker) (n int) {
	adaptive := 0
	for _, w := range ws {
		if w.Poll == conf.PollSpin {
			n++
		} else {
			adaptive = 1
		}
	}
	return n + adaptive
}

// chargeBuffers counts the ports' packet buffers into the budget.
func (d *Daemon) chargeBuffers() error {
	seen := map[*pmd.Pool]bool{} // VLANs share those of their parent
	for _, p := range d.ports {
		for i := range p.trace.NumQueues() {
			if pool := p.trace.Queue(i).Pool(); !seen[pool] {
				seen[pool] = true
				d.buffers += int64(pool.MappedBytes())
			}
		}
	}
	if low := int64(d.conf.Memory.Low); d.buffers >= low {
		return fmt.Errorf("memory.low: the ports' packet buffers alone take %v, and low is %v: raise the limits, or lower port.buffers",
			conf.Size(d.buffers), d.conf.Memory.Low)
	}
	d.budget.Add(d.buffers)
	d.budget.AddMapped(d.buffers)
	d.onStop(func() error {
		d.budget.Sub(d.buffers)
		d.budget.AddMapped(-d.buffers)
		return nil
	})
	return nil
}
