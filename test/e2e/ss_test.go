package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestSS compares what `ss -tino` says about a download at the client's end with what `ctl ss` says about it at the daemon's.
func TestSS(t *testing.T) {
	need(t, "ss")
	w := newWorld(t, link{driver: "afpacket", httpKeys: `rate = "16Mbit/s"`})
	d := w.startDownload(8 << 20) // 4 s, in which both are asked
	d.reach(512 << 10)
	kernel := string(w.command(nil, "ss", "-tinoH", "dst", serverIP))
	var ours control.SSReply
	w.must(w.call(control.OpSS, control.SSRequest{LocalPort: portHTTP}, &ours))
	d.finish()
	if len(ours.Conns) != 1 {
		t.Fatalf("ctl ss shows %d connections, want 1: %+v", len(ours.Conns), ours.Conns)
	}
	c := &ours.Conns[0]
	t.Logf("ss: %s\nctl ss: %+v", kernel, *c)
	for _, want := range []string{
		" " + c.Peer.String(), " " + c.Local.String(), " ts ", " sack ", "mss:1448 pmtu:1500", " advmss:1448",
		fmt.Sprintf(" rcvmss:%d", c.MSSBytes), fmt.Sprintf(" wscale:%d,%d ", c.RcvWScale, c.SndWScale),
	} {
		if !strings.Contains(kernel, want) {
			t.Errorf("ss does not show %q", want)
		}
	}
	for _, bad := range []string{"retrans:", "lost:", "rcv_ooopack:", "dsack_dups:"} {
		if strings.Contains(kernel, bad) && c.RetransTotal == 0 {
			t.Errorf("ss shows %s on a clean link", bad)
		}
	}
	if c.State != control.StateEstablished || !c.SACK || !c.Timestamps || !c.WScale || c.Lost != 0 || c.MinRTTNS == 0 || c.AckedBytes < 512<<10 || c.Cong != "cubic" {
		t.Errorf("ctl ss shows %+v", *c)
	}
}
