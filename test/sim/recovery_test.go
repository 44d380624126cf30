package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/report"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// path100 is a link of 100 Mbit/s with 20 ms of round trip and room for all that is ever sent.
const path100 = `
duration = "120s"
[link.both]
rate = "100Mbit/s"
queue = "40MB"
delay = "10ms"
`

// recovery is one way to lose, delay or change segments, and what must come of it.
type recovery struct {
	name string
	toml string // added to path100
	flow string // keys of the flow; default: 5 MB of bulk
	seed uint64 // default 1
	// noRTO: rules other than the timeout repair it. nothingLost: the window must be as if nothing had happened.
	noRTO, nothingLost bool
	undone             bool  // a reduction is taken back
	reneged            int64 // so many segments at most the peer drops that it had SACKed, or has no memory for
	late               bool  // some segments come so late that no rule can wait for them: they may be sent again
	check              func(f *report.Flow) string
}

// frames lists the frames from first to last: a flow sends full segments from frame 4 on, after an ARP request, its SYN and an ACK.
func frames(first, last int) string {
	var b strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return "[link.a_to_b]\nloss.frames = [" + b.String() + "]\n"
}

// An IW10 flow that doubles has sent 3 + 10·(2^k - 1) frames when round k ends.
var recoveries = []recovery{
	{name: "nothing", noRTO: true, nothingLost: true},
	{name: "loss 0.1%", toml: "[link.a_to_b]\nloss.random = \"0.1%\"\n", noRTO: true},
	{name: "loss 1%", toml: "[link.a_to_b]\nloss.random = \"1%\"\n", noRTO: true},
	{name: "loss 5%", toml: "[link.a_to_b]\nloss.random = \"5%\"\n", noRTO: true},
	{name: "loss 10%", toml: "[link.a_to_b]\nloss.random = \"10%\"\n", flow: "bytes = \"1MB\"",
		// Retransmissions are lost too while the window is too small for anything to tell of it.
		check: func(f *report.Flow) string {
			return want(f.Timeouts <= f.Dropped/10, "one timeout for ten losses at most")
		}},
	{name: "burst of 1", toml: frames(100, 100), noRTO: true},
	{name: "burst of 10", toml: frames(100, 109), noRTO: true},
	{name: "burst of half a window", toml: frames(100, 150), noRTO: true},
	{name: "a whole flight", toml: frames(74, 153), // the fourth, and what follows it before the timeout
		check: func(f *report.Flow) string { return want(f.Timeouts <= 1, "at most one timeout") }},
	// 100 segments of 1448 bytes: frames 4 to 103; the FIN follows.
	{name: "last segment", toml: frames(103, 104), flow: "bytes = \"144800B\"", noRTO: true,
		check: func(f *report.Flow) string { return want(f.Probes == 1, "one tail-loss probe repairs it") }},
	{name: "last flight", toml: frames(74, 104), flow: "bytes = \"144800B\"", noRTO: true,
		check: func(f *report.Flow) string { return want(f.Probes == 1, "one tail-loss probe finds it") }},
	{name: "last but three", toml: frames(100, 100), flow: "bytes = \"144800B\"", noRTO: true},
	{name: "half of the acknowledgements", toml: "[link.b_to_a]\nloss.random = \"50%\"\n", noRTO: true,
		check: func(f *report.Flow) string { return want(f.Retransmits <= 3, "no more than three sent again") }},
	// A segment takes 0.12 ms on the link: held back by so much, that many overtake it.
	{name: "reordering by 1", toml: "[link.a_to_b]\nreorder = { chance = \"2%\", by = \"150us\" }\n", noRTO: true},
	{name: "reordering by 3", toml: "[link.a_to_b]\nreorder = { chance = \"2%\", by = \"400us\" }\n", noRTO: true},
	{name: "reordering by 30", toml: "[link.a_to_b]\nreorder = { chance = \"2%\", by = \"3600us\" }\n", noRTO: true},
	{name: "reordering by 1.5 RTT", toml: "[link.a_to_b]\nreorder = { chance = \"0.5%\", by = \"30ms\" }\n", noRTO: true, late: true, undone: true},
	{name: "duplication", toml: "[link.both]\nduplicate = \"10%\"\n", noRTO: true, nothingLost: true},
	{name: "route change", flow: "stop = \"15s\"", noRTO: true, nothingLost: true, toml: `keep_order = true
[[event]]
at = "3s"
set = { delay = "100ms" }
[[event]]
at = "8s"
set = { delay = "10ms" }
`},
	// On the shorter route new segments overtake a whole flight of the longer one: more than RACK's window can wait for.
	{name: "route change that reorders", flow: "stop = \"15s\"", noRTO: true, undone: true, toml: `
[[event]]
at = "3s"
set = { delay = "100ms" }
[[event]]
at = "8s"
set = { delay = "10ms" }
`, late: true},
	// The acknowledgements wait for a second, nothing is lost: the timeout must be found to be spurious, by timestamps or by F-RTO.
	{name: "stall", flow: "stop = \"10s\"", undone: true, toml: stall},
	{name: "stall without timestamps", flow: "stop = \"10s\"", undone: true, toml: stall + "[host.a]\nno_timestamps = true\n"},
	// When what fills the hole comes, the peer has no memory for it but that of what came out of order (RFC 2018, 8).
	{name: "SACK reneging", toml: frames(4, 20) + noMemory, reneged: 29 + 13,
		check: func(f *report.Flow) string { return want(f.Timeouts == 1, "one timeout") }},
	// Seed 1 loses the very segment behind a recovery; without SACK only the timeout can tell (RFC 6582, 3.2, step 2, and 4).
	{name: "no SACK, loss 1%", toml: "[link.a_to_b]\nloss.random = \"1%\"\n[host.b]\nno_sack = true\n", noRTO: true, seed: 2},
	{name: "no SACK, burst of 3", toml: frames(100, 102) + "[host.b]\nno_sack = true\n", noRTO: true},
	{name: "no timestamps, loss 1%", toml: "[link.a_to_b]\nloss.random = \"1%\"\n[host.b]\nno_timestamps = true\n", noRTO: true},
	{name: "neither, loss 1%", toml: "[link.a_to_b]\nloss.random = \"1%\"\n[host.b]\nno_sack = true\nno_timestamps = true\n", noRTO: true, seed: 2},
}

const stall = `
[[event]]
at = "2s"
path = "b_to_a"
set = { delay = "1010ms", keep_order = true }
[[event]]
at = "2001ms"
path = "b_to_a"
set = { delay = "10ms", keep_order = true }
`

const noMemory = `
[host.a]
initial_window = 100
[host.b]
recv_start = "256KiB"
[[event]]
at = "55ms"
host = "b"
memory = "128KiB"
[[event]]
at = "62ms"
host = "b"
memory = "0B"
`

func want(ok bool, what string) string {
	if ok {
		return ""
	}
	return what
}

// TestRecovery: whatever happens to segments, the bytes arrive, little more than what was lost is sent again, timeouts come only where
// no other rule can help, and a window that was reduced for nothing comes back. With both retransmit queues, the figures are the same.
func TestRecovery(t *testing.T) {
	for _, c := range recoveries {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var first report.Flow
			for i, queue := range []string{"btree", "list"} {
				r, undos := c.run(t, queue, "", i == 0)
				f := &r.Report.Flows[0]
				if i == 0 {
					c.judge(t, &r.Report)
					judgeWindow(t, f, undos)
					judgeEnd(t, f, undos)
					first = *f
				} else if f.Rtx = first.Rtx; *f != first {
					t.Errorf("with %s: %+v\nwith btree: %+v", queue, *f, first)
				}
			}
		})
	}
}

func (c *recovery) run(t *testing.T, queue, cc string, windows bool) (*Result, []Undo) {
	t.Helper()
	flow := c.flow
	if flow == "" {
		flow = "bytes = \"5MB\""
	}
	text := path100 + c.toml + "[[flow]]\nkind = \"bulk\"\n" + flow + "\n"
	text = strings.Replace(text, "[link.both]\nduplicate", "duplicate", 1)
	s, err := Parse("recovery.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.Seed = max(c.seed, 1)
	if err := s.Override(plugins.Rtx, Use{Use: queue}); err != nil {
		t.Fatal(err)
	}
	if cc != "" {
		if err := s.Override(plugins.Cong, Use{Use: cc}); err != nil {
			t.Fatal(err)
		}
	}
	o, undos := Options{}, []Undo(nil)
	if windows {
		o.Undone = func(_ int, u Undo) { undos = append(undos, u) }
	}
	r := run(t, s, o)
	if !r.Report.Complete {
		t.Errorf("not complete: %+v", r.Report.Events)
	}
	return r, undos
}

func (c *recovery) judge(t *testing.T, r *report.Sim) {
	t.Helper()
	f := &r.Flows[0]
	t.Logf("%d bytes, %d sent again for %d dropped, %d recoveries, %d undone, %d timeouts, %d probes, %d kbit/s", f.PayloadBytes, f.Retransmits,
		f.Dropped, f.Recoveries, f.Undos, f.Timeouts, f.Probes, f.GoodputBPS/1000)
	if !f.Verified {
		t.Error("the bytes are not those that were sent")
	}
	lost := f.Dropped
	if c.late {
		lost += max(r.Links[0].Reordered, f.CwndMaxBytes/1448)
	}
	if c.reneged > 0 {
		lost += c.reneged
		if !slices.ContainsFunc(r.Events, func(e report.Event) bool { return e.Kind == "renege" }) {
			t.Errorf("no reneging: %+v", r.Events)
		}
	}
	if f.Retransmits > lost*6/5+3 {
		t.Errorf("%d segments sent again for %d dropped or late", f.Retransmits, lost)
	}
	if c.noRTO && f.Timeouts != 0 {
		t.Errorf("%d timeouts", f.Timeouts)
	}
	if c.nothingLost && (f.Retransmits != 0 || f.Recoveries != f.Undos) {
		t.Errorf("nothing was lost: %d sent again, %d recoveries, %d undone", f.Retransmits, f.Recoveries, f.Undos)
	}
	if c.undone && f.Undos == 0 {
		t.Errorf("%d recoveries, %d timeouts, nothing was undone", f.Recoveries, f.Timeouts)
	}
	if c.check != nil {
		if fault := c.check(f); fault != "" {
			t.Errorf("not so: %s; %+v", fault, *f)
		}
	}
}

// judgeWindow: a reduction that is taken back leaves the window no smaller than it was.
func judgeWindow(t *testing.T, f *report.Flow, undos []Undo) {
	t.Helper()
	if int64(len(undos)) != f.Undos {
		t.Errorf("%d windows for %d undos", len(undos), f.Undos)
	}
	for _, u := range undos {
		if u.Before == 0 || u.After < u.Before {
			t.Errorf("the window was %d bytes before a reduction for nothing, and %d after that was taken back", u.Before, u.After)
		}
	}
}

// judgeEnd: where nothing was lost, every reduction is taken back, and at the end the window is the largest that it was.
func judgeEnd(t *testing.T, f *report.Flow, undos []Undo) {
	t.Helper()
	if f.Dropped > 0 {
		return
	}
	if f.Recoveries+f.Timeouts != f.Undos {
		t.Errorf("nothing was lost: %d recoveries, %d timeouts, %d undone", f.Recoveries, f.Timeouts, f.Undos)
	}
	for _, u := range undos {
		if f.CwndBytes < u.Before {
			t.Errorf("nothing was lost, the window was %d bytes, and at the end %d", u.Before, f.CwndBytes)
		}
	}
}

// TestUndoRestoresWindow: so it is with every congestion control.
func TestUndoRestoresWindow(t *testing.T) {
	for _, c := range []recovery{
		{name: "reordering", toml: "[link.a_to_b]\nreorder = { chance = \"0.5%\", by = \"30ms\" }\n"},
		{name: "stall", flow: "stop = \"4s\"", toml: stall + "[host.a]\nsend_buffer = \"512KiB\"\n"}, // so that the queue does not make the RTO longer than the stall
	} {
		for _, cc := range []string{"reno", "cubic", "bbr", "bbr3", "cdg", "dctcp"} {
			t.Run(c.name+", "+cc, func(t *testing.T) {
				t.Parallel()
				r, undos := c.run(t, "btree", cc, true)
				judgeWindow(t, &r.Report.Flows[0], undos)
				if len(undos) == 0 {
					t.Error("nothing was undone")
				}
			})
		}
	}
}

// TestRenege: a peer that drops what it had SACKed (RFC 2018, 8) gets all of it again after one timeout, with every byte in its place.
func TestRenege(t *testing.T) {
	r := run(t, load(t, "renege"), Options{})
	f := &r.Report.Flows[0]
	if !r.Report.Complete || !f.Verified || f.PayloadBytes != 5e6 || f.Timeouts != 1 {
		t.Errorf("%+v", f)
	}
	golden(t, "renege", r)
}

// TestBursts: however many ranges change in a burst, all are reported (RFC 2018, 4), so that nothing is sent again but what was lost.
func TestBursts(t *testing.T) {
	t.Parallel()
	r := run(t, load(t, "bursts"), Options{})
	f, acks := &r.Report.Flows[0], &r.Report.Links[1]
	t.Logf("%d sent again for %d dropped of %d, %d acknowledgements", f.Retransmits, f.Dropped, f.Segments, acks.Frames)
	if f.Dropped < 1000 || f.Retransmits > f.Dropped*6/5+3 || f.Timeouts != 0 || acks.Frames > f.Segments/2 {
		t.Errorf("%d sent again for %d dropped of %d, %d timeouts, %d acknowledgements", f.Retransmits, f.Dropped, f.Segments, f.Timeouts, acks.Frames)
	}
	golden(t, "bursts", r)
}
