package rtx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// A trace reads like a packet trace: what is sent and acknowledged at which time, in packets of 1000 bytes counted from 0, and after each
// event what the module must have said. It runs on the modules list and btree, the latter with its index from the first packet on.
type trace struct {
	t    *testing.T
	m    *module
	flow plugins.Flow
	isn  uint32
	at   plugins.Time // ms of the last event
	id   uint64
	tx   uint32
	nxt  int // packets sent

	st   Command // last Status
	said string  // the other commands since the last event, e.g. "sacked 2-4 lost 1"
}

const tsize = 1000

// traces runs fn on both modules, with ISNs that do and do not wrap within the trace.
func traces(t *testing.T, p plugins.Params, flags uint8, rtt int, fn func(*trace)) {
	t.Helper()
	for _, name := range []string{"list", "btree"} {
		for _, isn := range []uint32{1000, 1<<32 - 2500} {
			t.Run(fmt.Sprintf("%s/%d", name, isn), func(t *testing.T) {
				var m *module
				if name == "list" {
					m = mustModule(NewList(p, 1))
				} else {
					m = mustModule(NewBTree(p, 1))
					m.pool.idx.threshold, m.pool.idx.runLen = 0, 2
				}
				tr := &trace{t: t, m: m, flow: plugins.Flow{Slot: 5, Gen: 2}, isn: isn, at: 1000 * ms}
				ev := Event{Kind: EvOpen, Seq: isn, MSS: tsize, Flags: flags}
				if rtt > 0 {
					ev.Echo = tr.at - plugins.Time(rtt)*ms
				}
				tr.event(ev)
				tr.at = 0
				fn(tr)
			})
		}
	}
}

func (tr *trace) seq(pkt int) uint32 { return tr.isn + uint32(pkt*tsize) }

// now sets the time of the next events: ms since the flow was opened.
func (tr *trace) now(at float64) *trace {
	tr.at = plugins.Time((1000 + at) * 1e6)
	return tr
}

func (tr *trace) event(ev Event) {
	tr.t.Helper()
	tr.id++
	ev.Flow, ev.ID, ev.Time = tr.flow, tr.id, tr.at
	var out [64]Command
	n := tr.m.Poll(tr.at, []Event{ev}, out[:])
	tr.said = ""
	for i := range out[:n] {
		c := &out[i]
		r := c.Range()
		switch c.Kind {
		case CmdStatus:
			tr.st = *c
		case CmdSacked:
			tr.said += " sacked " + tr.pkts(r)
		case CmdLost:
			tr.said += " lost " + tr.pkts(r)
		case CmdProbe:
			tr.said += " probe"
		case CmdReneged:
			tr.said += " reneged"
		case CmdNotLost:
			tr.said += " notlost"
		}
	}
	tr.said = strings.TrimSpace(tr.said)
	if err := integrity(tr.m); err != nil {
		tr.t.Fatalf("at %v: %v", time.Duration(tr.at-1000*ms), err)
	}
}

// pkts writes a range as packets, "2" or "2-4" (inclusive).
func (tr *trace) pkts(r seq.Range) string {
	a, b := (r.Start-tr.isn)/tsize, (r.End-1-tr.isn)/tsize
	if a == b {
		return fmt.Sprint(a)
	}
	return fmt.Sprintf("%d-%d", a, b)
}

func (tr *trace) send(n int) *trace {
	tr.t.Helper()
	for range n {
		tr.tx++
		tr.nxt++
		tr.event(Event{Kind: EvSent, Seq: tr.seq(tr.nxt - 1), End: tr.seq(tr.nxt), TxID: tr.tx})
	}
	return tr
}

func (tr *trace) resend(pkts ...int) *trace { return tr.resendAs(FlagRetrans, pkts...) }

func (tr *trace) resendAs(flags uint8, pkts ...int) *trace {
	tr.t.Helper()
	for _, i := range pkts {
		tr.tx++
		tr.event(Event{Kind: EvSent, Flags: flags, Seq: tr.seq(i), End: tr.seq(i + 1), TxID: tr.tx})
	}
	return tr
}

// ack acknowledges everything below packet una, with options.
func (tr *trace) ack(una int, opts ...func(*Event)) *trace {
	tr.t.Helper()
	ev := Event{Kind: EvAck, Seq: tr.seq(una), End: tr.seq(tr.nxt)}
	for _, o := range opts {
		o(&ev)
	}
	if ev.DSack.Start != ev.DSack.End {
		ev.DSack = seq.Range{Start: tr.isn + ev.DSack.Start, End: tr.isn + ev.DSack.End}
	}
	for i := range ev.NSack {
		ev.Sack[i] = seq.Range{Start: tr.isn + ev.Sack[i].Start, End: tr.isn + ev.Sack[i].End}
	}
	tr.event(ev)
	return tr
}

func sack(from, to int) func(*Event) {
	return func(ev *Event) {
		ev.Sack[ev.NSack] = seq.Range{Start: uint32(from * tsize), End: uint32(to * tsize)}
		ev.NSack++
	}
}

func dsack(from, to int) func(*Event) {
	return func(ev *Event) { ev.DSack = seq.Range{Start: uint32(from * tsize), End: uint32(to * tsize)} }
}

func dup(ev *Event) { ev.Flags |= FlagDup }

func echo(at float64) func(*Event) {
	return func(ev *Event) { ev.Echo = plugins.Time((1000 + at) * 1e6) }
}

// timer lets the flow's timer expire; it must be of the given kind and due now.
func (tr *trace) timer(kind uint8) *trace {
	tr.t.Helper()
	tr.timerAt(kind, float64(tr.at-1000*ms)/1e6)
	tr.event(Event{Kind: EvTimer, Timer: kind})
	return tr
}

// timerAt checks the flow's timer.
func (tr *trace) timerAt(kind uint8, at float64) *trace {
	tr.t.Helper()
	want := plugins.Time((1000 + at) * 1e6)
	if kind == TimerNone {
		want = plugins.Never
	}
	if tr.st.Timer != kind || tr.st.TimerAt() != want {
		tr.t.Errorf("at %v: timer %d at %v, want %d at %v ms", time.Duration(tr.at-1000*ms), tr.st.Timer,
			time.Duration(tr.st.TimerAt()-1000*ms), kind, at)
	}
	return tr
}

// says checks the commands, besides Status, that the last event brought.
func (tr *trace) says(want string) *trace {
	tr.t.Helper()
	if tr.said != want {
		tr.t.Errorf("at %v: module says %q, want %q", time.Duration(tr.at-1000*ms), tr.said, want)
	}
	return tr
}

// state checks the congestion state and what was reported with it; flags must be exactly these of the ones that are not about samples.
func (tr *trace) state(ca uint8, flags uint32) *trace {
	tr.t.Helper()
	const about = FlagEnter | FlagExit | FlagUndo | FlagTimeout | FlagTLPLoss | FlagSpuriousProbe | FlagSendNew
	if tr.st.CA != ca || tr.st.Flags&about != flags {
		tr.t.Errorf("at %v: state %d flags %b, want %d %b", time.Duration(tr.at-1000*ms), tr.st.CA, tr.st.Flags&about, ca, flags)
	}
	return tr
}

// board checks the scoreboard, in packets.
func (tr *trace) board(inFlight, sacked, lost int) *trace {
	tr.t.Helper()
	s := &tr.st
	if s.InFlight != uint32(inFlight*tsize) || s.SackedOut != uint32(sacked*tsize) || s.LostOut != uint32(lost*tsize) {
		tr.t.Errorf("at %v: in flight %d sacked %d lost %d, want %d %d %d packets", time.Duration(tr.at-1000*ms),
			s.InFlight, s.SackedOut, s.LostOut, inFlight, sacked, lost)
	}
	return tr
}

// srtt is the smoothed RTT in ms.
func (tr *trace) srtt() float64 { return float64(tr.st.SRTT) / 1e6 }

// rangesOf is one block of packets from…to-1.
func rangesOf(tr *trace, from, to int) (r [MaxSack]seq.Range) {
	r[0] = seq.Range{Start: tr.seq(from), End: tr.seq(to)}
	return r
}
