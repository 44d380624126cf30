package window

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

const mss = 1000

func open(cwnd, ssthresh uint32) (*Flow, *cong.Sample, *cong.Decision) {
	f := &Flow{}
	in := &cong.Sample{Kind: cong.KindOpen, MSS: mss, SRTT: 100 * time.Millisecond, Now: plugins.Time(time.Second)}
	out := &cong.Decision{Cwnd: cwnd, Ssthresh: ssthresh}
	f.Join(in, out)
	in.Kind = cong.KindAck
	return f, in, out
}

func TestInitial(t *testing.T) {
	// RFC 6928, 2: min(10·MSS, max(2·MSS, 14600)).
	for mss, want := range map[uint32]uint32{536: 5360, 1460: 14600, 1461: 14600, 7300: 14600, 8948: 17896} {
		if got := Initial(mss); got != want {
			t.Errorf("MSS %d: %d, want %d", mss, got, want)
		}
	}
}

func TestObserve(t *testing.T) {
	type step struct {
		ca    uint8
		flags uint16
		want  Step
	}
	grow := Step{Grow: true}
	const enter, exit, undo = cong.FlagEnter, cong.FlagExit, cong.FlagUndo
	for name, steps := range map[string][]step{
		"open":            {{cong.CAOpen, 0, grow}, {cong.CADisorder, 0, grow}, {cong.CAOpen, 0, grow}},
		"recovery":        {{cong.CARecovery, enter, Step{Reduce: true}}, {cong.CARecovery, 0, Step{}}, {cong.CAOpen, exit, Step{Exit: true}}, {cong.CAOpen, 0, grow}},
		"one batch":       {{cong.CAOpen, enter | exit, Step{Reduce: true, Exit: true}}, {cong.CAOpen, 0, grow}},
		"next episode":    {{cong.CARecovery, enter, Step{Reduce: true}}, {cong.CARecovery, enter | exit, Step{Reduce: true}}},
		"CWR, then loss":  {{cong.CACWR, enter, Step{Reduce: true}}, {cong.CARecovery, enter, Step{}}, {cong.CAOpen, exit, Step{Exit: true}}},
		"undone":          {{cong.CARecovery, enter, Step{Reduce: true}}, {cong.CAOpen, exit | undo, Step{Undo: true, Exit: true}}},
		"flag was missed": {{cong.CARecovery, 0, Step{Reduce: true}}, {cong.CARecovery, 0, Step{}}, {cong.CAOpen, 0, Step{Exit: true}}},
	} {
		f, in, out := open(10*mss, cong.InfiniteSsthresh)
		for i, s := range steps {
			in.CA, in.Flags = s.ca, s.flags
			got := f.Observe(in)
			if got != s.want {
				t.Errorf("%s, step %d: %+v, want %+v", name, i, got, s.want)
			}
			if got.Reduce {
				f.Cut(out, 5*mss, 5*mss)
			}
			if got.Exit {
				f.Finish(out)
			}
		}
	}
}

func TestTimeoutOncePerEpisode(t *testing.T) {
	f, in, out := open(10*mss, cong.InfiniteSsthresh)
	for i, want := range []bool{true, false, false} {
		in.CA = cong.CALoss
		if got := f.Timeout(in, out); got != want {
			t.Errorf("timeout %d: %v", i+1, got)
		}
	}
	in.CA = cong.CAOpen
	if s := f.Observe(in); s.Exit || !s.Grow { // slow start goes on: no jump to ssthresh
		t.Errorf("after the loss episode: %+v", s)
	}
	in.CA = cong.CALoss
	if !f.Timeout(in, out) {
		t.Error("a new episode is not taken as one")
	}
	in.Flags = cong.FlagEnter
	if !f.Timeout(in, out) {
		t.Error("an episode that the engine calls new is not taken as one")
	}
}

func TestUndoRestores(t *testing.T) {
	f, in, out := open(40*mss, 30*mss)
	in.CA, in.Flags = cong.CARecovery, cong.FlagEnter
	f.Observe(in)
	f.Cut(out, 20*mss, 20*mss)
	if out.Cwnd != 20*mss || out.Ssthresh != 20*mss {
		t.Fatalf("cut: %+v", out)
	}
	if !f.Undo(out) || out.Cwnd != 40*mss || out.Ssthresh != 30*mss {
		t.Errorf("undo: %+v", out)
	}
	if f.Finish(out); out.Cwnd != 40*mss {
		t.Errorf("the end of the reduction takes the undo back: %+v", out)
	}
	if f.Undo(out) {
		t.Error("undone twice")
	}
	// Of repeated timeouts the first is undone.
	in.Flags = 0
	f.Timeout(in, out)
	out.Cwnd, out.Ssthresh = mss, 20*mss
	f.Timeout(in, out)
	if f.Undo(out); out.Cwnd != 40*mss || out.Ssthresh != 30*mss {
		t.Errorf("undo of a timeout: %+v", out)
	}
}

func TestCredit(t *testing.T) {
	f, in, out := open(10*mss, cong.InfiniteSsthresh)
	credit := func(ca uint8, acked uint32) uint32 {
		in.CA, in.Acked = ca, acked
		return f.Credit(in, out)
	}
	if got := credit(cong.CAOpen, 2*mss); got != 2*mss {
		t.Errorf("in order: %d", got)
	}
	// RFC 3042: the first out-of-order deliveries change nothing, order restored gives the credit.
	if a, b, c := credit(cong.CADisorder, mss), credit(cong.CADisorder, mss), credit(cong.CAOpen, mss); a != 0 || b != 0 || c != 3*mss {
		t.Errorf("reordering: %d %d %d", a, b, c)
	}
	if got := credit(cong.CAOpen, mss); got != mss {
		t.Errorf("credit given twice: %d", got)
	}
	// A path that reorders all the time: once per window.
	total := uint32(0)
	for range 25 {
		total += credit(cong.CADisorder, mss)
	}
	if total != 20*mss {
		t.Errorf("lasting disorder: %d of 25 segments credited", total/mss)
	}
	// A reduction takes what is held.
	f.Cut(out, 5*mss, 5*mss)
	if got := credit(cong.CAOpen, mss); got != mss {
		t.Errorf("after a reduction: %d", got)
	}
}

func TestLimited(t *testing.T) {
	for _, c := range []struct {
		cwnd, ssthresh, prior uint32
		flags                 uint16
		want                  bool
	}{
		{10, 100, 0, cong.FlagCwndLimited, true},
		{10, 100, 5, 0, false}, // exactly half used
		{10, 100, 6, 0, true},
		{100, 100, 99, 0, false}, // congestion avoidance wants all of it
		{100, 100, 99, cong.FlagCwndLimited, true},
	} {
		in := &cong.Sample{PriorInFlight: c.prior, Flags: c.flags}
		if got := Limited(in, &cong.Decision{Cwnd: c.cwnd, Ssthresh: c.ssthresh}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestSlowStartAndAvoid(t *testing.T) {
	f, _, out := open(10*mss, 16*mss)
	if left := SlowStart(out, 4*mss); left != 0 || out.Cwnd != 14*mss {
		t.Errorf("slow start: cwnd %d, left %d", out.Cwnd, left)
	}
	if left := SlowStart(out, 5*mss); left != 3*mss || out.Cwnd != 16*mss {
		t.Errorf("at ssthresh: cwnd %d, left %d", out.Cwnd, left)
	}
	// RFC 3465, 2.1: one segment for each window of bytes, whatever the samples' sizes.
	for _, acked := range []uint32{1, 499, 1500, 32000} {
		f, _, out = open(16*mss, 16*mss)
		for n := uint32(0); n < 16*mss/acked*acked; n += acked {
			f.Avoid(out, acked, mss)
		}
		f.Avoid(out, 16*mss%acked, mss)
		if acked <= 16*mss && out.Cwnd != 17*mss {
			t.Errorf("a window in pieces of %d: cwnd %d", acked, out.Cwnd)
		}
	}
	f, _, out = open(16*mss, 16*mss)
	if f.Avoid(out, 48*mss, mss); out.Cwnd != 19*mss {
		t.Errorf("three windows at once: cwnd %d", out.Cwnd)
	}
	f, _, out = open(Max-1, 2*mss)
	if f.Avoid(out, Max, mss); out.Cwnd != Max {
		t.Errorf("cwnd %d, want the maximum", out.Cwnd)
	}
}

// RFC 2861, 3.2: half for each timeout of idle time, down to the initial window; three quarters as threshold.
func TestRestart(t *testing.T) {
	const rto = 300 * time.Millisecond // 100 ms + the floor of 200 ms; the first variance is 50 ms
	for _, c := range []struct {
		idle time.Duration
		want uint32
		did  bool
	}{
		{rto, 100, false},
		{rto + 1, 50, true}, // (idle-1)/rto = 1 timeout has passed
		{2*rto + 1, 25, true},
		{3*rto + 1, 12, true},
		{4*rto + 1, 10, true}, // the initial window
		{time.Hour, 10, true},
	} {
		f, in, out := open(100*mss, 60*mss)
		in.Kind = cong.KindRestart
		in.Now = in.Now.Add(c.idle)
		if did := f.Restart(in, out, mss); did != c.did || out.Cwnd/mss != c.want {
			t.Errorf("idle %v: %v, cwnd %d, want %d", c.idle, did, out.Cwnd/mss, c.want)
		}
		if want := uint32(60 * mss); c.did {
			want = 75 * mss
			if out.Ssthresh != want {
				t.Errorf("idle %v: ssthresh %d, want %d", c.idle, out.Ssthresh, want)
			}
		}
	}
	// A window below the initial one stays.
	f, in, out := open(4*mss, 4*mss)
	in.Now = in.Now.Add(time.Hour)
	if f.Restart(in, out, mss); out.Cwnd != 4*mss {
		t.Errorf("small window: %d", out.Cwnd)
	}
}

// The idle time counts from the last transmission that is known.
func TestRestartCountsFromLastSend(t *testing.T) {
	f, in, out := open(100*mss, cong.InfiniteSsthresh)
	in.Flags = cong.FlagRateValid
	in.SendTime = in.Now.Add(time.Second)
	f.Observe(in)
	in.Now = in.SendTime.Add(200 * time.Millisecond)
	if f.Restart(in, out, mss) {
		t.Error("200 ms after a transmission count as idle")
	}
}

func TestValidate(t *testing.T) {
	f, in, out := open(100*mss, 60*mss)
	in.Flags, in.PriorInFlight = cong.FlagAppLimited, 20*mss
	f.Validate(in, out, false, mss)
	in.Now = in.Now.Add(299 * time.Millisecond)
	f.Validate(in, out, false, mss)
	if out.Cwnd != 100*mss {
		t.Fatalf("decays before a timeout has passed: %d", out.Cwnd)
	}
	in.Now = in.Now.Add(time.Millisecond)
	if f.Validate(in, out, false, mss); out.Cwnd != 60*mss || out.Ssthresh != 75*mss {
		t.Errorf("cwnd %d, ssthresh %d, want (100+20)/2 and 75", out.Cwnd, out.Ssthresh)
	}
	// Limited by anything but the application, or not limited: no decay.
	for _, limited := range []bool{true, false} {
		f, in, out = open(100*mss, 60*mss)
		in.PriorInFlight = 20 * mss
		if limited {
			in.Flags = cong.FlagAppLimited
		}
		in.Now = in.Now.Add(time.Minute)
		f.Validate(in, out, limited, mss)
		in.Now = in.Now.Add(time.Minute)
		if f.Validate(in, out, limited, mss); out.Cwnd != 100*mss {
			t.Errorf("limited %v: cwnd %d", limited, out.Cwnd)
		}
	}
}

func TestJoinInRecovery(t *testing.T) {
	f := &Flow{}
	in := &cong.Sample{Kind: cong.KindResume, CA: cong.CARecovery, MSS: mss}
	out := &cong.Decision{Cwnd: 30 * mss, Ssthresh: 20 * mss}
	f.Join(in, out)
	in.Kind, in.CA, in.Flags = cong.KindAck, cong.CAOpen, cong.FlagExit
	if s := f.Observe(in); s != (Step{Exit: true}) {
		t.Fatalf("%+v", s)
	}
	if f.Finish(out); out.Cwnd != 20*mss {
		t.Errorf("cwnd %d, want ssthresh", out.Cwnd)
	}
}

// A live flow's window is what it uses of it, where pacing and not the window was the limit.
func TestJoinWithUnusedWindow(t *testing.T) {
	for _, c := range []struct {
		what     string
		ssthresh uint32
		inFlight uint32
		flags    uint16
		want     uint32
	}{
		{"paced below the window", 48 * mss, 41 * mss, 0, 50 * mss}, // 500 000 B/s × 100 ms
		{"more in flight", 48 * mss, 60 * mss, 0, 60 * mss},
		{"all in flight", 48 * mss, 90 * mss, 0, 80 * mss},
		{"slow start", cong.InfiniteSsthresh, 41 * mss, 0, 80 * mss},
		{"the application was the limit", 48 * mss, 41 * mss, cong.FlagAppLimited, 80 * mss},
	} {
		in := &cong.Sample{Kind: cong.KindResume, MSS: mss, SRTT: 100 * time.Millisecond, InFlight: c.inFlight, Flags: c.flags,
			Delivered: 1_050_000, PriorDelivered: 1_000_000, Interval: 100 * time.Millisecond}
		out := &cong.Decision{Cwnd: 80 * mss, Ssthresh: c.ssthresh}
		new(Flow).Join(in, out)
		if out.Cwnd != c.want {
			t.Errorf("%s: cwnd %d, want %d", c.what, out.Cwnd/mss, c.want/mss)
		}
	}
}
