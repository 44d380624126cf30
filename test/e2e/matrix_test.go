package e2e

import (
	"fmt"
	"testing"
)

// A condition is what the link is like.
type condition struct {
	name    string
	link    link
	size    int64 // bytes of a transfer; short ones where the link is slow
	drivers []string
}

var allDrivers = []string{"dpdk", "afpacket", "tap"}

// tiny are the client's buffers in bytes: minimum, default and maximum.
const tiny = "4096 4096 4096"

var conditions = []condition{
	{"clean", link{}, 4 << 20, allDrivers},
	{"onecpu", link{oneCPU: true}, 2 << 20, allDrivers},
	{"offloads", link{offloads: true}, 4 << 20, []string{"afpacket"}}, // net_af_packet cannot take such frames; a TAP device always has them
	{"loss1", link{path: lossy}, 2 << 20, allDrivers},
	{"awful", link{path: awful}, 1 << 20, allDrivers},
	{"corrupt", link{path: corrupting}, 1 << 20, allDrivers},
	{"mtu576", link{mtu: 576}, 1 << 20, allDrivers}, // IPv4 only
	{"mtu1280", link{mtu: 1280}, 2 << 20, allDrivers},
	{"mtu9000", link{mtu: 9000}, 4 << 20, []string{"afpacket", "tap"}}, // net_af_packet takes 1500 bytes at most
	{"tiny", link{sysctls: map[string]string{"net.ipv4.tcp_rmem": tiny, "net.ipv4.tcp_wmem": tiny}}, 256 << 10, allDrivers},
}

// modules are the congestion-control modules that the matrix goes through: in one process with those of the other kinds, as by default,
// or all linked in.
var modules = []struct {
	name    string
	process bool
}{{"bbr", true}, {"cubic", false}, {"reno", false}, {"cdg", true}}

// chosen reports whether the subset holds the combination: over all conditions each driver meets each peer and each kind of trouble.
func chosen(condition, driver, peer int) bool {
	if condition == 0 {
		return true // every driver and every peer on a clean link
	}
	return (condition+driver+peer)%3 == 0
}

func TestMatrix(t *testing.T) { matrix(t, false) }

// TestMatrix6 is the matrix over IPv6. The subset has one driver for each condition.
func TestMatrix6(t *testing.T) { matrix(t, true) }

func matrix(t *testing.T, v6 bool) {
	for ci, c := range conditions {
		for di, driver := range allDrivers {
			if !c.has(driver) || v6 && (c.link.mtu != 0 && c.link.mtu < 1280 || !*full && ci%len(c.drivers) != di%len(c.drivers)) {
				continue
			}
			var ps []peer
			for pi, p := range peers {
				if *full || len(c.drivers) == 1 || chosen(ci, di, pi) {
					ps = append(ps, p)
				}
			}
			m := modules[(ci+di)%len(modules)]
			t.Run(fmt.Sprintf("%s/%s/%s", c.name, driver, m.name), func(t *testing.T) {
				l := c.link
				l.driver, l.v6 = driver, v6
				if l.modules = fmt.Sprintf("[modules.cong]\nuse = %q\n", m.name); !m.process {
					l.modules = linkedIn(m.name)
				}
				newWorld(t, l).meet(c, ps)
			})
		}
	}
}

func (c *condition) has(driver string) bool {
	for _, d := range c.drivers {
		if d == driver {
			return true
		}
	}
	return false
}

// meet has the peers use the daemon one after the other, and judges the counters of the client's kernel after each.
func (w *world) meet(c condition, ps []peer) {
	w.ping()
	for _, p := range ps {
		w.T.Run(p.name, func(t *testing.T) {
			need(t, p.tools...)
			v := *w
			v.T = t
			kernel, daemon, lost := v.nstat(), ours(v.stat()), v.lost()
			p.run(&v, c.size)
			moved := v.nstat().since(kernel)
			v.mustNotMove(p.name, moved, never)
			if !p.resets {
				v.mustNotReset(p.name, moved)
			}
			if w.path != corrupting {
				v.mustNotMove(p.name, moved, onlyCorrupt)
				v.mustNotMove(p.name, moved, onlyCorrupt6)
				if n := moved.badSegments(); n > 0 {
					t.Errorf("the kernel counts %d bad segments", n)
				}
			}
			if w.path != nil {
				return
			}
			if n := v.lost() - lost; n != 0 {
				t.Logf("%d frames had no room", n)
			} else {
				v.again(moved, ours(v.stat()).since(daemon))
			}
		})
	}
	w.impaired()
	w.settled()
}

// impaired checks that the link did to frames what it is said to do, and that the daemon noticed.
func (w *world) impaired() {
	if w.wire == nil {
		return
	}
	there, back := w.wire.counters()
	w.Logf("wire: %d frames to the daemon, %d lost, %d repeated, %d reordered, %d corrupted; %d back, %d lost, %d repeated, %d reordered, %d corrupted",
		there.Frames, there.Lost, there.Duplicated, there.Reordered, there.Corrupted, back.Frames, back.Lost, back.Duplicated, back.Reordered, back.Corrupted)
	if min(there.Frames, back.Frames) < 1000 {
		return // too few to expect anything of 1 % loss
	}
	if there.Lost+there.Corrupted == 0 || back.Lost+back.Corrupted == 0 {
		w.Error("the link was clean")
	}
	if w.path != corrupting {
		return
	}
	var bad uint64
	for name, n := range w.stat().Counters {
		if len(name) > 5 && name[:5] == "drop_" {
			bad += n
		}
	}
	if bad == 0 || w.nstat()["TcpInCsumErrors"] == 0 {
		w.Errorf("%d frames were corrupted, but the daemon dropped %d and the kernel %d", there.Corrupted, bad, w.nstat()["TcpInCsumErrors"])
	}
}

// kept is what the daemon may keep of its memory for streams, for the next ones: some quota of each class of chunks.
const kept = 1 << 20

// settled wants no connection and no buffer left behind once the peers are gone.
func (w *world) settled() {
	w.Helper()
	w.eventually(limit, func() error {
		s := w.stat()
		p := s.Ports[0]
		if n := s.Gauges["tcp_conns"] + s.Gauges["tcp_time_waits"]; n != 0 {
			return fmt.Errorf("%d connections are left", n)
		}
		if n := s.Memory.ByUseBytes["streams"]; n > kept {
			return fmt.Errorf("%d bytes of streams are left", n)
		}
		if p.TxErrors != 0 {
			return fmt.Errorf("port: %d frames could not be sent", p.TxErrors)
		}
		return nil
	})
}
