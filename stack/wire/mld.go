package wire

import (
	"encoding/binary"
	"time"
)

// Record types of MLDv2 reports (RFC 3810, 5.2.12). All that this stack joins is open to any source.
const (
	MLDIsExclude = 2 // in answer to a query: a member
	MLDToInclude = 3 // has left
	MLDToExclude = 4 // has joined
)

// MLDQuery is a query of either version.
type MLDQuery struct {
	V1       bool
	Group    Addr // zero: general
	MaxDelay time.Duration
}

// ParseMLDQuery parses a query that ParseICMP6 has accepted (RFC 3810, 5.1 and 6.2; RFC 2710, 3 and 4: from a link-local address, with
// a hop limit of 1). The version follows from the length (RFC 3810, 8.1).
func ParseMLDQuery(p *Packet, q *MLDQuery) Drop {
	b := p.Payload
	if len(b) < 24 || len(b) > 24 && len(b) < 28 || b[1] != 0 || p.TTL != 1 || !p.Src.IsLinkLocal() {
		return DropNDInvalid
	}
	code := binary.BigEndian.Uint16(b[4:])
	*q = MLDQuery{V1: len(b) == 24, Group: Addr(b[8:24]), MaxDelay: time.Duration(code) * time.Millisecond}
	if q.Group != (Addr{}) && !q.Group.IsMulticast() {
		return DropNDInvalid
	}
	if !q.V1 && code >= 1<<15 { // floating point (RFC 3810, 5.1.3)
		q.MaxDelay = time.Duration(int(code&0xfff|0x1000)<<(code>>12&7+3)) * time.Millisecond
	}
	return DropNone
}

// mldRecord is the length of a record without sources.
const mldRecord = 20

// PutMLDv2Report writes the ICMPv6 body of a report, what is behind the checksum, with one record per group to b, and returns its
// length, 4+20 bytes per group.
func PutMLDv2Report(b []byte, typ uint8, groups []Addr) int {
	n := 4 + mldRecord*len(groups)
	_ = b[n-1]
	clear(b[:n])
	binary.BigEndian.PutUint16(b[2:], uint16(len(groups)))
	for i := range groups {
		r := b[4+mldRecord*i:]
		r[0] = typ
		copy(r[4:20], groups[i][:])
	}
	return n
}

// RouterAlertLen is the length of a hop-by-hop header with nothing but the router alert that MLD needs.
const RouterAlertLen = 8

// PutRouterAlert writes such a header to b[:8]. Its value 0 means MLD (RFC 2711, 2.1).
func PutRouterAlert(b []byte, next uint8) {
	copy(b[:RouterAlertLen], []byte{next, 0, optRouterAlert, 2, 0, 0, optPadN, 0})
}
