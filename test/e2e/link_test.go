package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestLink takes the client's end of the link down and up: the daemon says so, and announces its address anew.
func TestLink(t *testing.T) {
	w := newWorld(t, link{driver: "afpacket"})
	w.download(64 << 10)
	linkIs := func(up bool, downs, ups uint64) {
		t.Helper()
		w.eventually(10*time.Second, func() error {
			var i control.Info
			w.must(w.call(control.OpInfo, nil, &i))
			if len(i.Ports) != 1 || i.Ports[0].LinkUp != up || i.Ports[0].LinkDowns != downs || i.Ports[0].LinkUps != ups || w.stat().Ports[0].LinkUp != up {
				return fmt.Errorf("%+v", i.Ports)
			}
			return nil
		})
	}
	events := func(want string) {
		t.Helper()
		w.eventually(10*time.Second, func() error {
			var said []string
			for _, e := range w.events() {
				if e.Kind == control.EventLink {
					said = append(said, e.Fields["state"])
				}
			}
			if got := strings.Join(said, " "); got != want {
				return fmt.Errorf("events %q, want %q", got, want)
			}
			return nil
		})
	}
	linkIs(true, 0, 0)
	w.must(w.client.Run("ip", "link", "set", clientIf, "down"))
	linkIs(false, 1, 0)
	events("down")
	before := w.stat().Counters["arp_requests"]
	w.must(w.client.Run("ip", "link", "set", clientIf, "up"))
	linkIs(true, 1, 1)
	events("down up")
	w.eventually(10*time.Second, func() error {
		if n := w.stat().Counters["arp_requests"]; n < before+2 {
			return fmt.Errorf("%d ARP requests, %d before", n, before)
		}
		return nil
	})
	w.download(64 << 10)
}
