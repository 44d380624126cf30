package daemon

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// congs counts the connections to local port 7 by congestion control.
func (d *testDaemon) congs() map[string]int {
	d.t.Helper()
	n := map[string]int{}
	r := call[control.SSReply](d, control.OpSS, control.SSRequest{LocalPort: 7, Limit: 1000})
	for i := range r.Conns {
		n[r.Conns[i].Cong]++
	}
	return n
}

// A swap of a part of the flows moves just these, holds for new ones, survives the death of the module's process, and ends with a swap of
// all. A dry run counts what the swap then moves.
func TestSwapSelections(t *testing.T) {
	d := start(t, pair)
	var conns []net.Conn
	dial := func(n int) {
		for range n {
			conns = append(conns, d.dial("10.9.0.1:7"))
		}
	}
	check := func() {
		t.Helper()
		for _, c := range conns {
			b := []byte("hello")
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
				t.Fatalf("echo: %q, %v", b, err)
			}
		}
	}
	swap := func(r control.SwapRequest) *control.SwapReply {
		t.Helper()
		r.Kind, r.DryRun = "cong", true
		dry := call[control.SwapReply](d, control.OpSwap, r)
		r.DryRun = false
		done := call[control.SwapReply](d, control.OpSwap, r)
		if dry.Flows != done.Flows || !dry.DryRun || done.DryRun {
			t.Errorf("the dry run counts %d flows, the swap %d", dry.Flows, done.Flows)
		}
		check()
		return done
	}
	const flows = 100
	dial(flows)
	check()

	// A shadow sees all samples, and has no effect.
	dry := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "reno", DryRun: true, ShadowNS: 1e8})
	if s := dry.Shadow; s == nil || s.Decisions < 2*flows || len(s.Flows) != control.MaxShadowFlows || s.Flows[0].WouldCwndBytes == 0 || dry.Flows != 2*flows {
		t.Errorf("a shadow: %+v", dry)
	}
	if d.congs()["bbr"] != flows {
		t.Errorf("after the shadow: %v", d.congs())
	}
	paced := call[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "pace", Name: "none", DryRun: true, ShadowNS: 1e8})
	if s := paced.Shadow; s == nil || s.Decisions < 2*flows || s.Higher < flows || s.Lower != 0 || s.Flows[0].PacingBPS == 0 || s.Flows[0].WouldPacingBPS != 0 {
		t.Errorf("a shadow of pacing: %+v, %+v", paced, s)
	}
	if _, err := try[control.SwapReply](d, control.OpSwap, control.SwapRequest{Kind: "rtx", Name: "list", ShadowNS: 1e8}); err == nil ||
		!strings.Contains(err.Error(), "cannot be compared") {
		t.Errorf("a shadow of the retransmit queue: %v", err)
	}

	// A share: on the listening port's side, and on the other one's, which is of the same stack here.
	r := swap(control.SwapRequest{Name: "cdg", Percent: 30, Local: netip.MustParsePrefix("10.9.0.1/32"), LocalPort: 7})
	if r.Flows < 10 || r.Flows > 50 || d.congs()["cdg"] != r.Flows || d.congs()["bbr"] != flows-r.Flows {
		t.Errorf("30 %% of %d flows: %+v, %v", flows, r, d.congs())
	}
	share := r.Flows
	dial(flows)
	check()
	if n := d.congs()["cdg"] - share; n < 10 || n > 50 {
		t.Errorf("of %d new flows %d are with cdg", flows, n)
	}
	share = d.congs()["cdg"]
	m := d.module("cong", "cdg")
	if m.State != control.ModuleChosen || !slices.Equal(m.For, []string{"30 % of flows, local 10.9.0.1/32, local port 7"}) || m.Flows != share {
		t.Errorf("the module of the share: %+v", m)
	}

	// Its process dies: the flows come back to it, no others.
	if err := unix.Kill(m.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.event(control.EventReturn, "cong/cdg serves")
	check()
	if back := d.module("cong", "cdg"); back.PID == m.PID || back.Flows != share || d.congs()["cdg"] != share || back.State != control.ModuleChosen {
		t.Errorf("after the restart: %+v, %v; before: %d", back, d.congs(), share)
	}

	// New flows only: all that are there keep what they have. A module that nobody has configured runs as long as it is wanted.
	if r := swap(control.SwapRequest{Name: "reno", NewOnly: true, PeerPort: 9}); r.Flows != 0 || d.congs()["reno"] != 0 {
		t.Errorf("new flows of a port only: %+v, %v", r, d.congs())
	}
	before := d.congs()
	if r := swap(control.SwapRequest{Name: "reno", NewOnly: true}); r.Flows != 0 || d.module("cong", "reno").State != control.ModuleActive {
		t.Errorf("new flows only: %+v", r)
	}
	dial(10)
	check()
	if now := d.congs(); now["reno"] != 10 || now["cdg"] != before["cdg"] || now["bbr"] != before["bbr"] {
		t.Errorf("new flows only: %v, before %v", now, before)
	}
	if m := d.module("cong", "cdg"); m.State != control.ModuleStandby || len(m.For) != 0 {
		t.Errorf("after a swap of all new flows: %+v", m)
	}

	// All.
	if r := swap(control.SwapRequest{Name: "bbr"}); r.Flows == 0 || d.congs()["bbr"] != 2*flows+10 {
		t.Errorf("all flows: %+v, %v", r, d.congs())
	}
	e := d.event(control.EventSwap, "cong/cdg serves 30 % of flows, local 10.9.0.1/32, local port 7")
	if e.Fields["flows"] == "0" || !strings.HasPrefix(e.Fields["for"], "30 %") {
		t.Errorf("event: %+v", e)
	}
	if swaps, moved, _ := d.names.swapCounts(2); swaps != 4 || moved < uint64(share) {
		t.Errorf("counted: %d swaps of %d flows", swaps, moved)
	}
}
