package conf

import (
	"strings"
	"testing"
)

const goodRules = `
[firewall]
default = "deny"
[[filter]]
action = "allow"
state  = "established"
[[filter]]
name     = "web"
action   = "allow"
port     = "wan"
source   = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]
protocol = "tcp"
destination_ports = ["80", "8000-8080"]
[[filter]]
action = "reject"
protocol = "47"
`

func TestRules(t *testing.T) {
	r, err := ParseRules("f", []byte(goodRules), []string{"wan"})
	if err != nil {
		t.Fatal(err)
	}
	web := r.Filters[1]
	if r.Firewall.Default != ActionDeny || len(r.Filters) != 3 || r.Filters[0].Name != "rule0" || web.Name != "web" ||
		web.Source[1].String() != "192.0.2.7" || web.Source[0].String() != "10.0.0.0/8" || web.DestinationPorts[1] != (Ports{8000, 8080}) {
		t.Errorf("read %+v", r)
	}
	for i, want := range []int{-1, 6, 47} {
		if n, ok := r.Filters[i].ProtocolNumber(); ok != (want >= 0) || ok && int(n) != want {
			t.Errorf("rule %d: protocol %d, %v", i, n, ok)
		}
	}
	if empty, err := ParseRules("f", nil, nil); err != nil || empty.Firewall.Default != ActionAllow {
		t.Errorf("an empty file: %v, %v", empty, err)
	}
}

// TestBadRules: each error names the file, the line and the key.
func TestBadRules(t *testing.T) {
	for in, want := range map[string]string{
		"[[filter]]\nname = \"x\"":                                                                 "f:1: filter[0].action: is missing",
		"[[filter]]\naction = \"drop\"":                                                            "f:2: filter[0].action: \"drop\" is not one of allow, deny, reject",
		"[firewall]\ndefault = \"no\"":                                                             "f:2: firewall.default",
		"[[filter]]\naction = \"deny\"\nport = \"lan\"":                                            "f:3: filter[0].port: there is no port \"lan\"",
		"[[filter]]\naction = \"deny\"\nsource = [\"10.0.0.1/8\"]":                                 "f:3: filter[0].source[0]: 10.0.0.1/8 has bits behind its length; did you mean 10.0.0.0/8?",
		"[[filter]]\naction = \"deny\"\nsource = [\"all\"]":                                        "f:3: filter[0].source[0]",
		"[[filter]]\naction = \"deny\"\nprotocol = \"gre\"":                                        "f:3: filter[0].protocol",
		"[[filter]]\naction = \"deny\"\nprotocol = \"icmp\"\nsource_ports = [\"1\"]":               "f:3: filter[0].protocol: \"icmp\" has no ports",
		"[[filter]]\naction = \"deny\"\nprotocol = \"udp\"\nstate = \"new\"":                       "f:4: filter[0].state",
		"[[filter]]\naction = \"deny\"\ndestination_ports = [\"9-8\"]":                             "f:3: filter[0].destination_ports[0]",
		"[[filter]]\naction = \"deny\"\nsource = [\"10.0.0.1\"]\ndestination = [\"::1\"]":          "f:4: filter[0].destination",
		"[[filter]]\naction = \"deny\"\nname = \"a\"\n[[filter]]\naction = \"deny\"\nname = \"a\"": "f:6: filter[1].name",
		"[[filter]]\naction = \"deny\"\ncolour = 1":                                                "f:3: filter[0].colour: unknown key",
		"[[port]]\nname = \"wan\"":                                                                 "f:1: port: unknown key",
	} {
		_, err := ParseRules("f", []byte(in), []string{"wan"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

// FuzzRules: any file gives rules or problems; what is accepted has prefixes and ports that a filter takes.
func FuzzRules(f *testing.F) {
	f.Add([]byte(goodRules))
	f.Add([]byte("[[filter]]\naction = \"deny\"\nsource = [\"::ffff:1.2.3.4\"]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRules("f", data, []string{"wan"})
		if err != nil {
			return
		}
		for _, x := range r.Filters {
			if x.Action == "" || x.Name == "" {
				t.Fatalf("accepted %+v", x)
			}
			for _, n := range append(x.Source, x.Destination...) {
				if p := n.Prefix; !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
					t.Fatalf("accepted %v", p)
				}
			}
			for _, p := range append(x.SourcePorts, x.DestinationPorts...) {
				if p.Min > p.Max {
					t.Fatalf("accepted %v", p)
				}
			}
		}
	})
}
