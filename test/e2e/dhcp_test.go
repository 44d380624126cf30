package e2e

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// The daemon gets its address, and the route to a gateway, from dnsmasq, serves at it, and gives it back when it stops.
func TestDHCP(t *testing.T) {
	need(t, "dnsmasq")
	w := newWorld(t, link{driver: "afpacket", dhcp: true, offloads: true, workers: "[[worker]]\n[[worker]]\nqueue = -1\n"})
	leases := filepath.Join(w.dir, "leases")
	server := startProcess(t, w.client, exec.Command("dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--log-dhcp",
		"--interface="+clientIf, "--bind-interfaces", "--dhcp-authoritative", "--dhcp-leasefile="+leases,
		"--dhcp-range="+serverIP+","+serverIP+",255.255.255.0,2m", "--dhcp-option=option:router,"+clientIP))
	w.eventually(40*time.Second, func() error { // dnsmasq may come after the first DISCOVER, and asking whether the address is free takes seven seconds
		if server.ended() {
			t.Fatalf("dnsmasq has ended: %s", server.said())
		}
		if a := w.stat().Ports[0].Addresses; !slices.Contains(a, serverIP+"/24") {
			return fmt.Errorf("addresses %v", a)
		}
		return nil
	})
	var info control.Info
	w.must(w.call(control.OpInfo, nil, &info))
	if a := info.Ports[0].Addresses; !slices.Contains(a, serverIP+"/24") {
		t.Errorf("`ctl info` shows the addresses %v", a)
	}
	w.eventually(limit, func() error {
		all := w.events()
		if !slices.ContainsFunc(all, func(e control.Event) bool { return e.Kind == control.EventAddress && e.Fields["origin"] == "dhcp" }) {
			return fmt.Errorf("events %v", all)
		}
		return nil
	})
	for line := range strings.Lines(w.daemon.said()) {
		if strings.Contains(line, `"DHCP lease"`) && !strings.Contains(line, "port="+info.Ports[0].Name+" ") {
			t.Errorf("another name of the port: %s", line)
		}
	}
	c, err := w.dial(portEcho)
	w.must(err)
	defer c.Close()
	w.must(c.SetDeadline(time.Now().Add(limit)))
	_, err = c.Write([]byte("leased"))
	w.must(err)
	buf := make([]byte, 6)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "leased" {
		t.Errorf("%q, %v", buf, err)
	}
	c.Close()
	var ss control.SSReply
	w.must(w.call(control.OpSS, control.SSRequest{UDP: true}, &ss))
	if len(ss.Conns) != 1 || ss.Conns[0].Local.Port() != 68 || ss.Conns[0].DatagramsIn < 2 || ss.Conns[0].DatagramsOut < 2 {
		t.Errorf("UDP sockets %+v", ss.Conns)
	}
	w.stop()
	for end := time.Now().Add(limit); !strings.Contains(server.said(), "DHCPRELEASE"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the address was not given back: %s", server.said())
		}
	}
}
