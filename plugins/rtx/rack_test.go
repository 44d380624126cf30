package rtx

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Three SACKed packets mean loss at once while no reordering was seen: the reordering window is 0 (RFC 8985, 6.2 step 4).
func TestFastRecovery(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(100).ack(0, dup, sack(1, 2)).says("sacked 1").state(CADisorder, 0).board(9, 1, 0)
		// Packet 0 may be reordered: it has min RTT/4 (and the slack of 2 ms) to arrive.
		tr.timerAt(TimerReorder, 0+100+25+2)
		tr.now(100.1).ack(0, dup, sack(1, 3)).says("sacked 2").timerAt(TimerReorder, 0+100.1+25+2)
		tr.now(100.2).ack(0, dup, sack(1, 4)).says("sacked 3 lost 0").state(CARecovery, FlagEnter).board(6, 3, 1)
		tr.now(100.3).resend(0).board(7, 3, 1)
		tr.now(101).ack(0, dup, sack(1, 10)).says("sacked 4-9").board(1, 9, 1)
		tr.now(201).ack(10).says("").state(CAOpen, FlagExit).board(0, 0, 0).timerAt(TimerNone, 0)
	})
}

// The reordering timer finds the loss if too few SACKs come (RFC 8985, 6.2 step 5): the last packets of a flight.
func TestReorderTimer(t *testing.T) {
	traces(t, nil, 0, 40, func(tr *trace) {
		tr.now(0).send(2)
		tr.now(40).ack(0, dup, sack(1, 2)).state(CADisorder, 0).timerAt(TimerReorder, 0+40+10+2)
		tr.now(52).timer(TimerReorder).says("lost 0").state(CARecovery, FlagEnter)
		tr.resend(0)
		tr.now(92).ack(2).state(CAOpen, FlagExit)
	})
}

// RFC 8985, 9.1 / 3.1: a lost retransmission is found when something sent after it is SACKed.
func TestLostRetransmission(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(6)
		tr.now(100).ack(0, dup, sack(1, 4)).says("sacked 1-3 lost 0").state(CARecovery, FlagEnter)
		tr.now(101).resend(0).board(3, 3, 1)
		tr.now(102).send(1).board(4, 3, 1)
		tr.now(103).ack(0, dup, sack(1, 6)).says("sacked 4-5")
		tr.now(202).ack(0, dup, sack(1, 7)).says("sacked 6 lost 0").state(CARecovery, 0).board(0, 6, 1)
		tr.now(203).resend(0).board(1, 6, 1)
		tr.now(303).ack(7).state(CAOpen, FlagExit)
	})
}

// Reordering that was seen gives packets a quarter of the RTT; nothing is lost.
func TestReorderingSeen(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(100).ack(0, dup, sack(1, 2)).state(CADisorder, 0)
		tr.now(105).ack(2).says("").state(CAOpen, 0) // packet 0 arrived late: reordering
		if !tr.m.slot(5).has(flowReordering) {
			tr.t.Error("reordering was not noticed")
		}
		// The same again with many SACKs: still within the window.
		tr.now(106).ack(2, dup, sack(3, 9)).says("sacked 3-8").state(CADisorder, 0).timerAt(TimerReorder, 106+25+2)
		tr.now(120).ack(9).says("").state(CAOpen, 0).board(1, 0, 0)
	})
}

// A D-SACK widens the window by one step a round trip if reordering was seen (Linux); 16 recoveries without one narrow it.
func TestReorderingWindowAdapts(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		f := func() *flow { return tr.m.slot(5) }
		tr.now(0).send(20)
		tr.now(100).ack(0, dup, sack(1, 2))
		tr.now(105).ack(2) // reordering
		tr.now(106).ack(2, dup, sack(3, 10)).timerAt(TimerReorder, 106+25+2)
		tr.now(133).timer(TimerReorder).says("lost 2").state(CARecovery, FlagEnter)
		tr.now(134).resend(2)
		tr.now(135).ack(10).state(CARecovery, 0)
		if f().reoSteps != 1 {
			tr.t.Errorf("%d steps", f().reoSteps)
		}
		// The duplicate is reported: the recovery was spurious, and the window grows. Packet 10 may now wait for two steps.
		tr.now(234).ack(11, dsack(2, 3)).state(CAOpen, FlagExit|FlagUndo)
		if f().reoSteps != 2 || f().reoPersist != 16 {
			tr.t.Errorf("%d steps, to stay for %d recoveries", f().reoSteps, f().reoPersist)
		}
		tr.now(235).ack(11, dup, sack(12, 16), dsack(2, 3)) // the same report again is not a second step
		if f().reoSteps != 2 {
			tr.t.Errorf("%d steps after a forged D-SACK", f().reoSteps)
		}
		tr.timerAt(TimerReorder, 0+235+50+2) // RACK.rtt is 235, packet 11 was sent at 0
	})
}

// RACK ignores an acknowledgement of a retransmission that comes sooner than it can (RFC 8985, 6.2 step 2). What a selective
// acknowledgement echoes says nothing: it is of the last segment in order, even if the retransmission is what it answers.
func TestAmbiguousRetransmission(t *testing.T) {
	for _, c := range []struct {
		name string
		at   float64
		opt  func(*Event)
		want string
	}{
		{"sooner than an RTT", 150, func(*Event) {}, "sacked 1"},
		{"echoes the last in order", 230, echo(0), "sacked 1 lost 5"},
		{"echoes the retransmission", 230, echo(101), "sacked 1 lost 5"},
		{"no timestamps", 230, func(*Event) {}, "sacked 1 lost 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			traces(t, nil, 0, 100, func(tr *trace) {
				tr.now(0).send(6)
				tr.now(100).ack(0, dup, sack(2, 5)).says("sacked 2-4 lost 0-1")
				tr.now(101).resend(1)
				tr.now(c.at).ack(0, dup, sack(1, 5), c.opt).says(c.want)
			})
		})
	}
}

// RFC 8985, 7.2 and Linux: the probe comes after 2·SRTT, and 200 ms later if one packet is outstanding.
func TestProbeTimeout(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(1).timerAt(TimerTLP, 300) // 2·100+200, but not after the RTO of 100+200 ms, whose place the probe takes
		tr.now(1).send(1).timerAt(TimerTLP, 1+200+2)
		tr.now(2).send(1).timerAt(TimerTLP, 2+200+2)
		tr.now(100).ack(2).timerAt(TimerTLP, 400)
	})
	traces(t, nil, 0, 10, func(tr *trace) {
		tr.now(0).send(1).timerAt(TimerTLP, 210)
		tr.now(1).send(1).timerAt(TimerTLP, 1+20+2)
	})
	// Without an RTT sample the probe would come after 1 s, with an RTO of 3 s: the handshake's sample was ambiguous.
	traces(t, nil, 0, 0, func(tr *trace) { tr.now(0).send(3).timerAt(TimerTLP, 1000) })
	traces(t, plugins.Params{"tlp": "false"}, 0, 10, func(tr *trace) { tr.now(0).send(5).timerAt(TimerRTO, 210) })
	traces(t, nil, FlagNoSACK, 10, func(tr *trace) { tr.now(0).send(5).timerAt(TimerRTO, 210) })
}

// RFC 8985, 9.3: the tail is lost; the probe brings a SACK, RACK repairs the rest without a timeout.
func TestTailLossRepairedByRACK(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(100).ack(7).timerAt(TimerTLP, 100+200+2)
		tr.now(302).timer(TimerTLP).says("probe").state(CAOpen, 0)
		tr.resendAs(FlagRetrans|FlagProbe, 9).timerAt(TimerRTO, 302+300).board(3, 0, 0)
		tr.now(402).ack(7, dup, sack(9, 10)).says("sacked 9 lost 7-8").state(CARecovery, FlagEnter)
		tr.resend(7, 8)
		tr.now(502).ack(10).state(CAOpen, FlagExit)
	})
}

// RFC 8985, 7.4: what the probe alone repaired was a loss, and costs one response without recovery.
func TestProbeRepairsLoss(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(5)
		tr.now(100).ack(4).timerAt(TimerTLP, 400)
		tr.send(1)
		tr.now(302).timer(TimerTLP).says("probe")
		tr.resendAs(FlagRetrans|FlagProbe, 5)
		tr.now(310).send(1) // packet 6
		tr.now(402).ack(6).says("").state(CAOpen, 0)
		tr.now(410).ack(7).state(CAOpen, FlagTLPLoss)
	})
}

func TestSpuriousProbe(t *testing.T) {
	start := func(tr *trace) {
		tr.now(0).send(5)
		tr.now(302-100).timerAt(TimerTLP, 202).timer(TimerTLP).says("probe")
		tr.resendAs(FlagRetrans|FlagProbe, 4)
	}
	// All originals arrive late, and the probe as a duplicate: D-SACK.
	traces(t, nil, 0, 100, func(tr *trace) {
		start(tr)
		tr.now(210).ack(5).state(CAOpen, 0).timerAt(TimerNone, 0)
		tr.send(1)
		tr.now(310).ack(5, dsack(4, 5)).state(CAOpen, FlagSpuriousProbe)
		// The next RTT sample allows another probe.
		tr.now(320).ack(6).says("")
		tr.now(330).send(2).timerAt(TimerTLP, 330+2*tr.srtt()+2)
	})
	// A probe of new data is answered by its acknowledgement, without more ado.
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(5)
		tr.now(202).timer(TimerTLP).says("probe")
		tr.tx++
		tr.nxt++
		tr.event(Event{Kind: EvSent, Flags: FlagProbe, Seq: tr.seq(5), End: tr.seq(6), TxID: tr.tx})
		tr.timerAt(TimerRTO, 202+300)
		tr.now(230).ack(6).state(CAOpen, 0).timerAt(TimerNone, 0)
		tr.send(2)
		if tr.st.Timer != TimerTLP {
			tr.t.Error("no probe is armed after an answered one")
		}
	})
}

// After a probe the timeout follows; its back-off starts there.
func TestProbeThenTimeout(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(5)
		tr.now(202).timer(TimerTLP).says("probe")
		tr.resendAs(FlagRetrans|FlagProbe, 4).timerAt(TimerRTO, 502)
		tr.now(502).timer(TimerRTO).says("lost 0-4").state(CALoss, FlagEnter|FlagTimeout)
	})
}

// A timer that was moved by an event of the same batch does nothing.
func TestStaleTimer(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(5)
		tr.now(150).ack(1)
		tr.now(202)
		for _, kind := range []uint8{TimerNone, TimerRTO, TimerTLP, TimerReorder, 77} {
			tr.event(Event{Kind: EvTimer, Timer: kind})
			tr.says("").state(CAOpen, 0)
		}
	})
}
