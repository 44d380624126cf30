package neigh

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// RFC 5227, 2.1.1: three probes one to two seconds apart, after at most one second, without a sender address; then two seconds of silence.
func TestProbeFree(t *testing.T) {
	for seed := range uint64(50) {
		c := New(Config{MAC: wire.MAC{2, 0, 0, 0, 0, 1}, Seed: seed}, 1)
		a := wire.AddrFrom4([4]byte{10, 0, 0, 9})
		now := plugins.Time(1e9)
		var result []bool
		c.Probe(a, now, func(conflict bool) { result = append(result, conflict) })
		var sent []plugins.Time
		start := now
		for c.Deadline() != plugins.Never {
			now = max(now, c.Deadline())
			var out [4]Output
			n, _ := c.Poll(now, out[:])
			for _, o := range out[:n] {
				if o.Dst != wire.Broadcast || o.ARP.Op != wire.ARPRequest || o.ARP.SPA != [4]byte{} || o.ARP.TPA != a.As4() {
					t.Fatalf("probe %+v", o)
				}
				sent = append(sent, now)
			}
		}
		if len(sent) != 3 || len(result) != 1 || result[0] {
			t.Fatalf("%d probes, results %v", len(sent), result)
		}
		if d := sent[0] - start; d > 1e9 {
			t.Errorf("first probe after %v", time.Duration(d))
		}
		for i := range 2 {
			if d := sent[i+1] - sent[i]; d < 1e9 || d > 2e9 {
				t.Errorf("probes %v apart", time.Duration(d))
			}
		}
		if d := now - sent[2]; d != 2e9 {
			t.Errorf("free %v after the last probe", time.Duration(d))
		}
	}
}

// An answer, any packet from the address, and another host's probe for it are conflicts; what is about other addresses is not.
func TestProbeConflict(t *testing.T) {
	other := wire.MAC{2, 0, 0, 0, 0, 2}
	mine, a := wire.MAC{2, 0, 0, 0, 0, 1}, [4]byte{10, 0, 0, 9}
	for _, x := range []struct {
		name string
		arp  wire.ARP
		want bool
	}{
		{"answer", wire.ARP{Op: wire.ARPReply, SHA: other, SPA: a, THA: mine}, true},
		{"request from it", wire.ARP{Op: wire.ARPRequest, SHA: other, SPA: a, TPA: [4]byte{10, 0, 0, 1}}, true},
		{"probe for it", wire.ARP{Op: wire.ARPRequest, SHA: other, TPA: a}, true},
		{"our own probe", wire.ARP{Op: wire.ARPRequest, SHA: mine, TPA: a}, false},
		{"request for it", wire.ARP{Op: wire.ARPRequest, SHA: other, SPA: [4]byte{10, 0, 0, 1}, TPA: a}, false},
		{"another address", wire.ARP{Op: wire.ARPReply, SHA: other, SPA: [4]byte{10, 0, 0, 8}, THA: mine}, false},
	} {
		c := New(Config{MAC: mine}, 1)
		calls, got := 0, false
		c.Probe(wire.AddrFrom4(a), 1, func(conflict bool) { calls, got = calls+1, conflict })
		c.Input(2, &x.arp)
		c.Input(3, &x.arp)
		if got != x.want || calls > 1 || x.want && c.Deadline() != plugins.Never {
			t.Errorf("%s: conflict %v after %d calls", x.name, got, calls)
		}
		c.EndProbe()
		if c.Input(4, &wire.ARP{Op: wire.ARPReply, SHA: other, SPA: a}); calls > 1 {
			t.Errorf("%s: a result after the end", x.name)
		}
	}
}
