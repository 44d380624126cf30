package bench

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// F12: whatever the port is like, one greedy flow fills it, and delays the requests of 100 light ones by no more than what the port needs to
// be kept busy: twice what it completes between two looks, or while a frame is in it. The port tells what it has sent at once, late, or all
// that it has sent in a while together.
func TestFairPorts(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		name     string
		rate     float64
		hold     time.Duration
		holdEach time.Duration
		most     time.Duration // what the greedy flow may add to the p99
	}{
		{"100 Mbit/s", 100e6, 1, 0, 1000 * us},
		{"1 Gbit/s", 1e9, 1, 0, 100 * us},
		{"10 Gbit/s", 10e9, 1, 0, 10 * us},
		{"10 Gbit/s, tells 30 µs late", 10e9, 30 * us, 0, 100 * us},
		{"1 Gbit/s, tells each 100 µs", 1e9, 0, 100 * us, 300 * us},
		{"1 Gbit/s, tells each millisecond", 1e9, 0, 1000 * us, 2500 * us},
		{"100 Mbit/s, tells 12 ms late", 100e6, 12000 * us, 0, 8000 * us},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := memlink.Path{Rate: uint64(c.rate), Overhead: 24, Delay: 50 * us, Hold: c.hold, HoldEach: c.holdEach}
			lights, share := 100, 0.97
			if c.rate < 1e9 {
				lights = 10 // else they need half of it
			}
			alone, err := fair(p, tcp.Config{}, crowd{lights: lights}, 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			beside, err := fair(p, tcp.Config{}, crowd{bulks: 1, lights: lights}, 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			wire := c.rate * 1448 / 1538
			rest := float64(lights) / 5e-3 * (200 + 90 + 90) * 8 // requests, and acknowledgements of answers
			t.Logf("p99 %v alone, %v beside; greedy %.1f of %.1f Mbit/s", time.Duration(alone.p99), time.Duration(beside.p99), beside.bulkBPS[0]/1e6, wire/1e6)
			if added := time.Duration(beside.p99 - alone.p99); added > c.most {
				t.Errorf("beside a greedy flow requests take %v more, want at most %v", added, c.most)
			}
			if least := share * (wire - rest); beside.bulkBPS[0] < least {
				t.Errorf("the greedy flow has %.1f Mbit/s, want %.1f", beside.bulkBPS[0]/1e6, least/1e6)
			}
		})
	}
}

// F12: a sender of datagrams that has always one to send is a flow among others. It holds up neither connections nor other datagrams for longer
// than a greedy connection does, and shares the port with one by halves.
func TestFairDatagrams(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		name     string
		rate     float64
		hold     time.Duration
		holdEach time.Duration
		most     time.Duration // what the flood may add to the p99
	}{
		{"100 Mbit/s", 100e6, 1, 0, 1000 * us},
		{"1 Gbit/s", 1e9, 1, 0, 100 * us},
		{"10 Gbit/s, tells 30 µs late", 10e9, 30 * us, 0, 100 * us},
		{"1 Gbit/s, tells each 100 µs", 1e9, 0, 100 * us, 300 * us},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := memlink.Path{Rate: uint64(c.rate), Overhead: 24, Delay: 50 * us, Hold: c.hold, HoldEach: c.holdEach}
			alone, err := fair(p, tcp.Config{}, crowd{lights: 10, pings: 10}, 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			for _, with := range []crowd{{floods: 1}, {floods: 1, bulks: 1}} {
				with.lights, with.pings = 10, 10
				beside, err := fair(p, tcp.Config{}, with, 100*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("connections' p99 %v alone, %v beside; datagrams' %v, %v; flood %.1f, greedy %.1f Mbit/s", time.Duration(alone.p99), time.Duration(beside.p99),
					time.Duration(alone.ping99), time.Duration(beside.ping99), beside.floodsBPS[0]/1e6, append(beside.bulkBPS, 0)[0]/1e6)
				if added := time.Duration(beside.p99 - alone.p99); added > c.most {
					t.Errorf("connections' requests take %v more, want at most %v", added, c.most)
				}
				if added := time.Duration(beside.ping99 - alone.ping99); added > c.most {
					t.Errorf("datagrams' requests take %v more, want at most %v", added, c.most)
				}
				sum := beside.floodsBPS[0]
				for _, v := range beside.bulkBPS {
					if sum += v; v < 0.9*beside.floodsBPS[0] || v > 1.1*beside.floodsBPS[0] {
						t.Errorf("a connection has %.1f Mbit/s, a flood %.1f", v/1e6, beside.floodsBPS[0]/1e6)
					}
				}
				if wire := c.rate * 1448 / 1538; sum < 0.95*(wire-20/5e-3*400*8) {
					t.Errorf("they have %.1f Mbit/s of %.1f", sum/1e6, wire/1e6)
				}
			}
		})
	}
}
