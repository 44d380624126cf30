package daemon

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// startStacks gives each port a stack, whose built-in modules are the fallbacks.
func (d *Daemon) startStacks(context.Context) error {
	fallbacks := d.fallbacks()
	var stacks []*stack.Stack
	first := 0
	for i, p := range d.ports {
		except, err := d.openException(p)
		if err != nil {
			return fmt.Errorf("port[%d] %q: exception: %w", i, p.conf.Name, err)
		}
		s, err := stack.New(stack.Config{
			Port: p.trace, Addrs: p.conf.Addresses, Gateway: p.conf.Gateway, Gateway6: p.conf.Gateway6,
			SLAAC: p.conf.SLAAC, Dynamic: p.conf.DHCP, Secret: machineSecret(), Workers: workersOf(d.conf.Workers, p.conf.Name),
			Exception: except, Modules: fallbacks, TCP: tcpConfig(&d.conf.TCP, p.conf.MTU), Arena: d.arena, Log: portLog(d.log, p.conf.Name),
		})
		if err != nil {
			return fmt.Errorf("port[%d] %q: %w", i, p.conf.Name, err)
		}
		p.stack, p.first = s, first
		first += s.Workers()
		stacks = append(stacks, s)
		d.onStop(s.Close)
	}
	d.engine = newEngine(stacks)
	return nil
}

// machineSecret makes the identifiers of IPv6 addresses the same after every start, and different on every machine (RFC 7217): a hash of
// what machine-id(5) says, which itself is not to be shown. Without one they are new at every start.
func machineSecret() []byte {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(id) == 0 {
		return nil
	}
	h := hmac.New(sha256.New, id)
	h.Write([]byte("fastpath IPv6 identifiers"))
	return h.Sum(nil)
}

// workersOf returns the workers of a port. A stack's worker i owns queue i, and those without a queue follow.
func workersOf(all []conf.Worker, port string) (ws []stack.WorkerConfig) {
	var mine []conf.Worker
	for _, w := range all {
		if w.Port == port {
			mine = append(mine, w)
		}
	}
	slices.SortStableFunc(mine, func(a, b conf.Worker) int {
		return cmp.Compare(uint(a.Queue), uint(b.Queue)) // NoQueue is the largest
	})
	for _, w := range mine {
		c := stack.WorkerConfig{Poll: stack.Adaptive}
		if w.Poll == conf.PollSpin {
			c = stack.WorkerConfig{Poll: stack.Spin, Core: w.Core}
		}
		ws = append(ws, c)
	}
	return ws
}

// fallbacks are the built-in modules that stand in for those in use.
func (d *Daemon) fallbacks() (ms [plugins.NumKinds]stack.ModuleConfig) {
	for k := range plugins.NumKinds {
		u := d.conf.Modules.Kind(k)
		ms[k].Name = u.FallbackFor(k, func(name string) bool { return isBuiltin(k, name) })
		if ms[k].Name == u.Use {
			ms[k].Params = d.params(k, u.Use, u.Params)
		}
	}
	return ms
}

// params adds to a module's own parameters what other sections of the configuration say about the same thing.
func (d *Daemon) params(k plugins.Kind, name string, own map[string]string) plugins.Params {
	e, ok := builtin.Find(k, name)
	if !ok || k != plugins.Rtx {
		return own
	}
	all := plugins.Params{}
	for _, p := range e.Info.Params {
		switch p.Name {
		case "rto_min":
			all[p.Name] = d.conf.TCP.MinRTO.String()
		case "rto_max":
			all[p.Name] = d.conf.TCP.MaxRTO.String()
		}
	}
	maps.Copy(all, own)
	return all
}

// tcpConfig turns [tcp] into the engine's settings, in which zero means the default.
func tcpConfig(c *conf.TCP, mtu int) tcp.Config {
	return tcp.Config{
		MTU: mtu, RecvBuffer: int(c.ReceiveBuffer), RecvStart: int(c.ReceiveStart), MinPathMTU: c.MinPathMTU,
		PathProbing: map[string]tcp.PathProbing{conf.ProbeAlways: tcp.ProbeAlways, conf.ProbeOff: tcp.ProbeNever}[c.PathProbing], SendBuffer: int(c.SendBuffer), InitialWindow: c.InitialWindow,
		DelAck: max(c.DelayedACK.D(), 1), TimeWait: max(c.TimeWait.D(), 1), FinWait2: c.FinWait.D(), OrphanTimeout: c.OrphanTimeout.D(),
		MaxOrphans: c.MaxOrphans, MaxTimeWaits: c.MaxTimeWaits, ChallengeLimit: c.ChallengeLimit, SynRetries: c.SYNRetries, SynLinear: c.SYNLinearTimeouts,
		RetransTimeout: retransTimeout(c.Retries, c.MinRTO.D(), c.MaxRTO.D()),
		AdvTimeout:     c.AdvertisedTimeout.D(), MinUserTimeout: c.MinUserTimeout.D(), MaxUserTimeout: c.MaxUserTimeout.D(),
		KeepaliveIdle: c.KeepAliveIdle.D(), KeepaliveEvery: c.KeepAliveInterval.D(), KeepaliveCount: c.KeepAliveProbes,
		PortLow: c.Ports.Min, PortHigh: c.Ports.Max, NoSACK: !c.SACK, NoTimestamps: !c.Timestamps, NoWScale: !c.WindowScaling,
		SynCookies: synCookies[c.SYNCookies], ECN: ecnModes[c.ECN], FastOpenQueue: c.FastOpenQueue, NoAutoCork: !c.AutoCork,
	}
}

// ecnModes are the values of tcp.ecn.
var ecnModes = map[string]tcp.ECN{"off": tcp.ECNOff, "passive": tcp.ECNPassive, "on": tcp.ECNOn, "accecn": tcp.ECNAccurate, "accecn-passive": tcp.ECNPassiveBoth}

// synCookies are the values of tcp.syn_cookies.
var synCookies = map[string]tcp.SynCookies{"overflow": tcp.CookiesOverflow, "off": tcp.CookiesOff, "always": tcp.CookiesAlways}

// retransTimeout is how long n retransmissions take that start at the smallest RTO: it doubles until it has reached the largest
// (as Linux counts for net.ipv4.tcp_retries2).
func retransTimeout(n int, minRTO, maxRTO time.Duration) time.Duration {
	doublings := min(n, bits.Len64(uint64(maxRTO/minRTO))-1)
	return time.Duration(2<<doublings-1)*minRTO + time.Duration(n-doublings)*maxRTO
}
