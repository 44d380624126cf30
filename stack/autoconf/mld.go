package autoconf

import (
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Values of MLDv2 (RFC 3810, 9): how often a change is reported, how far apart at most, and how long a version 1 querier counts.
const (
	robustness      = 2
	reportInterval  = time.Second
	v1QuerierExpiry = 260 * time.Second // robustness times 125 s and 10 s (RFC 3810, 9.12)
)

// maxRecords is how many groups one report names: it stays below the minimum MTU.
const maxRecords = 50

// group is a multicast group that an address of ours needs.
type group struct {
	a      wire.Addr
	refs   int          // addresses that need it; 0: left, the reports go on
	left   int          // reports of the change to send
	due    plugins.Time // of the next one
	answer plugins.Time // when a query about it is answered
	last   bool         // we were the last to report it (RFC 2710, 4)
}

type mldState struct {
	due     plugins.Time // when a general query is answered
	v1Until plugins.Time // version 1 is spoken
}

func (h *Host) join(a wire.Addr, now plugins.Time) {
	g := h.group(a)
	if g == nil {
		g = &group{a: a, answer: plugins.Never}
		h.groups = append(h.groups, g)
	}
	if g.refs++; g.refs == 1 {
		g.left, g.due = robustness, now.Add(h.delay(reportInterval))
	}
}

func (h *Host) leave(a wire.Addr, now plugins.Time) {
	g := h.group(a)
	if g == nil || g.refs == 0 {
		return
	}
	if g.refs--; g.refs == 0 {
		g.left, g.due, g.answer = robustness, now, plugins.Never
	}
}

func (h *Host) group(a wire.Addr) *group {
	for _, g := range h.groups {
		if g.a == a {
			return g
		}
	}
	return nil
}

// Query takes a query for members (RFC 3810, 6.2; RFC 2710, 4).
func (h *Host) Query(now plugins.Time, q *wire.MLDQuery) {
	if q.V1 {
		h.mld.v1Until = now.Add(v1QuerierExpiry) // RFC 3810, 8.2.1
	}
	at := now.Add(h.delay(q.MaxDelay))
	switch {
	case q.Group != (wire.Addr{}):
		if g := h.group(q.Group); g != nil && g.refs > 0 {
			g.answer = min(g.answer, at)
		}
	case h.mld.v1Until > now: // version 1 has a timer per group
		for _, g := range h.groups {
			if g.refs > 0 {
				g.answer = min(g.answer, now.Add(h.delay(q.MaxDelay)))
			}
		}
	default:
		h.mld.due = min(h.mld.due, at)
	}
	h.schedule()
}

// Reported takes another host's report of version 1: ours is not needed then (RFC 2710, 4).
func (h *Host) Reported(now plugins.Time, a wire.Addr) {
	if g := h.group(a); g != nil && h.mld.v1Until > now {
		g.answer, g.last = plugins.Never, false
		h.schedule()
	}
}

func (h *Host) mldDeadline() plugins.Time {
	at := h.mld.due
	for _, g := range h.groups {
		at = min(at, g.answer)
		if g.left > 0 {
			at = min(at, g.due)
		}
	}
	return at
}

func (h *Host) pollMLD(now plugins.Time) {
	v1 := h.mld.v1Until > now
	var all []wire.Addr
	general := h.mld.due <= now
	if general {
		h.mld.due = plugins.Never
	}
	for _, g := range h.groups {
		if g.left > 0 && g.due <= now {
			g.left--
			g.due = now.Add(h.delay(reportInterval))
			h.reportChange(g, v1)
		}
		if g.answer <= now || general && g.refs > 0 {
			g.answer = plugins.Never
			if v1 {
				h.reportV1(g)
			} else {
				all = append(all, g.a)
			}
		}
	}
	for part := range slices.Chunk(all, maxRecords) {
		h.report(wire.MLDIsExclude, part)
	}
	h.groups = slices.DeleteFunc(h.groups, func(g *group) bool { return g.refs == 0 && g.left == 0 })
}

// reportChange says that we have joined or left g.
func (h *Host) reportChange(g *group, v1 bool) {
	switch {
	case !v1 && g.refs > 0:
		h.report(wire.MLDToExclude, []wire.Addr{g.a})
	case !v1:
		h.report(wire.MLDToInclude, []wire.Addr{g.a})
	case g.refs > 0:
		h.reportV1(g)
	case g.last: // RFC 2710, 4: the last reporter says that it is done
		h.sendMLD(wire.AllRouters, wire.ICMP6MLDDone, append(make([]byte, 4), g.a[:]...))
		g.left = 0
	default:
		g.left = 0
	}
}

func (h *Host) reportV1(g *group) {
	g.last = true
	h.sendMLD(g.a, wire.ICMP6MLDReport, append(make([]byte, 4), g.a[:]...))
}

func (h *Host) report(typ uint8, groups []wire.Addr) {
	b := make([]byte, 4+20*len(groups))
	wire.PutMLDv2Report(b, typ, groups)
	h.sendMLD(wire.MLDv2Routers, wire.ICMP6MLDv2Report, b)
}

// sendMLD sends from the link-local address, or from :: while there is none (RFC 3590).
func (h *Host) sendMLD(dst wire.Addr, typ uint8, body []byte) {
	src := h.usable()
	b := make([]byte, 4+len(body))
	wire.PutICMP6(b, src, dst, typ, 0, body)
	h.out = append(h.out, Message{Src: src, Dst: dst, HopLimit: 1, Alert: true, ICMP: b})
}
