package rtx

import (
	"testing"
	"time"
)

// resumed gives the flow anew, with packets una…nxt-1 outstanding. The log is to follow.
func (tr *trace) resumed(una, nxt int, flags uint8) *trace {
	tr.t.Helper()
	tr.nxt, tr.tx = nxt, 100
	tr.event(Event{
		Kind: EvResume, Flags: flags, Seq: tr.seq(una), End: tr.seq(nxt), MSS: tsize, Delivered: uint64(una * tsize), Lost: 77,
		Echo: 100 * ms, FirstSent: 90 * ms, DeliveredTime: 10 * ms,
	})
	return tr
}

// logged replays one packet, sent 50 ms ago with transmission id 10+pkt, or 60+pkt if it was sent again.
func (tr *trace) logged(pkt int, mark, flags uint8) *trace {
	tr.t.Helper()
	tx := uint32(10 + pkt)
	if mark&MarkRetrans != 0 {
		tx += 50
		flags |= FlagRetrans
	}
	at := tr.at
	tr.at -= 50 * ms
	tr.event(Event{Kind: EvLog, Flags: flags, Timer: mark, Seq: tr.seq(pkt), End: tr.seq(pkt + 1), TxID: tx, FirstSent: at - 60*ms,
		DeliveredTime: at - 55*ms})
	tr.at = at
	return tr
}

func TestResume(t *testing.T) {
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(2, 7, 0)
		if !tr.m.slot(5).has(flowReplaying) {
			tr.t.Fatal("the flow does not wait for its log")
		}
		tr.st = Command{}
		tr.logged(2, MarkLost, 0).logged(3, MarkSacked, 0).logged(4, MarkRetrans, 0).logged(5, MarkSacked|MarkRetrans, 0)
		if tr.st != (Command{}) {
			tr.t.Errorf("a status comes before the log has ended: %+v", tr.st)
		}
		tr.logged(6, 0, FlagLast).board(2, 2, 1).state(CARecovery, 0) // the engine knows: no new reduction
		if s := tr.st; s.SRTT != 100*time.Millisecond || s.MinRTT != 90*time.Millisecond || s.RTTVarUsec != 10_000 || s.RTOUsec != 300_000 ||
			s.Delivered != 2*tsize {
			tr.t.Errorf("status %+v", s)
		}
		// In order of transmission the retransmitted packet 4 comes after 6: its SACK means the loss of 6, not the reverse.
		tr.resend(2).board(3, 2, 1)
		tr.now(610).ack(2, dup, sack(3, 6), echo(450)).says("sacked 4 lost 6")
		tr.resend(6)
		tr.now(710).ack(7).state(CAOpen, FlagExit).board(0, 0, 0)
		if tr.st.Delivered != 7*tsize-2*tsize { // packets 3 and 5 had been counted
			tr.t.Errorf("%d bytes delivered", tr.st.Delivered)
		}
	})
}

// What is acknowledged while the log is replayed is missing from it.
func TestResumeShortenedLog(t *testing.T) {
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(2, 7, 0).logged(2, MarkSacked, 0).logged(3, MarkLost, 0).logged(5, MarkSacked, 0).logged(6, 0, FlagLast)
		tr.board(1, 1, 0).state(CADisorder, 0)
		if f := tr.m.slot(5); f.una != tr.seq(5) {
			tr.t.Errorf("una is %d", f.una)
		}
	})
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(2, 7, 0).logged(2, 0, 0)
		tr.event(Event{Kind: EvLog, Flags: FlagLast})
		tr.board(0, 0, 0).timerAt(TimerNone, 0)
		tr.now(501).send(1).board(1, 0, 0)
	})
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(7, 7, 0).board(0, 0, 0).timerAt(TimerNone, 0) // nothing outstanding: no log
		tr.resumed(3, 7, FlagLast).board(0, 0, 0).timerAt(TimerNone, 0)
	})
}

// An engine that goes on before the log has ended is taken at its word.
func TestResumeCutShort(t *testing.T) {
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(2, 7, 0).logged(2, 0, 0).logged(3, 0, 0)
		tr.send(1) // packet 7: what lies between is outstanding, too
		tr.board(6, 0, 0)
		tr.now(600).ack(8).board(0, 0, 0)
	})
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(2, 7, 0)
		tr.now(600).ack(7).board(0, 0, 0).timerAt(TimerNone, 0)
	})
}

// Marks of a module that has lied: SND.UNA stops where the data really ends, and the packets are sent again after all.
func TestResumeFalseMarks(t *testing.T) {
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(2, 5, 0).logged(2, 0, 0).logged(3, MarkSacked, 0).logged(4, MarkSacked, FlagLast)
		tr.now(510).ack(3).says("").timerAt(TimerRTO, 510+float64(tr.st.SRTT/2)/1e6)
		tr.at = tr.st.TimerAt()
		tr.timer(TimerRTO).says("reneged lost 3-4")
		tr.resend(3, 4)
		tr.now(700).ack(5).board(0, 0, 0)
	})
}

// A resumed flow without SACK keeps no SACK marks.
func TestResumeNoSACK(t *testing.T) {
	traces(t, nil, 0, 0, func(tr *trace) {
		tr.now(500).resumed(0, 3, FlagNoSACK).logged(0, MarkLost, 0).logged(1, MarkSacked, 0).logged(2, 0, FlagLast).board(2, 0, 1)
	})
}
