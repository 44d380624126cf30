package conf

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
)

// Actions of the packet filter.
const (
	ActionAllow  = "allow"
	ActionDeny   = "deny"   // dropped silently
	ActionReject = "reject" // dropped, and the sender told
)

// Firewall is [firewall]: the packet filter for what ports receive.
type Firewall struct {
	Default string `toml:"default" one:"allow deny reject"` // for packets that no [[filter]] matches
}

// Filter is a [[filter]]: a rule of the packet filter. The first rule that matches a packet decides. What is not given matches all.
type Filter struct {
	Name             string  `toml:"name"` // for `ctl filter`; default: "rule" and its number
	Action           string  `toml:"action" one:"allow deny reject"`
	Port             string  `toml:"port"`
	Source           []Net   `toml:"source"`
	Destination      []Net   `toml:"destination"`
	Protocol         string  `toml:"protocol"` // tcp, udp, icmp, icmpv6 or a number
	SourcePorts      []Ports `toml:"source_ports"`
	DestinationPorts []Ports `toml:"destination_ports"`
	State            string  `toml:"state" one:"new established"` // of TCP segments: SYN without ACK; with ACK or RST
}

// Rules are a packet filter: what a file for `ctl filter load` holds.
type Rules struct {
	Firewall Firewall `toml:"firewall"`
	Filters  []Filter `toml:"filter"`
}

// ProtocolNumber is the number of f's protocol; ok is false if it matches all.
func (f *Filter) ProtocolNumber() (n uint8, ok bool) {
	if f.Protocol == "" {
		return 0, false
	}
	n, err := parseProtocol(f.Protocol)
	return n, err == nil
}

func parseProtocol(s string) (uint8, error) {
	if n, ok := map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58}[s]; ok {
		return n, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q is not a protocol (tcp, udp, icmp, icmpv6, or a number up to 255)", s)
	}
	return uint8(n), nil
}

// Net is a network or a single address: "10.0.0.0/8", "10.0.0.1", "2001:db8::/32".
type Net struct{ netip.Prefix }

func (n Net) String() string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.Prefix.String()
}

// MarshalText implements encoding.TextMarshaler.
func (n Net) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Net) UnmarshalText(b []byte) error {
	p, err := netip.ParsePrefix(string(b))
	if a, aerr := netip.ParseAddr(string(b)); aerr == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil || p.Addr().Zone() != "" || p.Addr().Is4In6():
		return fmt.Errorf("%q is not a network or address; write it as \"10.0.0.0/8\" or \"10.0.0.1\"", b)
	case p != p.Masked():
		return fmt.Errorf("%v has bits behind its length; did you mean %v?", p, p.Masked())
	}
	n.Prefix = p
	return nil
}

// Ports is a port or a range of ports, both ends included: "80", "8000-8080".
type Ports struct{ Min, Max uint16 }

func (p Ports) String() string {
	if p.Min == p.Max {
		return strconv.Itoa(int(p.Min))
	}
	return fmt.Sprintf("%d-%d", p.Min, p.Max)
}

// MarshalText implements encoding.TextMarshaler.
func (p Ports) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Ports) UnmarshalText(b []byte) error {
	lo, hi, ok := strings.Cut(string(b), "-")
	if !ok {
		hi = lo
	}
	l, err1 := strconv.ParseUint(lo, 10, 16)
	h, err2 := strconv.ParseUint(hi, 10, 16)
	if err1 != nil || err2 != nil || l > h {
		return fmt.Errorf("%q is not a port or range of ports; write it as \"80\" or \"8000-8080\"", b)
	}
	*p = Ports{uint16(l), uint16(h)}
	return nil
}

// filters checks the rules and names those without a name.
func (v *validator) filters(rules []Filter) {
	names := map[string]int{}
	for i := range rules {
		f, key := &rules[i], fmt.Sprintf("filter[%d]", i)
		v.require(key+".action", f.Action == "")
		if f.Name == "" && !v.bad(key+".name") {
			f.Name = fmt.Sprintf("rule%d", i)
		}
		if first, ok := names[f.Name]; ok {
			v.at(key+".name", "%q is the name of the rule on line %d already", f.Name, first)
		} else {
			names[f.Name] = v.line(key)
		}
		if f.Port != "" && v.port(f.Port) == nil && len(v.c.Ports) > 0 && !v.broken {
			v.at(key+".port", "there is no port %q", f.Port)
		}
		v.filterFields(key, f)
	}
}

// filterFields notes combinations that match nothing.
func (v *validator) filterFields(key string, f *Filter) {
	if _, err := parseProtocol(f.Protocol); f.Protocol != "" && err != nil && !v.bad(key+".protocol") {
		v.at(key+".protocol", "%v", err)
		return
	}
	if len(f.SourcePorts)+len(f.DestinationPorts) > 0 && f.Protocol != "" && f.Protocol != "tcp" && f.Protocol != "udp" && f.Protocol != "6" && f.Protocol != "17" {
		v.at(key+".protocol", "%q has no ports", f.Protocol)
	}
	if f.State != "" && f.Protocol != "" && f.Protocol != "tcp" && f.Protocol != "6" {
		v.at(key+".state", "has no meaning with protocol = %q", f.Protocol)
	}
	for _, a := range f.Source {
		for _, b := range f.Destination {
			if a.IsValid() && b.IsValid() && a.Addr().Is4() != b.Addr().Is4() {
				v.at(key+".destination", "source %v and destination %v are of different families", a, b)
				return
			}
		}
	}
}

// ParseRules reads a file that holds [[filter]] and [firewall] only. ports are the names that rules may use. What is wrong is reported
// as Problems.
func ParseRules(file string, data []byte, ports []string) (*Rules, error) {
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s: more than %d bytes is too large", file, maxFileSize)
	}
	d := parse(file, data)
	r := &Rules{Firewall: Firewall{Default: ActionAllow}}
	d.bind("", d.values, reflect.ValueOf(r).Elem())
	c := &Config{}
	for _, name := range ports {
		c.Ports = append(c.Ports, Port{Name: name})
	}
	v := validator{document: d, c: c}
	v.filters(r.Filters)
	d.probs.Sort()
	if err := d.probs.err(); err != nil {
		return nil, err
	}
	return r, nil
}
