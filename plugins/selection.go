package plugins

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Selection says which flows a change of module is for. The zero value is all of them. It is comparable.
type Selection struct {
	NewOnly             bool         // flows that open from now on, no present ones
	Percent             int          // so many of a hundred; 0: all. The larger of two shares holds the smaller one
	Local, Peer         netip.Prefix // the zero Prefix: any address
	LocalPort, PeerPort uint16       // 0: any
}

// All reports whether no flow is left out by its addresses, ports or share.
func (s Selection) All() bool {
	s.NewOnly = false
	return s.Percent%100 == 0 && s == Selection{Percent: s.Percent}
}

// Check returns what is wrong with s.
func (s Selection) Check() error {
	if s.Percent < 0 || s.Percent > 100 {
		return fmt.Errorf("%d is no percentage of flows (1…100)", s.Percent)
	}
	if s.Local.IsValid() && s.Peer.IsValid() && s.Local.Addr().Is4() != s.Peer.Addr().Is4() {
		return errors.New("the local and the peer's network are of different families: no flow matches both")
	}
	return nil
}

// Match reports whether s is for a flow with these ends. It does not look at NewOnly.
func (s *Selection) Match(local, peer netip.AddrPort) bool {
	return (s.LocalPort == 0 || s.LocalPort == local.Port()) && (s.PeerPort == 0 || s.PeerPort == peer.Port()) &&
		(!s.Local.IsValid() || s.Local.Contains(local.Addr().Unmap())) && (!s.Peer.IsValid() || s.Peer.Contains(peer.Addr().Unmap())) &&
		(s.Percent == 0 || s.Percent == 100 || share(local, peer) < uint64(s.Percent))
}

// share is a number below 100 that depends on nothing but the ends of a flow: on every worker, and at every question, it is the same.
func share(local, peer netip.AddrPort) uint64 {
	h := uint64(local.Port())<<16 | uint64(peer.Port())
	for _, a := range [...]netip.Addr{local.Addr(), peer.Addr()} {
		b := a.As16()
		h = mix(mix(h^binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
	}
	return h >> 32 * 100 >> 32
}

// FlowMeasure is how a flow does: two of them give its goodput.
type FlowMeasure struct {
	Worker    int
	Flow      Flow
	Delivered uint64        // bytes that the peer has, since the flow opened
	SRTT      time.Duration // smoothed round-trip time; 0: none yet
}

// ShadowFlow is what congestion control or pacing has decided for a flow, and what another module, that saw the same events, would have.
type ShadowFlow struct {
	Local, Peer     netip.AddrPort
	Cwnd, WouldCwnd uint32 // bytes; 0: of pacing
	Rate, WouldRate uint64 // bytes per second; 0: of congestion control, from window and RTT; Unlimited: of pacing, none
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// String names the selection for people: "all flows", "20 % of new flows, peer 10.0.0.0/8, local port 80".
func (s Selection) String() string {
	what := "flows"
	if s.NewOnly {
		what = "new flows"
	}
	switch {
	case s.Percent > 0 && s.Percent < 100:
		what = fmt.Sprintf("%d %% of %s", s.Percent, what)
	case s.All():
		what = "all " + what
	}
	parts := []string{what}
	if s.Local.IsValid() {
		parts = append(parts, "local "+s.Local.String())
	}
	if s.LocalPort != 0 {
		parts = append(parts, fmt.Sprintf("local port %d", s.LocalPort))
	}
	if s.Peer.IsValid() {
		parts = append(parts, "peer "+s.Peer.String())
	}
	if s.PeerPort != 0 {
		parts = append(parts, fmt.Sprintf("peer port %d", s.PeerPort))
	}
	return strings.Join(parts, ", ")
}
