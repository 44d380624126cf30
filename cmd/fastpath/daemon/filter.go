package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/stack/filter"
)

// rules is the packet filter that is in force.
type rules struct {
	mu    sync.Mutex
	conf  *conf.Rules
	since time.Time
	index [][]int // by port: the number of each of the port's own rules in conf
}

// compileFilter makes the tables of all ports, nil where everything is allowed, and the numbers of their rules.
func (d *Daemon) compileFilter(r *conf.Rules) (tables []*filter.Table, index [][]int, err error) {
	otherwise, err := filter.ParseAction(r.Firewall.Default)
	if err != nil {
		return nil, nil, err
	}
	for i := range d.conf.Ports {
		var own []filter.Rule
		var numbers []int
		for n := range r.Filters {
			f := &r.Filters[n]
			if f.Port != "" && f.Port != d.conf.Ports[i].Name {
				continue
			}
			one, err := filterRule(f)
			if err != nil {
				return nil, nil, fmt.Errorf("filter[%d] %q: %w", n, f.Name, err)
			}
			own, numbers = append(own, one), append(numbers, n)
		}
		var t *filter.Table
		if len(own) > 0 || otherwise != filter.Allow {
			if t, err = filter.Compile(own, otherwise); err != nil {
				return nil, nil, err
			}
		}
		tables, index = append(tables, t), append(index, numbers)
	}
	return tables, index, nil
}

func filterRule(f *conf.Filter) (r filter.Rule, err error) {
	if r.Action, err = filter.ParseAction(f.Action); err != nil {
		return r, err
	}
	for _, n := range f.Source {
		r.Sources = append(r.Sources, n.Prefix)
	}
	for _, n := range f.Destination {
		r.Destinations = append(r.Destinations, n.Prefix)
	}
	if p, ok := f.ProtocolNumber(); ok {
		r.Protocols = []uint8{p}
	}
	for _, p := range f.SourcePorts {
		r.SourcePorts = append(r.SourcePorts, filter.Ports(p))
	}
	for _, p := range f.DestinationPorts {
		r.DestPorts = append(r.DestPorts, filter.Ports(p))
	}
	r.State = map[string]filter.State{"": filter.AnyState, "new": filter.New, "established": filter.Established}[f.State]
	return r, nil
}

// Filter implements control.Handler.
func (d *Daemon) Filter(_ context.Context, r control.FilterRequest) (*control.FilterReply, error) {
	switch {
	case r.Load:
		names := make([]string, len(d.conf.Ports))
		for i := range d.conf.Ports {
			names[i] = d.conf.Ports[i].Name
		}
		rules, err := conf.ParseRules(r.File, []byte(r.Text), names)
		if err != nil {
			return nil, control.Refuse("%v", err)
		}
		if err := d.setFilter(rules, r.File); err != nil {
			return nil, err
		}
	case r.Reload:
		c, err := conf.Load(d.opts.Config)
		if err != nil {
			return nil, control.Refuse("%v", err)
		}
		if err := d.setFilter(&conf.Rules{Firewall: c.Firewall, Filters: c.Filters}, d.opts.Config); err != nil {
			return nil, err
		}
	}
	return d.filterReply(), nil
}

// setFilter puts other rules in force. from is where they come from.
func (d *Daemon) setFilter(r *conf.Rules, from string) error {
	tables, index, err := d.compileFilter(r)
	if err != nil {
		return control.Refuse("%v", err)
	}
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	for i, p := range d.ports {
		p.stack.SetFilter(tables[i])
	}
	d.rules.conf, d.rules.index, d.rules.since = r, index, time.Now()
	d.events.add(control.EventFilter, fmt.Sprintf("packet filter: %d rules from %s, default %s", len(r.Filters), from, r.Firewall.Default),
		"rules", len(r.Filters), "file", from)
	d.log.Info("packet filter", "rules", len(r.Filters), "file", from, "default", r.Firewall.Default)
	return nil
}

// startFilter puts the configured rules in force, before anything listens.
func (d *Daemon) startFilter(context.Context) error {
	r := &conf.Rules{Firewall: d.conf.Firewall, Filters: d.conf.Filters}
	tables, index, err := d.compileFilter(r)
	if err != nil {
		return err
	}
	for i, p := range d.ports {
		p.stack.SetFilter(tables[i])
	}
	d.rules.conf, d.rules.index, d.rules.since = r, index, d.started
	return nil
}

func (d *Daemon) filterReply() *control.FilterReply {
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	c := d.rules.conf
	reply := &control.FilterReply{SinceUnixNS: d.rules.since.UnixNano(), Rules: []control.FilterRule{}, Default: c.Firewall.Default}
	for i := range c.Filters {
		f := &c.Filters[i]
		reply.Rules = append(reply.Rules, control.FilterRule{
			Name: f.Name, Action: f.Action, Port: f.Port, Protocol: f.Protocol, State: f.State,
			Source: texts(f.Source), Destination: texts(f.Destination), SourcePorts: texts(f.SourcePorts), DestinationPorts: texts(f.DestinationPorts),
		})
	}
	for i, p := range d.ports {
		counts := p.stack.FilterCounts()
		for j, n := range counts {
			if j == len(counts)-1 {
				reply.DefaultPackets += n.Packets
				reply.DefaultBytes += n.Bytes
				continue
			}
			rule := &reply.Rules[d.rules.index[i][j]]
			rule.Packets += n.Packets
			rule.Bytes += n.Bytes
		}
	}
	return reply
}

func texts[T fmt.Stringer](list []T) []string {
	all := []string{}
	for _, x := range list {
		all = append(all, x.String())
	}
	return all
}
