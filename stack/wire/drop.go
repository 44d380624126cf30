package wire

// Drop is the reason why a frame was not accepted. It indexes counters.
type Drop uint8

// Reasons.
const (
	DropNone         Drop = iota // accepted
	DropRunt                     // shorter than an Ethernet header
	DropEtherType                // a protocol that we don't speak
	DropVLAN                     // tagged
	DropIPShort                  // the IP packet is longer than the frame, or shorter than its header
	DropIPVersion                // EtherType and IP version disagree
	DropIPHeader                 // header length below 20 or beyond the packet
	DropIPChecksum               // header checksum
	DropIPFragment               // a fragment
	DropIPSource                 // a source that is not one host (RFC 1122, 3.2.1.3)
	DropIPDest                   // not for us
	DropIPProto                  // a transport that we don't speak
	DropTCPShort                 // shorter than a TCP header
	DropTCPOffset                // data offset below 5 or beyond the segment
	DropTCPChecksum              // TCP checksum
	DropICMPShort                // shorter than an ICMP header
	DropICMPChecksum             // ICMP checksum
	DropICMPType                 // a message that we don't handle
	DropARPShort                 // shorter than an Ethernet/IPv4 ARP body
	DropARPType                  // not Ethernet and IPv4, or an unknown operation
	DropPortChecksum             // the port's hardware found a wrong checksum
	DropIPv6Header               // an extension header that is cut off or in the wrong place
	DropIPv6Option               // an option that asks to be dropped with its packet (RFC 8200, 4.2)
	DropIPv6Routing              // a routing header with segments left; we forward nothing (RFC 5095)
	DropIPv6Chain                // more extension headers or options than anybody needs
	DropIPv6NoNext               // nothing behind the headers (RFC 8200, 4.7)
	DropNDInvalid                // a neighbour discovery message that RFC 4861 calls invalid
	DropFilter                   // the packet filter
	DropUDPShort                 // shorter than a UDP header
	DropUDPLength                // the UDP length is below 8 or beyond the packet
	DropUDPChecksum              // UDP checksum, or none over IPv6
	DropUDPPort                  // no socket has the port
	DropUDPQueue                 // the socket's receive queue is full, or there is no memory
	DropIPOption                 // IPv4 options that are cut off, or a source route that goes on
	DropTCPUnclaimed             // no connection and no listener, and the exception path gets such segments
	DropRedirect                 // a redirect: whoever is on the link could send it, so routes stay as they were set or learned
	NumDrops
)

var dropNames = [NumDrops]string{
	"none", "runt", "ether_type", "vlan", "ip_short", "ip_version", "ip_header", "ip_checksum", "ip_fragment",
	"ip_source", "ip_dest", "ip_proto", "tcp_short", "tcp_offset", "tcp_checksum", "icmp_short", "icmp_checksum", "icmp_type",
	"arp_short", "arp_type", "port_checksum",
	"ipv6_header", "ipv6_option", "ipv6_routing", "ipv6_chain", "ipv6_no_next", "nd_invalid", "filter",
	"udp_short", "udp_length", "udp_checksum", "udp_port", "udp_queue", "ip_option", "tcp_unclaimed", "redirect",
}

// String is the name of d's counter.
func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return "unknown"
}
