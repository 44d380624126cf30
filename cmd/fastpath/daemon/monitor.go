package daemon

import (
	"fmt"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// monitorEvery is how often links, addresses and the memory budget are looked at.
const monitorEvery = 200 * time.Millisecond

// startMonitor has changes of links, of addresses and of the memory budget's level become events.
func (d *Daemon) startMonitor() {
	stop, ended := make(chan struct{}), make(chan struct{})
	d.onStop(func() error {
		close(stop)
		<-ended
		return nil
	})
	up, seen := make([]bool, len(d.ports)), make([]seenAddresses, len(d.ports))
	for i, p := range d.ports {
		up[i], seen[i] = p.trace.LinkUp(), p.configured()
	}
	level := d.budget.Level()
	go func() {
		defer close(ended)
		tick := time.NewTicker(monitorEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for i, p := range d.ports {
				if now := p.trace.LinkUp(); now != up[i] {
					up[i] = now
					d.linkEvent(p, now)
				}
				d.addressEvents(p, seen[i])
			}
			if now := d.budget.Level(); now != level {
				used := d.budget.Used()
				d.events.add(control.EventMemory, fmt.Sprintf("memory: %v, was %v, with %d bytes in use", now, level, used),
					"level", now, "from", level, "used_bytes", used)
				d.log.Warn("memory", "level", now.String(), "from", level.String(), "used", used)
				level = now
			}
		}
	}()
}

func (d *Daemon) linkEvent(p *port, up bool) {
	port, state, advice := p.conf.Name, "down", ""
	if up {
		state = "up"
	} else if advice = p.trace.LinkAdvice(); advice != "" {
		advice = ": " + advice
	}
	d.events.add(control.EventLink, fmt.Sprintf("link of port %s is %s%s", port, state, advice), "port", port, "state", state)
	d.log.Warn("link"+advice, "port", port, "state", state)
}
