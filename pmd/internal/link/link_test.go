package link

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd/internal/peertest"
	"github.com/fastpath-tcp/fastpath/test/netns"
	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
)

func veth(t *testing.T) *netns.NS {
	t.Helper()
	n := peertest.NS(t)
	peertest.Veth(t, netns.End{NS: n, Name: "one"}, netns.End{NS: n, Name: "two"}, 1400)
	return n
}

func open(t *testing.T, n *netns.NS, name string, changed func()) (l *Link) {
	t.Helper()
	if err := n.Do(func() (err error) { l, err = Open(name, changed); return }); err != nil {
		t.Fatal(err)
	}
	return l
}

func set(t *testing.T, n *netns.NS, args ...string) {
	t.Helper()
	if err := n.Run("ip", append([]string{"link"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	n := veth(t)
	var calls atomic.Int32
	l := open(t, n, "one", func() { calls.Add(1) })
	defer l.Close()
	if l.Name != "one" || l.MTU != 1400 || len(l.MAC) != 6 || !l.Admin || !l.Up() {
		t.Errorf("opened %+v, up %v", l, l.Up())
	}
	set(t, n, "set", "dev", "two", "down") // takes the carrier
	peertest.Until(t, "no carrier", func() bool { return !l.Up() && calls.Load() > 0 })
	set(t, n, "set", "dev", "two", "up")
	peertest.Until(t, "carrier", l.Up)
	set(t, n, "del", "dev", "two")
	peertest.Until(t, "interface gone", func() bool { return !l.Up() })
}

// TestSubscriptionEnds begins with a subscription that has ended, as one does that the kernel cut off.
func TestSubscriptionEnds(t *testing.T) {
	n := veth(t)
	l := open(t, n, "one", nil)
	l.Close() // and with it the first watch
	defer func() {
		close(l.done)
		l.wait.Wait()
	}()
	l.done = make(chan struct{})
	var err error
	if err = n.Do(func() (err error) { l.ns, err = vnetns.Get(); return }); err != nil {
		t.Fatal(err)
	}
	defer l.ns.Close()
	ended := make(chan netlink.LinkUpdate)
	close(ended)
	set(t, n, "set", "dev", "two", "down")
	var calls atomic.Int32
	l.wait.Go(func() { l.watch(ended, make(chan struct{}), func() { calls.Add(1) }) })
	peertest.Until(t, "state read again", func() bool { return calls.Load() > 0 && !l.Up() })
	set(t, n, "set", "dev", "two", "up")
	peertest.Until(t, "carrier", l.Up)
}

func TestOpenErrors(t *testing.T) {
	n := veth(t)
	for name, want := range map[string]string{"three": `no interface "three"`, "lo": "not Ethernet"} {
		err := n.Do(func() error { _, err := Open(name, nil); return err })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s) returned %v, want %q", name, err, want)
		}
	}
}
