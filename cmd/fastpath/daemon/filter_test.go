package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestFilter: rules of the configuration are in force from the start, and per port; a file replaces them while connections live; a bad
// one changes nothing.
func TestFilter(t *testing.T) {
	d := start(t, withoutProcesses+`
[[filter]]
name = "echo"
action = "reject"
port = "a"
protocol = "tcp"
destination_ports = ["7"]
[[filter]]
name = "elsewhere"
action = "deny"
port = "b"
source = ["192.0.2.0/24"]
`)
	dial := func(port uint16) error {
		c, err := d.dialer().DialAddr(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port))
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(7); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a rejected connection: %v", err)
	}
	if err := dial(80); err != nil {
		t.Errorf("an allowed connection: %v", err)
	}
	r := call[control.FilterReply](d, control.OpFilter, nil)
	if len(r.Rules) != 2 || r.Rules[0].Packets != 1 || r.Rules[1].Packets != 0 || r.Default != "allow" || r.DefaultPackets == 0 {
		t.Errorf("the filter is %+v", r)
	}
	if n := call[control.StatReply](d, control.OpStat, nil).Counters["drop_filter"]; n != 1 {
		t.Errorf("%d packets dropped", n)
	}

	conn := d.dial("10.9.0.1:80")
	load := func(text string) (*control.FilterReply, error) {
		return try[control.FilterReply](d, control.OpFilter, control.FilterRequest{Load: true, File: "new.toml", Text: text})
	}
	for bad, want := range map[string]string{
		"[[filter]]\naction = \"drop\"": "new.toml:2: filter[0].action", "[[filter]]\naction = \"deny\"\nport = \"c\"": "new.toml:3: filter[0].port",
	} {
		if _, err := load(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := dial(7); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after bad files: %v", err)
	}
	if r, err := load("[firewall]\ndefault = \"reject\"\n[[filter]]\naction = \"allow\"\nstate = \"established\"\n[[filter]]\naction = \"allow\"\ndestination_ports = [\"7\"]\n"); err != nil || len(r.Rules) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	d.event(control.EventFilter, "2 rules from new.toml, default reject")
	if err := dial(7); err != nil {
		t.Errorf("allowed now: %v", err)
	}
	if err := dial(80); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("rejected now: %v", err)
	}
	// The connection from before goes on.
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "GET /blob?size=1000B HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		t.Error(err)
	}
	if _, err := try[control.FilterReply](d, control.OpFilter, control.FilterRequest{Reload: true}); err == nil || !strings.Contains(err.Error(), "test.toml") {
		t.Errorf("reloading a file that is not there: %v", err)
	}
}
