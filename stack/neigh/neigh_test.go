package neigh

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

var (
	ourMAC = wire.MAC{2, 0, 0, 0, 0, 1}
	ourIP  = [4]byte{10, 0, 0, 1}
	peer   = wire.MAC{2, 0, 0, 0, 0, 2}
	peerIP = [4]byte{10, 0, 0, 2}
	other  = wire.MAC{2, 0, 0, 0, 0, 3}
)

// world is a cache with a clock.
type world struct {
	t    testing.TB
	c    *Cache
	now  plugins.Time
	pool *pmd.Pool
}

func newWorld(t testing.TB, cfg Config) *world {
	cfg.MAC = ourMAC
	pool, err := pmd.NewPool("neigh", 64, 512)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, New(cfg, 1e9), 1e9, pool}
	w.c.SetLocals([]wire.Addr{wire.AddrFrom4(ourIP)}, false, w.now)
	t.Cleanup(func() {
		w.free(w.c.Drain())
		if err := pool.CheckLeaks(); err != nil {
			t.Error(err)
		}
		_ = pool.Unmap()
	})
	return w
}

func (w *world) free(b *pmd.Buf) (n int) {
	for b != nil {
		next := b.Next
		w.pool.Put(b)
		b = next
		n++
	}
	return n
}

func (w *world) buf(tag byte) *pmd.Buf {
	b := w.pool.Get()
	b.Append([]byte{tag})
	return b
}

func (w *world) lookup(ip [4]byte) Ref {
	w.t.Helper()
	r, ok := w.c.Lookup(wire.AddrFrom4(ip), w.now)
	if !ok {
		w.t.Fatalf("Lookup(%v) refused", ip)
	}
	return r
}

func (w *world) poll(want ...Output) *pmd.Buf {
	w.t.Helper()
	var out [8]Output
	n, failed := w.c.Poll(w.now, out[:])
	if n != len(want) {
		w.t.Fatalf("Poll sent %d packets %v, want %d", n, out[:n], len(want))
	}
	for i := range want {
		if out[i] != want[i] {
			w.t.Fatalf("Poll sent %+v, want %+v", out[i], want[i])
		}
	}
	return failed
}

func (w *world) state(ip [4]byte, want State) {
	w.t.Helper()
	got := Free
	for _, e := range w.c.Entries(w.now) {
		if e.Addr == wire.AddrFrom4(ip) {
			got = e.State
		}
	}
	if got != want {
		w.t.Fatalf("state of %v is %v, want %v", ip, got, want)
	}
}

func request(dst wire.MAC, ip [4]byte) Output {
	return Output{Dst: dst, ARP: wire.ARP{Op: wire.ARPRequest, SHA: ourMAC, SPA: ourIP, TPA: ip}}
}

func reply(mac wire.MAC, ip [4]byte) *wire.ARP {
	return &wire.ARP{Op: wire.ARPReply, SHA: mac, SPA: ip, THA: ourMAC, TPA: ourIP}
}

func TestResolve(t *testing.T) {
	w := newWorld(t, Config{Queue: 2})
	r := w.lookup(peerIP)
	if _, res := w.c.Resolve(r, w.now); res != Wait {
		t.Fatalf("Resolve of a new entry: %v", res)
	}
	if w.c.Deadline() > w.now {
		t.Fatal("the first request is not due at once")
	}
	if d := w.c.Enqueue(r, w.buf(1)); d != nil {
		t.Fatal("an empty queue refused a packet")
	}
	w.c.Enqueue(r, w.buf(2))
	d := w.c.Enqueue(r, w.buf(3)) // RFC 1122, 2.3.2.2: the latest are kept
	if d == nil || d.Bytes()[0] != 1 || w.free(d) != 1 {
		t.Fatal("the oldest packet was not the one to go")
	}
	w.poll(request(wire.Broadcast, peerIP))
	w.poll() // not twice within a second
	_, send, ready := w.c.Input(w.now, reply(peer, peerIP))
	if send || ready.MAC != peer || ready.Chain == nil || ready.Chain.Bytes()[0] != 2 || w.free(ready.Chain) != 2 {
		t.Fatalf("the answer gave %v, %+v", send, ready)
	}
	mac, res := w.c.Resolve(r, w.now)
	if mac != peer || res != OK {
		t.Fatalf("Resolve: %v, %v", mac, res)
	}
	w.state(peerIP, Reachable)
}

func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t, Config{})
	r := w.lookup(peerIP)
	w.c.Enqueue(r, w.buf(1))
	for range Retries {
		w.poll(request(wire.Broadcast, peerIP))
		if d := w.c.Deadline(); d <= w.now || d > w.now.Add(RetransTime) {
			t.Fatalf("Deadline %d at %d", d, w.now)
		}
		w.now = w.now.Add(RetransTime)
	}
	if failed := w.poll(); w.free(failed) != 1 {
		t.Fatal("the waiting packet did not come back")
	}
	if _, res := w.c.Resolve(r, w.now); res != Gone {
		t.Fatalf("Resolve after failure: %v", res)
	}
	if w.c.Deadline() != plugins.Never {
		t.Fatal("an empty cache has a deadline")
	}
	if again := w.lookup(peerIP); again == r {
		t.Fatal("the reused entry has the old generation")
	}
}

// Life of an entry: reachable, stale, used, delay, probe by unicast, gone.
func TestProbe(t *testing.T) {
	w := newWorld(t, Config{})
	r := w.lookup(peerIP)
	w.poll(request(wire.Broadcast, peerIP))
	w.c.Input(w.now, reply(peer, peerIP))
	w.now = w.now.Add(ReachableTime * 3 / 2)
	w.state(peerIP, Stale)
	if mac, res := w.c.Resolve(r, w.now); res != OK || mac != peer {
		t.Fatal("a stale entry is not used")
	}
	w.state(peerIP, Delay)
	w.now = w.now.Add(DelayTime - 1)
	w.poll()
	w.now++
	for range Retries {
		w.poll(request(peer, peerIP)) // RFC 1122, 2.3.2.1 (2): unicast poll
		w.state(peerIP, Probe)
		if _, res := w.c.Resolve(r, w.now); res != OK {
			t.Fatal("an entry that is probed is not used")
		}
		w.now = w.now.Add(RetransTime)
	}
	w.poll()
	w.state(peerIP, Free)
	if _, res := w.c.Resolve(r, w.now); res != Gone {
		t.Fatal("not gone")
	}
}

func TestConfirm(t *testing.T) {
	w := newWorld(t, Config{})
	r := w.lookup(peerIP)
	w.c.Confirm(r, w.now) // nothing to confirm yet
	w.state(peerIP, Incomplete)
	w.poll(request(wire.Broadcast, peerIP))
	w.c.Input(w.now, reply(peer, peerIP))
	for range 100 { // progress keeps it reachable, without a probe
		w.now = w.now.Add(10 * time.Second)
		w.c.Resolve(r, w.now)
		w.c.Confirm(r, w.now)
		w.poll()
		w.state(peerIP, Reachable)
	}
	w.now = w.now.Add(ReachableTime*3/2 + DelayTime)
	w.c.Resolve(r, w.now)
	w.state(peerIP, Delay)
	w.c.Confirm(r, w.now)
	w.state(peerIP, Reachable)
	w.c.Confirm(Ref{r.Idx, r.Gen + 1}, w.now)
	w.c.Confirm(Ref{999, 1}, w.now)
}

// Negative advice (RFC 1122, 3.3.1.4) makes a confirmed neighbour one that must be confirmed again.
func TestDoubt(t *testing.T) {
	w := newWorld(t, Config{})
	r := w.lookup(peerIP)
	w.c.Doubt(r, w.now) // nothing is known yet
	w.state(peerIP, Incomplete)
	w.poll(request(wire.Broadcast, peerIP))
	w.c.Input(w.now, reply(peer, peerIP))
	w.state(peerIP, Reachable)
	w.c.Doubt(Ref{r.Idx, r.Gen + 1}, w.now)
	w.c.Doubt(Ref{999, 1}, w.now)
	w.c.Resolve(r, w.now)
	w.state(peerIP, Reachable)
	w.c.Doubt(r, w.now)
	if mac, res := w.c.Resolve(r, w.now); mac != peer || res != OK {
		t.Errorf("%v, %v: a doubted neighbour is still used", mac, res)
	}
	w.state(peerIP, Delay)
	w.c.Doubt(r, w.now)
	w.state(peerIP, Delay)
	w.now = w.now.Add(DelayTime)
	w.poll(request(peer, peerIP))
	w.state(peerIP, Probe)
}

func TestUnusedGoes(t *testing.T) {
	w := newWorld(t, Config{})
	r := w.lookup(peerIP)
	w.poll(request(wire.Broadcast, peerIP))
	w.c.Input(w.now, reply(peer, peerIP))
	w.now = w.now.Add(StaleTime)
	w.poll()
	if _, res := w.c.Resolve(r, w.now); res != Gone {
		t.Fatal("an unused entry stays")
	}
}

// RFC 826: learn from requests to us only; update from all.
func TestMerge(t *testing.T) {
	w := newWorld(t, Config{})
	ask := wire.ARP{Op: wire.ARPRequest, SHA: peer, SPA: peerIP, TPA: [4]byte{10, 0, 0, 9}}
	if _, send, _ := w.c.Input(w.now, &ask); send {
		t.Fatal("answered a request for another host")
	}
	w.state(peerIP, Free)
	w.c.Input(w.now, reply(peer, peerIP)) // a reply that nobody asked for
	w.state(peerIP, Free)
	ask.TPA = ourIP
	out, send, _ := w.c.Input(w.now, &ask)
	want := Output{Dst: peer, ARP: wire.ARP{Op: wire.ARPReply, SHA: ourMAC, SPA: ourIP, THA: peer, TPA: peerIP}}
	if !send || out != want {
		t.Fatalf("answer %+v, %v", out, send)
	}
	w.state(peerIP, Stale)
	r := w.lookup(peerIP)
	w.now = w.now.Add(LockTime)
	moved := wire.ARP{Op: wire.ARPRequest, SHA: other, SPA: peerIP, TPA: [4]byte{10, 0, 0, 9}}
	w.c.Input(w.now, &moved)
	if mac, _ := w.c.Resolve(r, w.now); mac != other {
		t.Fatalf("the neighbour's new address was not taken: %v", mac)
	}
	w.c.Input(w.now, reply(peer, peerIP)) // flapping
	if mac, _ := w.c.Resolve(r, w.now); mac != other || w.c.Stats().Locked != 1 {
		t.Fatal("the address changed twice within a second")
	}
	garp := wire.ARP{Op: wire.ARPRequest, SHA: peer, SPA: peerIP, TPA: peerIP}
	w.c.Input(w.now, &garp)
	if mac, _ := w.c.Resolve(r, w.now); mac != peer {
		t.Fatal("a gratuitous packet was not taken")
	}
}

func TestProbeAndConflict(t *testing.T) {
	w := newWorld(t, Config{})
	probe := wire.ARP{Op: wire.ARPRequest, SHA: peer, TPA: ourIP}
	if out, send, _ := w.c.Input(w.now, &probe); !send || out.ARP.TPA != [4]byte{} || out.Dst != peer {
		t.Fatal("a probe for our address is not answered") // RFC 5227, 2.1.1
	}
	if len(w.c.Entries(w.now)) != 0 {
		t.Fatal("learned 0.0.0.0")
	}
	thief := wire.ARP{Op: wire.ARPRequest, SHA: other, SPA: ourIP, TPA: ourIP}
	if out, send, _ := w.c.Input(w.now, &thief); !send || out != request(wire.Broadcast, ourIP) {
		t.Fatal("our address is not defended") // RFC 5227, 2.4
	}
	if _, send, _ := w.c.Input(w.now.Add(defendInterval-1), &thief); send {
		t.Fatal("defended twice within DEFEND_INTERVAL")
	}
	if _, send, _ := w.c.Input(w.now.Add(defendInterval), &thief); !send || w.c.Stats().Conflicts != 3 {
		t.Fatal("not defended after DEFEND_INTERVAL")
	}
	mine := wire.ARP{Op: wire.ARPRequest, SHA: ourMAC, SPA: ourIP, TPA: ourIP}
	if _, send, _ := w.c.Input(w.now, &mine); send || w.c.Stats().Conflicts != 3 {
		t.Fatal("our own packet is a conflict")
	}
}

func TestAnnounce(t *testing.T) {
	w := newWorld(t, Config{})
	w.c.SetLocals(nil, true, w.now)
	w.c.SetLocals([]wire.Addr{wire.AddrFrom4(ourIP)}, true, w.now)
	for range announceNum {
		w.poll(request(wire.Broadcast, ourIP))
		w.poll()
		w.now = w.now.Add(announceInterval)
	}
	w.poll()
}

// TestAnnounceAgain: after the link came back addresses of both families are announced anew, twice.
func TestAnnounceAgain(t *testing.T) {
	w := newWorld(t, Config{})
	six := wire.Addr{0: 0xfd, 15: 7}
	w.c.SetLocals([]wire.Addr{wire.AddrFrom4(ourIP), six}, false, w.now)
	w.poll()
	w.c.Announce(w.now)
	for range announceNum {
		if w.c.Deadline() != w.now {
			t.Fatalf("due at %v, want %v", w.c.Deadline(), w.now)
		}
		var out [4]Output
		n, _ := w.c.Poll(w.now, out[:])
		if n != 2 {
			t.Fatalf("%d announcements", n)
		}
		for i := range out[:n] {
			o := &out[i]
			arp := o.To == (wire.Addr{}) && o.Dst == wire.Broadcast && o.ARP.Op == wire.ARPRequest && o.ARP.SPA == ourIP && o.ARP.TPA == ourIP
			nd := o.To == wire.AllNodes && o.Src == six && o.ND.Type == wire.ICMP6NeighborAdv && o.ND.Target == six && o.ND.LLA == ourMAC &&
				o.ND.Flags == wire.NDOverride && o.Dst == wire.AllNodes.GroupMAC()
			if !arp && !nd {
				t.Errorf("%+v", o)
			}
		}
		w.now = w.now.Add(announceInterval)
	}
	w.poll()
	if w.c.Deadline() != plugins.Never {
		t.Error("more to come")
	}
}

func TestIgnored(t *testing.T) {
	w := newWorld(t, Config{})
	bad := []wire.ARP{
		{Op: 1, SHA: wire.Broadcast, SPA: peerIP, TPA: ourIP}, {Op: 1, SPA: peerIP, TPA: ourIP},
		{Op: 1, SHA: peer, SPA: [4]byte{224, 0, 0, 1}, TPA: ourIP}, {Op: 1, SHA: peer, SPA: [4]byte{255, 255, 255, 255}, TPA: ourIP},
		{Op: 1, SHA: peer, SPA: [4]byte{127, 0, 0, 1}, TPA: ourIP}, {Op: 1, SHA: peer, SPA: [4]byte{0, 0, 0, 1}, TPA: ourIP},
	}
	for i := range bad {
		if _, send, _ := w.c.Input(w.now, &bad[i]); send {
			t.Errorf("answered %+v", bad[i])
		}
	}
	if s := w.c.Stats(); s.Ignored != uint64(len(bad)) || s.Entries != 0 {
		t.Fatalf("%+v", s)
	}
}

// A full cache evicts the stale, then the least recently used, and never what was asked within a second.
func TestBounded(t *testing.T) {
	w := newWorld(t, Config{Max: 4})
	ip := func(i int) [4]byte { return [4]byte{10, 0, 1, byte(i)} }
	for i := range 4 {
		if _, ok := w.c.LookupGateway(wire.AddrFrom4(ip(i)), w.now); !ok {
			t.Fatal("no place")
		}
	}
	w.poll(request(wire.Broadcast, ip(0)), request(wire.Broadcast, ip(1)), request(wire.Broadcast, ip(2)), request(wire.Broadcast, ip(3)))
	if _, ok := w.c.LookupGateway(wire.AddrFrom4(ip(9)), w.now); ok {
		t.Fatal("an incomplete entry was evicted")
	}
	for i := range 4 {
		w.c.Input(w.now, reply(peer, ip(i)))
	}
	if _, ok := w.c.Lookup(wire.AddrFrom4(ip(9)), w.now); ok {
		t.Fatal("an entry was evicted within a second of its request")
	}
	w.now = w.now.Add(RetransTime)
	for _, i := range []int{3, 0, 2, 1} {
		w.now++
		w.c.Resolve(w.lookup(ip(i)), w.now)
	}
	w.lookup(ip(9))
	w.state(ip(3), Free)
	w.state(ip(0), Reachable)
	w.lookup(ip(8))
	w.state(ip(0), Free)
	if s := w.c.Stats(); s.Entries != 4 || s.Evicted != 2 || s.Full != 2 {
		t.Fatalf("%+v", s)
	}
}

// What does not fit into Poll's output comes with the next call.
func TestPollFull(t *testing.T) {
	w := newWorld(t, Config{})
	seen := map[[4]byte]int{}
	for i := range 10 {
		w.lookup([4]byte{10, 0, 2, byte(i)})
	}
	for range 4 {
		var out [3]Output
		n, _ := w.c.Poll(w.now, out[:])
		for _, o := range out[:n] {
			seen[o.ARP.TPA]++
		}
	}
	if len(seen) != 10 || w.c.Stats().Requests != 10 {
		t.Fatalf("%d requests for %d hosts", w.c.Stats().Requests, len(seen))
	}
}

// No sequence of inputs breaks the cache, leaks a packet, or asks for a host twice within a second.
func FuzzCache(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 0, 3, 1, 1, 4, 9, 0, 5, 1, 2, 6, 1, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWorld(t, Config{Max: 4, Queue: 1})
		refs := map[byte]Ref{}
		asked := map[[4]byte]plugins.Time{}
		for ; len(ops) >= 3; ops = ops[3:] {
			id, v := ops[1]&7, ops[2]
			ip := [4]byte{10, 0, 0, id}
			switch ops[0] % 7 {
			case 0:
				if r, ok := w.c.Lookup(wire.AddrFrom4(ip), w.now); ok {
					refs[id] = r
				}
			case 1:
				w.free(w.c.Enqueue(refs[id], w.buf(v)))
			case 2:
				a := wire.ARP{Op: uint16(v&1) + 1, SHA: wire.MAC{2, 0, 0, 0, 0, v >> 4}, SPA: ip, TPA: [4]byte{10, 0, 0, v & 7}}
				if v&8 != 0 {
					a.THA = ourMAC
				}
				_, _, ready := w.c.Input(w.now, &a)
				w.free(ready.Chain)
			case 3:
				w.now = w.now.Add(time.Duration(v) << (20 + ops[1]>>3&15))
			case 4:
				w.c.Resolve(refs[id], w.now)
			case 5:
				w.c.Confirm(refs[id], w.now)
			default:
				out := make([]Output, v&3)
				n, failed := w.c.Poll(w.now, out)
				w.free(failed)
				for _, o := range out[:n] {
					if last, ok := asked[o.ARP.TPA]; ok && w.now-last < plugins.Time(RetransTime) {
						t.Fatalf("asked for %v after %d ns", o.ARP.TPA, w.now-last)
					}
					asked[o.ARP.TPA] = w.now
				}
			}
			if s := w.c.Stats(); s.Entries > 4 {
				t.Fatalf("%d entries", s.Entries)
			}
		}
	})
}

func TestResolveAllocs(t *testing.T) {
	w := newWorld(t, Config{})
	r := w.lookup(peerIP)
	w.c.Input(w.now, reply(peer, peerIP))
	if n := testing.AllocsPerRun(1000, func() {
		w.now += 1e6
		w.c.Resolve(r, w.now)
		w.c.Confirm(r, w.now)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkResolve(b *testing.B) {
	w := newWorld(b, Config{})
	r := w.lookup(peerIP)
	w.c.Input(w.now, reply(peer, peerIP))
	for b.Loop() {
		if _, res := w.c.Resolve(r, w.now); res != OK {
			b.Fatal(res)
		}
	}
}

// Half of the cache may wait for answers: addresses that do not exist leave room for neighbours that speak to us, and for gateways.
func TestIncompleteBounded(t *testing.T) {
	w := newWorld(t, Config{Max: 8})
	ip := func(i int) [4]byte { return [4]byte{10, 0, 1, byte(i)} }
	for i := range 4 {
		w.lookup(ip(i))
	}
	if _, ok := w.c.Lookup(wire.AddrFrom4(ip(4)), w.now); ok {
		t.Fatal("a fifth entry waits")
	}
	if _, ok := w.c.LookupGateway(wire.AddrFrom4(ip(5)), w.now); !ok {
		t.Fatal("no place for a gateway")
	}
	w.c.Input(w.now, &wire.ARP{Op: wire.ARPRequest, SHA: peer, SPA: ip(6), TPA: ourIP})
	w.state(ip(6), Stale)
	for i := range 2 {
		w.c.Input(w.now, reply(peer, ip(i)))
	}
	w.lookup(ip(4))
	if _, ok := w.c.Lookup(wire.AddrFrom4(ip(7)), w.now); ok {
		t.Fatal("a fifth entry waits")
	}
}

// An entry that makes room is found without a walk over the whole cache, and every entry gets its turn.
func TestVictimIsFoundSoon(t *testing.T) {
	w := newWorld(t, Config{Max: 1024})
	learn := func(i int) {
		w.now++
		w.c.Input(w.now, &wire.ARP{Op: wire.ARPRequest, SHA: peer, SPA: [4]byte{10, 1, byte(i >> 8), byte(i)}, TPA: ourIP})
	}
	for i := range 1024 {
		learn(i)
	}
	w.now = w.now.Add(RetransTime)
	before := w.c.hand
	for i := range 100 {
		learn(2000 + i)
	}
	if walked := w.c.hand - before; walked > 100*victimSample {
		t.Errorf("%d entries were looked at for 100 places", walked)
	}
	if s := w.c.Stats(); s.Entries != 1024 || s.Evicted != 100 {
		t.Errorf("%+v", s)
	}
}
