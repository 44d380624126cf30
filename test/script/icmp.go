package main

import (
	"encoding/binary"

	"github.com/fastpath-tcp/fastpath/stack/wire"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

type icmpKind struct{ typ, code uint8 }

// icmpKinds are the errors that scripts name, by "type" or "type code".
var icmpKinds = map[bool]map[string]icmpKind{
	false: {
		"unreachable": {3, 0}, "unreachable net_unreachable": {3, 0}, "unreachable host_unreachable": {3, 1},
		"unreachable protocol_unreachable": {3, 2}, "unreachable port_unreachable": {3, 3}, "unreachable frag_needed": {3, 4},
		"unreachable source_route_failed": {3, 5}, "unreachable net_unknown": {3, 6}, "unreachable host_unknown": {3, 7},
		"unreachable source_host_isolated": {3, 8}, "unreachable net_prohibited": {3, 9}, "unreachable host_prohibited": {3, 10},
		"unreachable net_unreachable_for_tos": {3, 11}, "unreachable host_unreachable_for_tos": {3, 12},
		"unreachable packet_filtered": {3, 13}, "unreachable precedence_violation": {3, 14}, "unreachable precedence_cutoff": {3, 15},
		"source_quench": {4, 0}, "time_exceeded": {11, 0}, "time_exceeded exceeded_in_transit": {11, 0}, "time_exceeded exceeded_in_reassembly": {11, 1},
		"parameter_problem": {12, 0},
	},
	true: {
		"unreachable": {1, 0}, "unreachable no_route": {1, 0}, "unreachable admin_prohibited": {1, 1}, "unreachable beyond_scope": {1, 2},
		"unreachable address_unreachable": {1, 3}, "unreachable port_unreachable": {1, 4}, "packet_too_big": {2, 0},
		"time_exceeded": {3, 0}, "time_exceeded exceeded_in_transit": {3, 0}, "time_exceeded exceeded_in_reassembly": {3, 1},
		"parameter_problem": {4, 0},
	},
}

// injectICMP sends an error about a segment of the stack.
func (r *runner) injectICMP(p *lang.Packet) error {
	name := p.ICMPType
	if p.ICMPCode != "" {
		name += " " + p.ICMPCode
	}
	k, ok := icmpKinds[r.set.v6][name]
	if !ok || p.Echoed == lang.UDP {
		return unsupported("icmp %s", name)
	}
	f := r.cur
	if f == nil {
		return unsupported("icmp without a connection")
	}
	base := uint32(0)
	if f.knowISS {
		base = f.iss
	}
	about := segment{src: f.local, dst: f.remote, ttl: 60, srcPort: f.localPort, dstPort: f.remotePort, seq: p.EchoSeq + base, flags: wire.ACK, data: make([]byte, p.EchoLen)}
	quote := about.packet()
	quote = quote[:min(len(quote), len(quote)-p.EchoLen-tcpLen+8)] // the IP header and eight bytes
	b := make([]byte, 8, 8+len(quote))
	b[0], b[1] = k.typ, k.code
	if p.MTU >= 0 {
		binary.BigEndian.PutUint32(b[4:], uint32(p.MTU))
	}
	b = append(b, quote...)
	proto := uint8(protoICMP)
	if r.set.v6 {
		proto = protoICMPv6
		binary.BigEndian.PutUint16(b[2:], l4sum(f.remote, f.local, protoICMPv6, b))
	} else {
		binary.BigEndian.PutUint16(b[2:], ^uint16(sum(b, 0)))
	}
	r.w.Inject(ipPacket(f.remote, f.local, 0, 255, proto, 0, b))
	r.collect()
	return r.checkBlocked()
}
