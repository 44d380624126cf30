package daemon

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/host"
)

// startModules starts the configured modules and gives them the flows. The built-in ones that the stacks began with then go.
func (d *Daemon) startModules(ctx context.Context) (err error) {
	c := &d.conf.Modules
	hc := host.Config{Engine: d.engine, Log: d.log, PluginDir: c.PluginDir, Seed: rand.Uint64(), StartTimeout: c.StartTimeout.D(), Spin: c.Spin.D()}
	if hc.Isolation, err = isolation(c.User); err != nil {
		return fmt.Errorf("modules.user: %w", err)
	}
	hc.Isolation.Memory = int64(c.MemoryLimit)
	for k := range plugins.NumKinds {
		u := c.Kind(k)
		hc.Use = append(hc.Use, host.Use{
			Spec: d.spec(k, u.Use, &u.Binary), Fallback: u.Fallback, CPUs: u.CPUs, Guard: host.Guard{Late: u.Late.D(), Dead: u.Dead.D()},
			Restart: host.Restart{Min: u.RestartMin.D(), Max: u.RestartMax.D(), Limit: u.RestartLimit, Window: u.RestartWindow.D()},
		})
	}
	for _, s := range c.Shared() {
		k, err := plugins.ParseKind(s)
		if err != nil {
			return err
		}
		hc.Together = append(hc.Together, k)
	}
	for i := range d.conf.Standing {
		m := &d.conf.Standing[i]
		k, err := plugins.ParseKind(m.Kind)
		if err != nil {
			return err
		}
		hc.Standing = append(hc.Standing, d.spec(k, m.Name, &m.Binary))
	}
	if d.modules, err = host.New(hc); err != nil {
		return err
	}
	d.names = &moduleNames{late: map[string]uint64{}, dead: map[string]bool{}}
	for k := range plugins.NumKinds {
		d.names.active[k] = c.Kind(k).Use
	}
	d.modules.OnEvent(d.moduleEvent)
	if err := d.modules.Start(ctx); err != nil { // cleans up after itself
		return err
	}
	d.onStop(d.modules.Close)
	for k := range plugins.NumKinds {
		if err := d.engine.Detach(k, 0); err != nil {
			return err
		}
	}
	return nil
}

// Launcher is the command of this program that isolates a module's process: it calls host.Launch.
const Launcher = "plugin-launch"

// isolation is what holds for module processes, which are to be the given user's.
func isolation(name string) (host.Isolation, error) {
	i := host.Isolation{Launcher: []string{Launcher}}
	if name == "" {
		return i, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return i, fmt.Errorf("there is no user %q", name)
		}
	}
	if os.Getuid() != 0 {
		return i, fmt.Errorf("only root can run modules as %s", u.Username)
	}
	if i.UID, err = strconv.Atoi(u.Uid); err == nil {
		i.GID, err = strconv.Atoi(u.Gid)
	}
	return i, err
}

func (d *Daemon) spec(k plugins.Kind, name string, b *conf.Binary) host.Spec {
	s := host.Spec{Kind: k, Name: name, Path: b.Path, SHA256: string(b.SHA256), AllowUnpinned: b.AllowUnpinned, Params: d.params(k, name, b.Params)}
	if b.Placement == conf.PlacementProcess {
		s.Placement = host.Process
	}
	return s
}

// moduleNames is what the manager's events say about modules beyond its list.
type moduleNames struct {
	mu             sync.Mutex
	active         [plugins.NumKinds]string
	swaps, swapped [plugins.NumKinds]uint64 // times that flows were swapped, and how many
	rollbacks      [plugins.NumKinds]uint64
	refused        [plugins.NumKinds]uint64 // swaps, upgrades, changes and restarts
	upgrades       [plugins.NumKinds]uint64
	changes        [plugins.NumKinds]uint64 // of parameters
	late           map[string]uint64        // times that "kind/name" was late
	dead           map[string]bool          // "kind/name" has died and not been started again
}

func (n *moduleNames) current(k plugins.Kind) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.active[k]
}

func (n *moduleNames) lates(k plugins.Kind, name string) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.late[k.String()+"/"+name]
}

// swapCounts are how often flows of a kind were swapped, how many they were together, and how many swaps were taken back.
func (n *moduleNames) swapCounts(k plugins.Kind) (swaps, flows, rollbacks uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.swaps[k], n.swapped[k], n.rollbacks[k]
}

// refusals, upgrades and changes of parameters of a kind.
func (n *moduleNames) changeCounts(k plugins.Kind) (refused, upgrades, changes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused[k], n.upgrades[k], n.changes[k]
}

// moduleEvent passes on an event of the manager. It is called with the manager's lock held.
func (d *Daemon) moduleEvent(e host.Event) {
	n, id := d.names, e.Kind.String()+"/"+e.Name
	n.mu.Lock()
	defer n.mu.Unlock()
	fields := []any{"kind", e.Kind, "module", e.Name}
	if e.PID != 0 {
		fields = append(fields, "pid", e.PID)
	}
	if e.Detail != "" {
		fields = append(fields, "detail", e.Detail)
	}
	moved := append(slices.Clone(fields), "flows", e.Flows, "took_ns", int64(e.Took))
	switch e.What {
	case host.Swapped:
		if e.For.All() {
			n.active[e.Kind] = e.Name // Swap makes the event, when it knows the gap
		}
		n.swaps[e.Kind]++
		n.swapped[e.Kind] += uint64(e.Flows)
	case host.Upgraded:
		n.upgrades[e.Kind]++
		d.events.add(control.EventUpgrade, id+" goes on as "+e.Detail+", with "+plural(e.Flows, "flow"), append(fields, "flows", e.Flows)...)
	case host.Changed:
		n.changes[e.Kind]++
		d.events.add(control.EventSet, id+" goes on with "+e.Detail+", with "+plural(e.Flows, "flow"), append(fields, "flows", e.Flows)...)
	case host.RolledBack:
		n.active[e.Kind] = e.To
		n.rollbacks[e.Kind]++
		d.events.add(control.EventRollback, id+" has failed its trial, "+plural(e.Flows, "flow")+" went back: "+e.Detail, append(fields, "flows", e.Flows)...)
	case host.Refused:
		n.refused[e.Kind]++
		d.events.add(control.EventRefused, id+" is refused: "+e.Detail, fields...)
	case host.WentLate:
		n.late[id]++
		d.events.add(control.EventLate, id+" is late, its flows are with the fallback", fields...)
	case host.CameBack:
		d.events.add(control.EventReturn, id+" is in time again after "+e.Took.String(), moved...)
	case host.Crashed:
		n.dead[id] = true
		d.events.add(control.EventDead, id+" died: "+e.Detail, fields...)
	case host.FellBack:
		d.events.add(control.EventFallback, id+": its flows are with "+e.Detail+" after "+e.Took.String(), moved...)
	case host.Started:
		if n.dead[id] {
			delete(n.dead, id)
			d.events.add(control.EventRestart, id+" is started again", fields...)
		}
	case host.Recovered:
		d.events.add(control.EventReturn, id+" serves "+plural(e.Flows, "flow")+" again "+e.Took.String()+" after its death", moved...)
	case host.GaveUp:
		d.events.add(control.EventGivenUp, id+" is not started again: "+e.Detail, fields...)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Modules implements control.Handler.
func (d *Daemon) Modules(context.Context) (*control.ModulesReply, error) {
	list := d.modules.List()
	fallback := map[plugins.Kind]string{}
	for _, s := range list {
		if s.Role == "fallback" {
			fallback[s.Kind] = s.Name
		}
	}
	// A module that is linked in needs no other to fall back to: while it is in use, its kind's fallback, which is the same, has nothing to do.
	builtIn := map[plugins.Kind]string{}
	for _, s := range list {
		if s.Role == "active" && s.Placement == host.Builtin {
			builtIn[s.Kind] = s.Name
		}
	}
	r := &control.ModulesReply{Modules: []control.Module{}}
	for i := range list {
		s := &list[i]
		if s.Role == "fallback" && s.Flows == 0 && builtIn[s.Kind] == s.Name {
			continue
		}
		r.Modules = append(r.Modules, d.module(s, fallback[s.Kind]))
	}
	slices.SortStableFunc(r.Modules, func(a, b control.Module) int {
		ka, _ := plugins.ParseKind(a.Kind)
		kb, _ := plugins.ParseKind(b.Kind)
		return cmp.Or(cmp.Compare(ka, kb), cmp.Compare(a.Name, b.Name))
	})
	return r, nil
}

func (d *Daemon) module(s *host.Status, fallback string) control.Module {
	m := control.Module{
		Kind: s.Kind.String(), Name: s.Name, Version: s.Version, Placement: s.Placement.String(), State: moduleState(s), PID: s.PID,
		Flows: max(s.Flows, 0), Restarts: s.Restarts, SHA256: s.SHA256, Fallback: fallback, LateCount: d.names.lates(s.Kind, s.Name),
		Events: s.Stats.Events, Commands: s.Stats.Commands, BadCommands: s.Stats.Stale, LastError: s.Trouble, Params: []control.Param{},
		AnswerP50NS: int64(s.Stats.Latency.Quantile(0.5)), AnswerP99NS: int64(s.Stats.Latency.Quantile(0.99)), Resumes: s.Resumes, NextRestartInNS: int64(s.RestartIn), For: []string{}, Needs: []string{},
	}
	for _, sel := range s.For {
		m.For = append(m.For, sel.String())
	}
	if s.Role == "fallback" {
		m.Fallback, m.LateCount = "", 0
	}
	if s.File {
		m.Path = s.Path
	}
	m.Needs = append(m.Needs, s.Needs...)
	params := s.Params // a module documents its own, wherever it comes from
	if e, ok := builtin.Find(s.Kind, s.Name); ok && params == nil {
		params = e.Info.Params
	}
	for _, p := range params {
		v, set := s.Given[p.Name]
		if !set {
			v = p.Default
		}
		m.Params = append(m.Params, control.Param{Name: p.Name, Type: p.Type, Unit: p.Unit, Default: p.Default, Value: v, Doc: p.Doc})
	}
	return m
}

func moduleState(s *host.Status) string {
	switch {
	case s.State == "failed":
		return control.ModuleGivenUp
	case s.State == "restarting" && s.Trouble == "":
		return control.ModuleStarting
	case s.State == "restarting", s.State == "dead":
		return control.ModuleDead
	case s.State == "late":
		return control.ModuleLate
	case s.Role == "active":
		return control.ModuleActive
	case s.Role == "chosen":
		return control.ModuleChosen
	case s.Role == "fallback" && s.Flows > 0:
		return control.ModuleFallback
	}
	return control.ModuleStandby
}

// answerLimit is how long Swap waits for a module's first answer, to measure the gap. The flows have their new owner by then.
const answerLimit = 100 * time.Millisecond

// Swap implements control.Handler.
func (d *Daemon) Swap(ctx context.Context, r control.SwapRequest) (*control.SwapReply, error) {
	began := time.Now()
	k, err := plugins.ParseKind(r.Kind)
	if err != nil {
		return nil, control.Refuse("%v", err)
	}
	if r.To != "" {
		return d.upgrade(ctx, k, &r, began)
	}
	from := d.names.current(k)
	sel := r.Selection()
	reply := &control.SwapReply{Kind: r.Kind, From: from, To: r.Name, For: sel.String(), DryRun: r.DryRun, Workers: d.engine.Workers()}
	if r.ShadowNS > 0 {
		s, err := d.modules.Shadow(ctx, k, r.Name, time.Duration(r.ShadowNS), !r.DryRun)
		if err != nil {
			return nil, control.Refuse("%v", err)
		}
		reply.Shadow = shadowReply(&s)
	}
	if r.DryRun {
		if reply.Flows, err = d.modules.Count(k, r.Name, sel); err != nil {
			return nil, control.Refuse("%v", err)
		}
		return reply, nil
	}
	var rep host.SwapReport
	if r.TrialNS > 0 {
		var t host.TrialReport
		rep, t, err = d.modules.SwapOnTrial(ctx, k, r.Name, sel, host.Trial{Time: time.Duration(r.TrialNS), MaxRTTIncrease: r.MaxRTTIncreasePercent,
			MaxGoodputDrop: r.MaxGoodputDropPercent})
		reply.Trial = trialReply(&t)
	} else {
		rep, err = d.modules.Swap(ctx, k, r.Name, sel)
	}
	if err != nil {
		return nil, control.Refuse("%v", err)
	}
	reply.Flows, reply.TookNS = rep.Flows, int64(time.Since(began))
	if reply.Trial != nil && reply.Trial.RolledBack != "" {
		return reply, nil // its event was made by moduleEvent
	}
	if rep.Flows > 0 {
		reply.GapNS = int64(max(d.engine.swapGap(k, d.engine.current(k), answerLimit), rep.Gap))
	}
	message := k.String() + "/" + r.Name + " serves " + plural(rep.Flows, "flow") + ", was " + from
	if sel != (plugins.Selection{}) {
		message = k.String() + "/" + r.Name + " serves " + sel.String() + ", " + strconv.Itoa(rep.Flows) + " of them at once"
	}
	d.events.add(control.EventSwap, message, "for", reply.For, "kind", k, "module", r.Name, "from", from, "flows", rep.Flows, "gap_ns", reply.GapNS, "took_ns", reply.TookNS)
	return reply, nil
}

// upgrade has a module go on with the code of another file.
func (d *Daemon) upgrade(ctx context.Context, k plugins.Kind, r *control.SwapRequest, began time.Time) (*control.SwapReply, error) {
	rep, err := d.modules.UpgradeWith(ctx, k, r.Name, r.To, r.ToSHA256, host.Caution{DryRun: r.DryRun, Shadow: time.Duration(r.ShadowNS),
		Trial: host.Trial{Time: time.Duration(r.TrialNS), MaxRTTIncrease: r.MaxRTTIncreasePercent, MaxGoodputDrop: r.MaxGoodputDropPercent}})
	if err != nil {
		return nil, control.Refuse("%v", err)
	}
	reply := &control.SwapReply{Kind: r.Kind, From: r.Name, For: "its flows", DryRun: r.DryRun, Flows: rep.Flows, TookNS: int64(time.Since(began)), Workers: d.engine.Workers()}
	if rep.Shadow != nil {
		reply.Shadow = shadowReply(rep.Shadow)
	}
	if rep.Trial != nil {
		reply.Trial = trialReply(rep.Trial)
	}
	if r.DryRun {
		reply.To = r.To
		return reply, nil
	}
	if reply.Trial != nil && reply.Trial.RolledBack != "" {
		return reply, nil
	}
	reply.SHA256 = r.ToSHA256
	s := d.status(k, r.Name)
	if s == nil { // it has died meanwhile
		return reply, nil
	}
	reply.To = s.Version
	if rep.Flows > 0 {
		reply.GapNS = int64(d.engine.swapGap(k, s.Index, answerLimit))
	}
	return reply, nil
}

// status is what the manager says about a module that is no fallback, or nil.
func (d *Daemon) status(k plugins.Kind, name string) *host.Status {
	for _, s := range d.modules.List() {
		if s.Kind == k && s.Name == name && s.Role != "fallback" {
			return &s
		}
	}
	return nil
}

// Set implements control.Handler.
func (d *Daemon) Set(ctx context.Context, r control.SetRequest) (*control.SetReply, error) {
	began := time.Now()
	k, err := plugins.ParseKind(r.Kind)
	if err != nil {
		return nil, control.Refuse("%v", err)
	}
	rep, err := d.modules.Set(ctx, k, r.Name, r.Params)
	if err != nil {
		return nil, control.Refuse("%v", err)
	}
	reply := &control.SetReply{Kind: r.Kind, Name: r.Name, Flows: rep.Flows, Workers: d.engine.Workers(), TookNS: int64(time.Since(began)), Params: []control.Param{}}
	if s := d.status(k, r.Name); s != nil {
		reply.Params = d.module(s, "").Params
		if rep.Flows > 0 {
			reply.GapNS = int64(d.engine.swapGap(k, s.Index, answerLimit))
		}
	}
	return reply, nil
}

func trialReply(t *host.TrialReport) *control.Trial {
	return &control.Trial{Flows: t.Flows, GoodputBeforeBPS: uint64(t.GoodputBefore * 8), GoodputBPS: uint64(t.GoodputNow * 8),
		RTTBeforeNS: int64(t.RTTBefore), RTTNS: int64(t.RTTNow), RolledBack: t.RolledBack}
}

// shadowReply sorts and counts what a module would have decided.
func shadowReply(s *host.ShadowReport) *control.Shadow {
	r := &control.Shadow{Decisions: s.Decisions, Flows: []control.ShadowFlow{}}
	bps := func(bytes uint64) uint64 { // no rate, and no limit, are no figure
		if bytes > math.MaxUint64/8 {
			return 0
		}
		return bytes * 8
	}
	slices.SortFunc(s.Flows, func(a, b plugins.ShadowFlow) int { return cmp.Or(a.Local.Compare(b.Local), a.Peer.Compare(b.Peer)) })
	for i := range s.Flows {
		f := &s.Flows[i]
		switch {
		case f.WouldCwnd < f.Cwnd, f.Cwnd == 0 && f.WouldRate < f.Rate: // no window: pacing
			r.Lower++
		case f.WouldCwnd > f.Cwnd, f.Cwnd == 0 && f.WouldRate > f.Rate:
			r.Higher++
		}
		if len(r.Flows) < control.MaxShadowFlows {
			r.Flows = append(r.Flows, control.ShadowFlow{Local: f.Local, Peer: f.Peer, CwndBytes: f.Cwnd, WouldCwndBytes: f.WouldCwnd,
				PacingBPS: bps(f.Rate), WouldPacingBPS: bps(f.WouldRate)})
		}
	}
	return r
}
