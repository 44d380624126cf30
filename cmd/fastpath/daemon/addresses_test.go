package daemon

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/stack"
)

// What a port gets and loses while it runs is shown, with its state, and announced.
func TestAddresses(t *testing.T) {
	d := start(t, `
[[port]]
name = "a"
driver = "memlink"
peer = "b"
mac = "02:00:00:00:00:0a"
dhcp = true
slaac = true
[[port]]
name = "b"
driver = "memlink"
peer = "a"
mac = "02:00:00:00:00:0b"
addresses = ["10.9.0.2/24", "2001:db8:9::2/64"]
`+builtins)
	shown := func(want ...string) {
		t.Helper()
		var got []string
		if !eventually(20*time.Second, func() bool {
			got = call[control.Info](d, control.OpInfo, nil).Ports[0].Addresses
			return slices.Equal(got, want)
		}) {
			t.Fatalf("`ctl info` shows %q, want %q", got, want)
		}
	}
	own := d.ports[0].stack.Addresses()[0].Prefix.String() // link-local
	shown(own)
	d.event(control.EventAddress, "port a: address "+own+" is preferred (link-local)")
	d.event(control.EventAddress, "port b: address 2001:db8:9::2/64 is preferred (static)")

	lease := &stack.Binding{Addr: netip.MustParsePrefix("10.9.0.77/24")} // what the DHCP client does
	if err := d.ports[0].stack.Readdress(nil, lease); err != nil {
		t.Fatal(err)
	}
	d.event(control.EventAddress, "port a: address 10.9.0.77/24 is preferred (dhcp)")
	shown("10.9.0.77/24", own)
	if err := d.ports[0].stack.Readdress(lease, nil); err != nil {
		t.Fatal(err)
	}
	d.event(control.EventAddress, "port a: address 10.9.0.77/24 is gone")
	shown(own)

	if err := d.ports[0].stack.AddAddr(netip.MustParsePrefix("2001:db8:9::2/64")); err != nil { // b has it
		t.Fatal(err)
	}
	d.event(control.EventAddress, "port a: address 2001:db8:9::2/64 is duplicate: another host has it")
	shown(own, "2001:db8:9::2/64 duplicate")

	for _, e := range d.events() {
		if strings.Contains(e.Message, "10.9.0.2/24") {
			t.Errorf("%q is no news", e.Message)
		}
	}
}

// The log calls a port by its configured name, whatever its parts call it.
func TestPortLog(t *testing.T) {
	var out bytes.Buffer
	log := portLog(Logger(conf.Log{Level: "info", Format: "text"}, &out), "lan")
	log.With("port", "eth0", "x", 1).Info("first", "port", "eth0", "address", "10.7.0.1")
	log.WithGroup("peer").Info("second", "port", 80)
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"msg=first port=lan x=1 address=10.7.0.1", "msg=second port=lan peer.port=80"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("%q, want %q at its end", lines[i], want)
		}
	}
}
