package conf

import (
	"strings"
	"testing"
)

const vlanPorts = `
[[port]]
name = "v100"
parent = "wan"
vlan = 100
addresses = ["10.8.0.1/24"]
[[port]]
name = "wan"
driver = "afpacket"
interface = "eth0"
mtu = 1400
queues = 2
addresses = ["10.7.0.1/24"]
`

func TestVLAN(t *testing.T) {
	c, err := Parse("f", []byte(vlanPorts))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Ports[0]; p.Queues != 2 || p.MTU != 1400 || p.VLAN != 100 || len(c.Workers) != 4 {
		t.Errorf("%+v, %d workers", p, len(c.Workers))
	}
	// Spinning workers share a core per queue.
	var b strings.Builder
	for _, w := range []string{"wan\"\nqueue = 0\ncore = 1", "v100\"\nqueue = 0\ncore = 1", "wan\"\nqueue = 1\ncore = 2", "v100\"\nqueue = 1\ncore = 2"} {
		b.WriteString("[[worker]]\npoll = \"spin\"\nport = \"" + w + "\n")
	}
	if _, err := Parse("f", []byte(vlanPorts+b.String())); err != nil {
		t.Error(err)
	}
}

func TestBadVLAN(t *testing.T) {
	worker := func(port, poll, core string) string {
		return "[[worker]]\nport = \"" + port + "\"\npoll = \"" + poll + "\"\ncore = " + core + "\nqueue = 0\n"
	}
	one := strings.Replace(vlanPorts, "queues = 2", "queues = 1", 1)
	for name, c := range map[string]struct{ text, want string }{
		"no parent":     {strings.Replace(vlanPorts, "parent = \"wan\"\n", "", 1), "port[0].parent: is missing"},
		"unknown":       {strings.Replace(vlanPorts, "parent = \"wan\"", "parent = \"lan\"", 1), "f:4: port[0].parent: there is no port \"lan\""},
		"no ID":         {strings.Replace(vlanPorts, "vlan = 100\n", "", 1), "port[0].vlan: is missing"},
		"ID":            {strings.Replace(vlanPorts, "vlan = 100", "vlan = 4095", 1), "f:5: port[0].vlan: 4095 is out of range (1 to 4094)"},
		"driver":        {strings.Replace(vlanPorts, "vlan = 100", "vlan = 100\ndriver = \"tap\"", 1), "f:6: port[0].driver: has no meaning with parent"},
		"MTU":           {strings.Replace(vlanPorts, "vlan = 100", "vlan = 100\nmtu = 1500", 1), "f:6: port[0].mtu: 1500 is more than the parent's 1400"},
		"twice":         {vlanPorts + "[[port]]\nname = \"again\"\nparent = \"wan\"\nvlan = 100\naddresses = [\"10.9.0.1/24\"]\n", "port[2].vlan: port \"v100\" is VLAN 100"},
		"of a VLAN":     {vlanPorts + "[[port]]\nname = \"again\"\nparent = \"v100\"\nvlan = 7\naddresses = [\"10.9.0.1/24\"]\n", "port[2].parent: port \"v100\" is a VLAN itself"},
		"mixed workers": {one + worker("wan", "spin", "1") + worker("v100", "adaptive", "-1"), "ports \"wan\" and \"v100\" share queue 0 of \"wan\""},
		"two cores":     {one + worker("wan", "spin", "1") + worker("v100", "spin", "2"), "must be adaptive, or spin on the same core"},
	} {
		if _, err := Parse("f", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
