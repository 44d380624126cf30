package dhcp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// wanted are the options that we ask for. A server must answer the classless routes before the routers (RFC 3442).
var wanted = []dhcpv4.OptionCode{
	dhcpv4.OptionSubnetMask, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer,
	dhcpv4.OptionDomainName, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
}

// bare is a message with the fields and options that all have.
func (c *Client) bare(t dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, ClientHWAddr: c.cfg.MAC, TransactionID: c.xid, NumSeconds: c.secs,
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero,
		Options: dhcpv4.Options{},
	}
	m.UpdateOption(dhcpv4.OptMessageType(t))
	m.UpdateOption(dhcpv4.OptClientIdentifier(append([]byte{byte(iana.HWTypeEthernet)}, c.cfg.MAC...)))
	return m
}

// message is a DISCOVER or REQUEST. We cannot receive by unicast before we have the address (RFC 2131, 4.1).
func (c *Client) message(t dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	m := c.bare(t)
	m.SetBroadcast()
	m.UpdateOption(dhcpv4.OptParameterRequestList(wanted...))
	m.UpdateOption(dhcpv4.OptMaxMessageSize(uint16(min(c.cfg.MTU, 0xffff))))
	if c.cfg.HostName != "" {
		m.UpdateOption(dhcpv4.OptHostName(c.cfg.HostName))
	}
	return m
}

// Input takes a message that came from a server. The error says why it was ignored.
func (c *Client) Input(now plugins.Time, data []byte) error {
	m, err := dhcpv4.FromBytes(data)
	if err != nil {
		return fmt.Errorf("dhcp: %w", err)
	}
	switch {
	case m.OpCode != dhcpv4.OpcodeBootReply:
		return errors.New("dhcp: not a reply")
	case m.TransactionID != c.xid || !bytes.Equal(m.ClientHWAddr, c.cfg.MAC):
		return errors.New("dhcp: for another client, or late")
	}
	switch t := m.MessageType(); {
	case t == dhcpv4.MessageTypeOffer && c.state == Selecting:
		if _, err := parseLease(m, now); err != nil {
			return err
		}
		c.state, c.tries, c.offer, c.asked = Requesting, 0, m, now
		c.sendRequest(now)
	case t == dhcpv4.MessageTypeAck && c.state == Requesting:
		l, err := parseLease(m, c.asked)
		if err != nil {
			return err
		}
		if l.Server != serverOf(c.offer) {
			return errors.New("dhcp: ACK of a server that was not asked")
		}
		c.state, c.at, c.lease = Checking, plugins.Never, l
		c.do(Action{Check: l.Addr.Addr()})
	case t == dhcpv4.MessageTypeAck && (c.state == Renewing || c.state == Rebinding):
		l, err := parseLease(m, c.asked)
		if err != nil {
			return err
		}
		if l.Addr.Addr() != c.lease.Addr.Addr() {
			return errors.New("dhcp: ACK for another address than the one in use")
		}
		c.lease = l
		c.bind(now)
	case t == dhcpv4.MessageTypeNak && c.state >= Requesting && c.state <= Rebinding && c.state != Checking && c.state != Bound:
		if c.state == Requesting && serverOf(m) != serverOf(c.offer) {
			return errors.New("dhcp: NAK of a server that was not asked")
		}
		c.lose() // 4.4.5: all that uses the address must stop
		c.restart(now)
	default:
		return fmt.Errorf("dhcp: %v in state %v", t, c.state)
	}
	return nil
}

func serverOf(m *dhcpv4.DHCPv4) netip.Addr { return addrOf(m.ServerIdentifier()) }

// addrOf is ip as a usable address of one host; not valid if it is none.
func addrOf(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == limitedBroadcast {
		return netip.Addr{}
	}
	return a
}

// Lease is an address for a time, and what belongs to it.
type Lease struct {
	Addr    netip.Prefix
	Server  netip.Addr
	Routes  []Route      // of the routers, or the classless ones (RFC 3442)
	DNS     []netip.Addr // in order of preference
	Domain  string
	Renew   plugins.Time
	Rebind  plugins.Time
	Expires plugins.Time // Never: for ever
}

// Route is a route of a lease. Without a gateway its addresses are on link.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// minLease keeps a server that is out of its mind from making us ask all the time.
const minLease = 10 * time.Second

// infinite is the lease time that does not end (RFC 2131, 3.3).
const infinite = 0xffffffff * time.Second

// parseLease takes an offer or a lease; its times count from asked (4.4.1).
func parseLease(m *dhcpv4.DHCPv4, asked plugins.Time) (*Lease, error) {
	a := addrOf(m.YourIPAddr)
	if !a.IsValid() {
		return nil, fmt.Errorf("dhcp: %v is no address for a host", m.YourIPAddr)
	}
	l := &Lease{Server: serverOf(m), Domain: m.DomainName(), Renew: plugins.Never, Rebind: plugins.Never, Expires: plugins.Never}
	if !l.Server.IsValid() {
		return nil, errors.New("dhcp: no server identifier")
	}
	bits, err := maskBits(m, a)
	if err != nil {
		return nil, err
	}
	l.Addr = netip.PrefixFrom(a, bits)
	for _, ip := range m.DNS() {
		if d := addrOf(ip); d.IsValid() {
			l.DNS = append(l.DNS, d)
		}
	}
	l.Routes = routesOf(m)
	d := m.IPAddressLeaseTime(0)
	if d == 0 {
		return nil, errors.New("dhcp: no lease time")
	}
	if d >= infinite {
		return l, nil
	}
	d = max(d, minLease)
	t2 := m.IPAddressRebindingTime(d * 7 / 8)
	if t2 <= 0 || t2 >= d {
		t2 = d * 7 / 8
	}
	t1 := m.IPAddressRenewalTime(d / 2)
	if t1 <= 0 || t1 >= t2 {
		t1 = min(d/2, t2*4/7)
	}
	l.Renew, l.Rebind, l.Expires = asked.Add(t1), asked.Add(t2), asked.Add(d)
	return l, nil
}

// maskBits is the length of a's network: what the server says, else that of its class (RFC 791).
func maskBits(m *dhcpv4.DHCPv4, a netip.Addr) (int, error) {
	mask := m.SubnetMask()
	if mask == nil {
		switch top := a.As4()[0]; {
		case top < 128:
			return 8, nil
		case top < 192:
			return 16, nil
		}
		return 24, nil
	}
	bits, size := mask.Size()
	if size != 32 || bits == 0 {
		return 0, fmt.Errorf("dhcp: %v is no subnet mask", mask)
	}
	return bits, nil
}

// routesOf returns the routes. Classless ones replace the routers (RFC 3442); of several routers the first is taken.
func routesOf(m *dhcpv4.DHCPv4) (rs []Route) {
	if classless := m.ClasslessStaticRoute(); len(classless) > 0 {
		for _, r := range classless {
			bits, size := r.Dest.Mask.Size()
			to, ok := netip.AddrFromSlice(r.Dest.IP.To4())
			if !ok || size != 32 {
				continue
			}
			via := netip.Addr{}
			if !r.Router.IsUnspecified() {
				if via = addrOf(r.Router); !via.IsValid() {
					continue
				}
			}
			rs = append(rs, Route{netip.PrefixFrom(to, bits).Masked(), via})
		}
		return rs
	}
	for _, ip := range m.Router() {
		if via := addrOf(ip); via.IsValid() {
			return []Route{{netip.PrefixFrom(netip.IPv4Unspecified(), 0), via}}
		}
	}
	return nil
}
