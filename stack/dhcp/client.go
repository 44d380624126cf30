// Package dhcp is a DHCPv4 client (RFC 2131) for stacks that start without an address.
//
// A Client is the state machine alone. It is passive: messages, times and the outcome of conflict detection go in, messages to send and
// leases to use come out. Run lets one drive a stack.
package dhcp

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// State of a client (RFC 2131, figure 5).
type State uint8

// States.
const (
	Init       State = iota // waits for the time to ask
	Selecting               // has sent DISCOVER
	Requesting              // has sent REQUEST for what was offered
	Checking                // has an ACK and looks whether somebody else uses the address
	Bound
	Renewing  // asks the server that gave the lease, from T1 on
	Rebinding // asks any server, from T2 on
	Stopped
)

var stateNames = [...]string{"init", "selecting", "requesting", "checking", "bound", "renewing", "rebinding", "stopped"}

func (s State) String() string { return stateNames[s] }

// Ports of servers and clients.
const (
	ServerPort = 67
	ClientPort = 68
)

// Times of RFC 2131.
const (
	firstRetry   = 4 * time.Second  // 4.1: doubled for each retry …
	maxRetry     = 64 * time.Second // … up to this …
	retryJitter  = time.Second      // … plus or minus up to one second
	requestTries = 4                // 3.1, 5: REQUEST is sent four times, for 60 seconds in all, before all begins again
	renewRetry   = time.Minute      // 4.4.5: half of what is left, at least this
	declineWait  = 10 * time.Second // 3.1, 5: before all begins again
)

// ClientConfig describes a client.
type ClientConfig struct {
	MAC      net.HardwareAddr
	HostName string     // optional: servers may enter it into DNS
	MTU      int        // largest message that we can take; 0: 1500
	Rand     *rand.Rand // of transaction ids and waits
}

// Action is something that the client wants done: exactly one field is set.
type Action struct {
	Send  *Message
	Check netip.Addr // look whether another host has this address, and call Checked
	Bind  *Lease     // use this lease; it replaces the one before
	Lost  *Lease     // stop using it, now: it has expired, or a server has taken it back
}

// Message is a message to send to Dst, from Src, which is unspecified while there is no address.
type Message struct {
	Src, Dst netip.Addr
	Data     []byte
}

// Client is a DHCP client.
type Client struct {
	cfg     ClientConfig
	state   State
	at      plugins.Time // when Timer has something to do
	tries   int
	failed  int // rounds since the last lease that came to nothing
	xid     dhcpv4.TransactionID
	began   plugins.Time // of the first DISCOVER
	asked   plugins.Time // the last first REQUEST: leases count from here (4.4.1)
	secs    uint16
	offer   *dhcpv4.DHCPv4
	lease   *Lease // while Bound, Renewing, Rebinding; the coming one while Checking
	actions []Action
}

// NewClient makes a client that asks for an address at once.
func NewClient(cfg ClientConfig, now plugins.Time) *Client {
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	return &Client{cfg: cfg, at: now}
}

// State is the state.
func (c *Client) State() State { return c.state }

// Lease is the lease in use, nil if there is none.
func (c *Client) Lease() *Lease {
	if c.state == Bound || c.state == Renewing || c.state == Rebinding {
		return c.lease
	}
	return nil
}

// Deadline is when the client wants Timer to be called; Never if it waits for something else.
func (c *Client) Deadline() plugins.Time { return c.at }

// Next returns the next action, in order; ok is false if there is none.
func (c *Client) Next() (a Action, ok bool) {
	if len(c.actions) == 0 {
		return a, false
	}
	a = c.actions[0]
	c.actions = c.actions[1:]
	return a, true
}

func (c *Client) do(a Action) { c.actions = append(c.actions, a) }

// Timer does what is due.
func (c *Client) Timer(now plugins.Time) {
	if now < c.at {
		return
	}
	if l := c.Lease(); l != nil && now >= l.Expires { // 4.4.5: stop, and begin again
		c.lose()
		if c.restart(now); now < c.at {
			return
		}
	}
	switch c.state {
	case Init:
		c.discover(now)
	case Selecting:
		c.sendDiscover(now)
	case Requesting:
		if c.tries == requestTries {
			c.restart(now)
			break
		}
		c.sendRequest(now)
	case Bound, Renewing, Rebinding:
		if s := c.stage(now); s != c.state {
			c.state, c.began = s, now
		}
		c.sendRenewal(now)
	}
}

// stage is the state in which to ask for more time.
func (c *Client) stage(now plugins.Time) State {
	if now >= c.lease.Rebind {
		return Rebinding
	}
	return Renewing
}

// restart begins again: at once after the end of a lease, and then after waits that grow, so that a server that offers what it then
// refuses is not asked all the time.
func (c *Client) restart(now plugins.Time) {
	c.state, c.at, c.offer, c.lease = Init, now, nil, nil
	if c.failed > 0 {
		c.at = now.Add(c.backoff(c.failed))
	}
	c.failed++
}

// lose ends the lease in use.
func (c *Client) lose() {
	if l := c.Lease(); l != nil {
		c.do(Action{Lost: l})
	}
}

func (c *Client) discover(now plugins.Time) {
	c.state, c.tries, c.began = Selecting, 0, now
	c.newXID()
	c.sendDiscover(now)
}

func (c *Client) newXID() {
	v := c.cfg.Rand.Uint32()
	c.xid = dhcpv4.TransactionID{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

// backoff is the wait after the n-th transmission, counted from 1 (4.1).
func (c *Client) backoff(n int) time.Duration {
	d := min(firstRetry<<min(n-1, 10), maxRetry)
	return d - retryJitter + time.Duration(c.cfg.Rand.Int64N(int64(2*retryJitter)+1))
}

func (c *Client) sendDiscover(now plugins.Time) {
	c.tries++
	c.at = now.Add(c.backoff(c.tries))
	c.secs = uint16(min(now.Sub(c.began)/time.Second, 0xffff))
	c.broadcast(c.message(dhcpv4.MessageTypeDiscover))
}

// sendRequest asks for what was offered. Relays must pass it to the same servers: secs is that of the DISCOVER (4.4.1).
func (c *Client) sendRequest(now plugins.Time) {
	c.tries++
	c.at = now.Add(c.backoff(c.tries))
	m := c.message(dhcpv4.MessageTypeRequest)
	m.UpdateOption(dhcpv4.OptRequestedIPAddress(c.offer.YourIPAddr))
	m.UpdateOption(dhcpv4.OptServerIdentifier(c.offer.ServerIdentifier()))
	c.broadcast(m)
}

// sendRenewal asks the lease's server, later any server. The next time is half way to the end of the state, at least a minute (4.4.5).
func (c *Client) sendRenewal(now plugins.Time) {
	end := c.lease.Rebind
	if c.state == Rebinding {
		end = c.lease.Expires
	}
	c.at = min(now.Add(max(end.Sub(now)/2, renewRetry)), end)
	c.secs = uint16(min(now.Sub(c.began)/time.Second, 0xffff))
	c.asked = now
	c.newXID() // the answer is to this one, from which the lease counts
	m := c.message(dhcpv4.MessageTypeRequest)
	m.ClientIPAddr = c.lease.Addr.Addr().AsSlice()
	m.SetUnicast() // we have an address
	to := c.lease.Server
	if c.state == Rebinding {
		to = limitedBroadcast
	}
	c.do(Action{Send: &Message{Src: c.lease.Addr.Addr(), Dst: to, Data: m.ToBytes()}})
}

var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func (c *Client) broadcast(m *dhcpv4.DHCPv4) {
	c.do(Action{Send: &Message{Src: netip.IPv4Unspecified(), Dst: limitedBroadcast, Data: m.ToBytes()}})
}

// Checked says what conflict detection has found. An address that is taken is declined, and all begins again after a while (3.1, 5).
func (c *Client) Checked(now plugins.Time, conflict bool) {
	if c.state != Checking {
		return
	}
	if conflict {
		c.newXID()
		c.secs = 0
		m := c.bare(dhcpv4.MessageTypeDecline)
		m.UpdateOption(dhcpv4.OptRequestedIPAddress(c.lease.Addr.Addr().AsSlice()))
		m.UpdateOption(dhcpv4.OptServerIdentifier(c.lease.Server.AsSlice()))
		c.broadcast(m)
		c.restart(now)
		c.at = max(c.at, now.Add(declineWait))
		return
	}
	c.bind(now)
}

func (c *Client) bind(now plugins.Time) {
	c.state, c.at, c.failed = Bound, max(c.lease.Renew, now), 0
	c.do(Action{Bind: c.lease})
}

// Stop gives the address back and ends the client (4.4.6).
func (c *Client) Stop() {
	if l := c.Lease(); l != nil {
		c.newXID()
		c.secs = 0
		m := c.bare(dhcpv4.MessageTypeRelease)
		m.ClientIPAddr = l.Addr.Addr().AsSlice()
		m.UpdateOption(dhcpv4.OptServerIdentifier(l.Server.AsSlice()))
		c.do(Action{Send: &Message{Src: l.Addr.Addr(), Dst: l.Server, Data: m.ToBytes()}})
		c.do(Action{Lost: l})
	}
	c.state, c.at, c.lease, c.offer = Stopped, plugins.Never, nil, nil
}
