package rtx

import (
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// RFC 6298 with the bounds of Linux (TCP_FACTS 4.1): RTO = max(3·R, R + 200 ms) after the first sample R.
func TestRTOFirstSample(t *testing.T) {
	for _, c := range []struct{ rtt, want int }{{1, 201}, {10, 210}, {50, 250}, {100, 300}, {150, 450}, {1000, 3000}} {
		traces(t, nil, 0, c.rtt, func(tr *trace) {
			tr.now(0).send(1)
			if got := time.Duration(tr.st.RTOUsec) * time.Microsecond; got != time.Duration(c.want)*time.Millisecond {
				tr.t.Errorf("RTT %d ms: RTO %v, want %d ms", c.rtt, got, c.want)
			}
		})
	}
	// No sample: 1 s; the handshake's SYN was sent again: 3 s (RFC 6298, 5.7).
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(0).send(1)
		if tr.st.RTOUsec != 3_000_000 {
			tr.t.Errorf("RTO %d µs", tr.st.RTOUsec)
		}
	})
}

// The estimator against values computed by hand from RFC 6298 and the rules of TCP_FACTS 4.1, in µs.
func TestRTOEstimator(t *testing.T) {
	cfg := list().cfg
	var e estimator
	una, nxt := uint32(0), uint32(1000)
	for i, c := range []struct{ rtt, srtt, mdev4, rttvar int64 }{
		{100_000, 100_000, 200_000, 200_000}, // R, 2R, max(2R, 200 ms)
		{100_000, 100_000, 150_000, 200_000}, // mean deviation decays by a quarter; the bound stays
		{180_000, 110_000, 192_500, 200_000}, // err 80: mdev4 += 80 − 150/4; SRTT += 80/8
		{300_000, 133_750, 334_375, 334_375}, // err 190: mdev4 += 190 − 48.125; the variance rises at once
		{20_000, 119_531, 338_144, 338_144},  // err −113.75 beyond mdev4/4 = 83.59: only an eighth of the rest counts
	} {
		una, nxt = una+10, nxt+10
		e.sample(&cfg, c.rtt*1000, una, nxt)
		got := [3]int64{e.srtt() / 1000, e.mdev4 / 1000, e.rttvar / 1000}
		if want := [3]int64{c.srtt, c.mdev4, c.rttvar}; got != want {
			t.Errorf("sample %d: srtt, 4·mdev, variance %v, want %v", i, got, want)
		}
	}
	// Once per round trip the variance moves a quarter of the way down to the largest deviation of the round.
	v := e.rttvar
	e.sample(&cfg, e.srtt(), nxt+1, nxt+2)
	if e.rttvar != v || e.mdevMax != int64(cfg.rtoMin) {
		t.Errorf("variance %d after the first round, want %d; round maximum %d", e.rttvar, v, e.mdevMax)
	}
	max := max(e.mdev4-e.mdev4>>2, int64(cfg.rtoMin))
	e.sample(&cfg, e.srtt(), nxt+3, nxt+4)
	if want := v - (v-max)>>2; e.rttvar != want {
		t.Errorf("variance %d, want %d", e.rttvar, want)
	}
}

// RTO × 2 at each timeout up to 120 s, cleared by a valid sample (TCP_FACTS 4.1).
func TestBackoff(t *testing.T) {
	traces(t, plugins.Params{"tlp": "false"}, 0, 100, func(tr *trace) {
		tr.now(0).send(1).timerAt(TimerRTO, 300)
		at, rto := 300.0, 300.0
		for n := 1; n <= 12; n++ {
			tr.now(at).timer(TimerRTO)
			if n == 1 {
				tr.says("lost 0")
			}
			tr.resend(0)
			rto = min(2*rto, 120_000)
			if tr.st.Backoff != uint8(n) {
				tr.t.Errorf("back-off %d after %d timeouts", tr.st.Backoff, n)
			}
			tr.timerAt(TimerRTO, at+rto)
			at += rto
		}
		// Karn: the acknowledgement of a retransmission is no sample without timestamps; the back-off stays, the count does not.
		tr.now(at - 100).ack(1)
		if tr.st.Backoff != 0 || tr.st.RTOUsec != 120_000_000 || tr.st.Flags&FlagRTTValid != 0 {
			tr.t.Errorf("after an ambiguous acknowledgement: %+v", tr.st)
		}
		tr.send(1)
		tr.now(at).ack(2)
		if tr.st.RTOUsec >= 1_000_000 || tr.st.Flags&FlagRTTValid == 0 {
			tr.t.Errorf("after a valid sample: RTO %d µs", tr.st.RTOUsec)
		}
	})
}

// With timestamps a retransmission's acknowledgement is a sample (RFC 7323, 4).
func TestTimestampSample(t *testing.T) {
	traces(t, plugins.Params{"tlp": "false"}, 0, 100, func(tr *trace) {
		tr.now(0).send(1)
		tr.now(300).timer(TimerRTO).resend(0)
		tr.now(420).ack(1, echo(300))
		if tr.st.Flags&FlagRTTValid == 0 || tr.st.RTT != 120*time.Millisecond || tr.st.RTOUsec >= 600_000 {
			tr.t.Errorf("status %+v", tr.st)
		}
	})
}

// RTT of the earliest segment for SRTT, of the latest for congestion control and the minimum (TCP_FACTS 4.1).
func TestRTTChoice(t *testing.T) {
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(0).send(1)
		tr.now(30).send(1)
		tr.now(100).ack(2)
		if tr.st.SRTT != 100*time.Millisecond || tr.st.RTT != 70*time.Millisecond || tr.st.MinRTT != 70*time.Millisecond {
			tr.t.Errorf("SRTT %v, RTT %v, least %v", tr.st.SRTT, tr.st.RTT, tr.st.MinRTT)
		}
	})
}

func TestMinFilter(t *testing.T) {
	var f minFilter
	const window = 100
	put := func(tick, v int64) int64 {
		f.update(window, plugins.Time(tick<<minFilterShift), v)
		return f.get()
	}
	for i, c := range []struct{ tick, v, want int64 }{
		{0, 50, 50}, {1, 60, 50}, {30, 55, 50}, {60, 70, 50}, {90, 58, 50},
		{101, 80, 55}, // the 50 of tick 0 is too old; 55 of tick 30 is next
		{131, 80, 58}, {191, 90, 80}, {192, 10, 10}, {500, 99, 99},
	} {
		if got := put(c.tick, c.v); got != c.want {
			t.Errorf("step %d: minimum %d, want %d", i, got, c.want)
		}
	}
}

// RFC 8985, 6.3 (TCP_FACTS 4.2): at a timeout the head is lost, and what was sent an RTT ago; the rest stays.
func TestTimeoutKeepsRecent(t *testing.T) {
	traces(t, plugins.Params{"tlp": "false"}, 0, 100, func(tr *trace) {
		tr.now(0).send(2)
		tr.now(100).ack(1).timerAt(TimerRTO, 400) // RACK.rtt is 100
		tr.now(290).send(1)
		tr.now(300).send(1)
		tr.now(301).send(2)
		tr.now(400).timer(TimerRTO).says("lost 1-3").state(CALoss, FlagEnter|FlagTimeout).board(2, 0, 3)
	})
}

// A timeout that was spurious: Eifel sees it by the first acknowledgement's echo (RFC 3522).
func TestEifel(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(202).timer(TimerTLP).resendAs(FlagRetrans|FlagProbe, 9)
		tr.now(502).timer(TimerRTO).says("lost 0-9").state(CALoss, FlagEnter|FlagTimeout).board(0, 0, 10)
		tr.now(503).resend(0).board(1, 0, 10)
		tr.now(510).ack(1, echo(0)).says("notlost").state(CAOpen, FlagExit|FlagUndo).board(9, 0, 0)
		tr.now(511).ack(10, echo(0)).state(CAOpen, 0)
	})
}

// F-RTO with SACK (RFC 5682, 3.1): without timestamps, what was sent once and is acknowledged after the timeout shows it was spurious.
func TestFRTO(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(202).timer(TimerTLP).resendAs(FlagRetrans|FlagProbe, 9)
		tr.now(502).timer(TimerRTO).resend(0)
		// Step 2b: the first acknowledgement advances; new data is sent.
		tr.now(510).ack(1).state(CALoss, FlagSendNew)
		tr.send(2)
		// Step 3b: the next covers data that was sent once.
		tr.now(511).ack(2).says("notlost").state(CAOpen, FlagExit|FlagUndo).board(10, 0, 0)
	})
}

// F-RTO, step 3a: a duplicate after the new data means that the loss is real.
func TestFRTORealLoss(t *testing.T) {
	traces(t, plugins.Params{"tlp": "false"}, 0, 100, func(tr *trace) {
		tr.now(0).send(5)
		tr.now(300).timer(TimerRTO).says("lost 0-4").resend(0)
		tr.now(400).ack(1).state(CALoss, FlagSendNew)
		tr.send(2)
		tr.now(500).ack(1, dup, sack(5, 6)).says("sacked 5").state(CALoss, 0)
		tr.resend(1, 2, 3, 4)
		tr.now(600).ack(7).state(CAOpen, FlagExit)
	})
	// Repeated timeouts at the same place keep F-RTO; a timeout within fast recovery does not start it.
	traces(t, plugins.Params{"tlp": "false"}, 0, 100, func(tr *trace) {
		tr.now(0).send(8)
		tr.now(100).ack(0, dup, sack(1, 5)).state(CARecovery, FlagEnter).resend(0)
		tr.now(400).timer(TimerRTO).state(CALoss, FlagTimeout)
		if tr.m.slot(5).has(flowFRTO) {
			tr.t.Error("F-RTO runs after a timeout in recovery")
		}
		tr.resend(0)
		tr.now(1000).timer(TimerRTO)
		if !tr.m.slot(5).has(flowFRTO) {
			tr.t.Error("F-RTO does not run after a repeated timeout")
		}
	})
}

// All retransmissions were reported as duplicates: the recovery was spurious (RFC 3708; TCP_FACTS 4.6).
func TestUndoByDSACK(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(100).ack(0, dup, sack(2, 6)).says("sacked 2-5 lost 0-1").state(CARecovery, FlagEnter)
		tr.now(101).resend(0, 1)
		tr.now(110).ack(6).state(CARecovery, 0) // the originals arrive
		tr.now(200).ack(6, dsack(0, 1)).state(CARecovery, 0)
		tr.now(201).ack(6, dsack(1, 2)).state(CAOpen, FlagExit|FlagUndo)
	})
	// The reports may come after recovery has ended.
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(6)
		tr.now(100).ack(0, dup, sack(1, 6)).state(CARecovery, FlagEnter)
		tr.now(101).resend(0)
		tr.now(110).ack(6).state(CAOpen, FlagExit)
		tr.send(1)
		tr.now(200).ack(6, dsack(0, 1)).state(CAOpen, FlagUndo)
	})
	// More duplicates than were ever sent again are forged.
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(100).ack(0, dup, sack(2, 6)).state(CARecovery, FlagEnter)
		tr.now(101).resend(0)
		tr.now(102).ack(0, dup, sack(2, 7), dsack(0, 2)).state(CARecovery, 0)
	})
}

// What was marked lost was acknowledged without being sent again: nothing was lost.
func TestUndoNothingResent(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(6)
		tr.now(100).ack(0, dup, sack(1, 6)).says("sacked 1-5 lost 0").state(CARecovery, FlagEnter)
		tr.now(101).ack(6).state(CAOpen, FlagExit|FlagUndo).says("")
	})
}

// A partial acknowledgement that echoes a time before the first retransmission: the original filled the hole (TCP_FACTS 4.6).
func TestUndoPartial(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(10)
		tr.now(100).ack(0, dup, sack(1, 4), sack(5, 9)).says("sacked 1-3 sacked 5-8 lost 0 lost 4").state(CARecovery, FlagEnter)
		tr.now(101).resend(0)
		tr.now(105).ack(4, echo(0)).says("notlost").state(CADisorder, FlagExit|FlagUndo).board(2, 4, 0)
	})
}

// The peer drops what it had SACKed (RFC 2018, 8): SND.UNA stops at a SACKed packet; after a short wait all marks are void.
func TestReneging(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(6)
		tr.now(100).ack(0, dup, sack(1, 4)).says("sacked 1-3 lost 0").resend(0)
		tr.now(200).ack(1).says("").timerAt(TimerRTO, 200+50) // half an SRTT
		tr.now(250).timer(TimerRTO).says("reneged lost 1-5").state(CALoss, FlagTimeout).board(0, 0, 5)
		tr.resend(1, 2, 3, 4, 5).board(5, 0, 5)
		tr.now(350).ack(6).state(CAOpen, FlagExit).timerAt(TimerNone, 0)
	})
	// If the acknowledgement moves on, nothing has happened.
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(6)
		tr.now(100).ack(0, dup, sack(1, 4)).resend(0)
		tr.now(200).ack(1).timerAt(TimerRTO, 250)
		tr.now(201).ack(4).state(CARecovery, 0)
		if tr.m.slot(5).has(flowReneging) {
			tr.t.Error("the flow is still suspected")
		}
	})
}

// NewReno (RFC 6582) for peers without SACK.
func TestNewReno(t *testing.T) {
	traces(t, nil, FlagNoSACK, 100, func(tr *trace) {
		tr.now(0).send(8)
		tr.now(100).ack(0, dup).says("").state(CADisorder, 0).board(7, 1, 0)
		tr.now(101).ack(0, dup).says("").board(6, 2, 0)
		tr.now(102).ack(0, dup).says("lost 0").state(CARecovery, FlagEnter).board(4, 3, 1)
		tr.now(103).resend(0).board(5, 3, 1)
		tr.now(104).ack(0, dup).board(4, 4, 1)
		// Partial acknowledgement: the next hole.
		tr.now(203).ack(4).says("lost 4").state(CARecovery, 0).board(2, 1, 1)
		tr.now(204).resend(4)
		// All of it: held until something above is acknowledged.
		tr.now(303).ack(8).state(CARecovery, 0)
		tr.send(4)
		tr.now(400).ack(9).state(CAOpen, FlagExit)
	})
	// A timeout loses everything, and old duplicates start no fast retransmission (RFC 6582, 3.2).
	traces(t, nil, FlagNoSACK, 100, func(tr *trace) {
		tr.now(0).send(6)
		tr.now(300).timer(TimerRTO).says("lost 0-5").state(CALoss, FlagEnter|FlagTimeout).board(0, 0, 6)
		tr.resend(0)
		for range 4 {
			tr.now(301).ack(0, dup).says("").state(CALoss, 0)
		}
	})
	// More duplicates than packets: the network reorders or duplicates, the threshold rises.
	traces(t, nil, FlagNoSACK, 100, func(tr *trace) {
		tr.now(0).send(2)
		tr.now(100)
		for range 5 {
			tr.ack(0, dup).says("").state(CADisorder, 0)
		}
		tr.board(1, 1, 0)
	})
}

// SACK blocks of any shape mark whole packets only and split segments of several packets at packet boundaries.
func TestSACKOfAggregates(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0)
		tr.tx, tr.nxt = 1, 10
		tr.event(Event{Kind: EvSent, Seq: tr.seq(0), End: tr.seq(10), TxID: 1, MSS: tsize})
		part := func(from, to uint32) func(*Event) {
			return func(ev *Event) {
				ev.Sack[0].Start, ev.Sack[0].End = from, to
				ev.NSack = 1
			}
		}
		tr.now(100).ack(0, dup, part(2500, 2999)).says("").board(10, 0, 0)
		tr.ack(0, dup, part(2500, 4001)).says("sacked 3").board(9, 1, 0)
		tr.ack(0, dup, part(1001, 5999)).says("sacked 2 sacked 4").board(7, 3, 0)
		if n := tr.m.slot(5).q.n; n != 3 {
			tr.t.Errorf("%d segments, want 3", n)
		}
		// A retransmission of a part, and one of a part of that.
		tr.now(101).resend(0).resend(1)
		tr.tx++
		tr.event(Event{Kind: EvSent, Flags: FlagRetrans, Seq: tr.seq(0) + 500, End: tr.seq(1) + 500, TxID: tr.tx})
		tr.now(201).ack(10).state(CAOpen, 0)
	})
}

// Small segments that are sent again in one packet become one segment (F3).
func TestMergeOnRetransmission(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(8)
		tr.now(100).ack(0, dup, sack(4, 8)).says("sacked 4-7 lost 0-3")
		tr.tx++
		tr.event(Event{Kind: EvSent, Flags: FlagRetrans, Seq: tr.seq(0), End: tr.seq(4), TxID: tr.tx, MSS: 4 * tsize})
		if n := tr.m.slot(5).q.n; n != 2 {
			tr.t.Errorf("%d segments, want 2", n)
		}
		tr.board(4, 4, 4)
	})
}

// The delivery-rate sample (TCP_FACTS 1.1).
func TestRateSample(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(2)
		tr.now(10).send(2)
		check := func(delivered, prior uint64, interval float64, txInFlight uint32, sent float64, flags uint32) {
			tr.t.Helper()
			s := &tr.st
			const about = FlagRateValid | FlagCmdAppLimited
			if s.Delivered != delivered || s.PriorDelivered != prior || s.Interval != time.Duration(interval*1e6) || s.TxInFlight != txInFlight ||
				s.SendTime != plugins.Time((1000+sent)*1e6) || s.Flags&about != flags {
				tr.t.Errorf("sample %+v", *s)
			}
		}
		// Packets 0 and 1: sent in 0 ms, acknowledged 100 ms after the flow began to send.
		tr.now(100).ack(2)
		check(2000, 0, 100, 2000, 0, FlagRateValid)
		// From here on, sending took longer or shorter than delivering: the longer time counts.
		tr.now(100).send(1)
		tr.tx++
		tr.nxt++
		tr.now(120)
		tr.event(Event{Kind: EvSent, Flags: FlagAppLimited, Seq: tr.seq(5), End: tr.seq(6), TxID: tr.tx})
		tr.now(122).ack(4) // packet 3: sent 10 ms after packet 0; delivered time was 0 then
		check(4000, 0, 122, 4000, 10, FlagRateValid)
		tr.now(220).ack(6) // packet 5: sent at 120, when 2000 had been delivered at 100
		check(6000, 2000, 120, 4000, 120, FlagRateValid|FlagCmdAppLimited)
	})
}

// An interval below the least RTT is no sample: the acknowledgement was for a copy that was sent before.
func TestImplausibleRate(t *testing.T) {
	for _, c := range []struct {
		rtt   int
		valid bool
	}{{99, true}, {100, true}, {101, false}} {
		traces(t, nil, 0, c.rtt, func(tr *trace) {
			tr.now(0).send(2).resend(0)
			tr.now(100).ack(2)
			if got := tr.st.Flags&FlagRateValid != 0; got != c.valid || tr.st.Interval != 100*time.Millisecond {
				tr.t.Errorf("least RTT %v: %+v", tr.st.MinRTT, tr.st)
			}
		})
	}
}

// A lone small packet's acknowledgement was probably delayed: it does not raise the least RTT.
func TestDelayedAck(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		small := func(at float64, from uint32) {
			tr.tx++
			tr.now(at).event(Event{Kind: EvSent, Seq: tr.isn + from, End: tr.isn + from + 100, TxID: tr.tx})
		}
		small(0, 0)
		tr.now(140).event(Event{Kind: EvAck, Seq: tr.isn + 100, End: tr.isn + 100})
		if tr.st.Flags&FlagAckDelayed == 0 || tr.st.RTT != 140*time.Millisecond || tr.st.MinRTT != 100*time.Millisecond {
			tr.t.Errorf("status %+v", tr.st)
		}
		small(200, 100)
		small(200, 200)
		tr.now(300).event(Event{Kind: EvAck, Seq: tr.isn + 300, End: tr.isn + 300})
		if tr.st.Flags&FlagAckDelayed != 0 {
			tr.t.Error("an acknowledgement of two packets counts as delayed")
		}
	})
}

func TestLostSnapshot(t *testing.T) {
	traces(t, nil, 0, 100, func(tr *trace) {
		tr.now(0).send(3)
		tr.now(50).send(3)
		var out [8]Command
		tr.id++
		n := tr.m.Poll(tr.now(150).at, []Event{{Kind: EvAck, Flow: tr.flow, ID: tr.id, Time: tr.at, Seq: tr.seq(0), End: tr.seq(6), NSack: 1,
			Sack: rangesOf(tr, 2, 6)}}, out[:])
		if n != 3 || out[1].Kind != CmdLost {
			tr.t.Fatalf("%d commands, %+v", n, out[:n])
		}
		c := out[1]
		if tr.pkts(c.Range()) != "0-1" || c.TxID != 2 || c.TxInFlight != 2000 || c.LostSinceSend != 2000 || c.SendTime != 1000*ms {
			tr.t.Errorf("lost range %+v", c)
		}
		if out[2].NewlyLost != 2000 || out[2].NewlyAcked != 4000 {
			tr.t.Errorf("status %+v", out[2])
		}
	})
}
