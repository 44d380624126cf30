package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestMLD (RFC 3810, 5): a switch that forwards groups only where somebody has reported them (RFC 4541), here a bridge of the client's kernel, learns the
// solicited-node groups of the daemon from its answers to the bridge's queries, in both versions, so that neighbours find the daemon.
func TestMLD(t *testing.T) {
	need(t, "bridge", "ping")
	w := newWorld(t, link{driver: "afpacket", addrs: []string{serverIP6 + "/64"}})
	w.enable6()
	ll := w.address6("fe80::")
	const bridge = "snoop0"
	for version := 2; version >= 1; version-- {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			w.command(nil, "ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "1", "mcast_mld_version", fmt.Sprint(version),
				"mcast_startup_query_interval", "50", "mcast_query_response_interval", "50") // hundredths of a second
			defer w.command(nil, "ip", "link", "del", bridge)
			w.must(w.client.Sysctl("net.ipv6.conf."+bridge+".disable_ipv6", "0"))
			w.command(nil, "ip", "-6", "addr", "add", clientIP6+"/64", "dev", bridge, "nodad")
			w.command(nil, "ip", "link", "set", clientIf, "master", bridge)
			w.command(nil, "ip", "link", "set", bridge, "up")
			w.eventually(10*time.Second, func() error { // a querier needs a link-local address
				if len(w.command(nil, "ip", "-6", "addr", "show", "dev", bridge, "scope", "link", "-tentative")) == 0 {
					return fmt.Errorf("no link-local address")
				}
				return nil
			})
			w.command(nil, "ip", "link", "set", bridge, "type", "bridge", "mcast_querier", "1")
			want := map[string]bool{solicited(t, serverIP6): true, solicited(t, ll): true}
			w.eventually(15*time.Second, func() error {
				got := w.reported(bridge)
				for g := range want {
					if !got[g] {
						return fmt.Errorf("%s has not reported %s, but %v", clientIf, g, got)
					}
				}
				return nil
			})
			w.command(nil, "ping", "-6", "-c", "1", "-W", "5", serverIP6)
		})
	}
}

// solicited is the solicited-node group of an address.
func solicited(t *testing.T, ip string) string {
	t.Helper()
	a := netip.MustParseAddr(ip).As16()
	g := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(g[13:], a[13:])
	return netip.AddrFrom16(g).String()
}

// reported are the groups that the bridge has learned at the client's end of the link.
func (w *world) reported(bridge string) map[string]bool {
	w.Helper()
	var all []struct {
		MDB []struct{ Port, Grp string }
	}
	w.must(json.Unmarshal(w.command(nil, "bridge", "-j", "mdb", "show", "dev", bridge), &all))
	groups := map[string]bool{}
	for _, one := range all {
		for _, e := range one.MDB {
			if e.Port == clientIf {
				groups[e.Grp] = true
			}
		}
	}
	return groups
}
