package rtx

import (
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Properties of a flow that are true or false.
const (
	flowOpen       uint16 = 1 << iota
	flowNoSACK            // the peer does not do SACK
	flowReplaying         // between EvResume and the end of the log
	flowRack              // RACK.segment is known
	flowReordering        // reordering was seen
	flowDsackRound        // a D-SACK widened the reordering window in this round
	flowProbeOut          // a tail-loss probe is unanswered: tlpEnd is set
	flowProbeCopy         // that probe was a retransmission
	flowProbeOK           // an RTT sample was taken since the last probe
	flowUndo              // undoMarker is set
	flowUndoSent          // something was sent again since undoMarker was set
	flowStamp             // retransStamp is set
	flowFRTO              // F-RTO is under way
	flowReneging          // SND.UNA stopped at a SACKed segment
	flowReneged           // the present loss episode began with reneging
)

// maxSpan bounds what may be outstanding: the largest window (RFC 7323, 2.3), one segment and the FIN. Sequence numbers of a queue are
// comparable modulo 2^32 by a wide margin.
const maxSpan = 1<<30 + 1<<17

// maxReordering bounds the duplicate-acknowledgement threshold of flows without SACK (Linux tcp_max_reordering).
const maxReordering = 300

// flow is a module's state of one connection. What only flows with data outstanding need is in q.
type flow struct {
	id   plugins.Flow
	asOf uint64 // id of the last event
	q    *queue // nil if nothing is outstanding

	una, nxt uint32 // SND.UNA and SND.NXT as far as the events tell
	mss      uint32
	bits     uint16
	ca       uint8
	timeouts uint8 // consecutive, without SND.UNA advancing

	// Delivery-rate sampler (draft-ietf-ccwg-bbr, 4.1.1.2): C.delivered and so on.
	delivered     uint64
	lost          uint64
	deliveredTime plugins.Time
	firstSent     plugins.Time

	// Bytes of the scoreboard. Without SACK, sackedOut is what duplicate acknowledgements stand for.
	sackedOut, lostOut, retransOut uint32
	sackedPkts                     uint32
	// Without SACK: bytes that duplicates counted as delivered, and that the acknowledgement that covers them must not count again.
	dupCounted uint32

	rtt    estimator
	minRTT minFilter

	// RACK (RFC 8985, 5.3)
	rackRTT    int64
	rackTx     uint32
	fack       uint32 // end of the highest segment ever acknowledged
	dsackRound uint32
	reoSteps   uint8
	reoPersist uint8
	reordering uint16 // duplicate acknowledgements that mean loss, without SACK

	tlpEnd uint32 // SND.NXT when the unanswered probe was sent

	// Loss recovery
	highSeq      uint32 // SND.NXT when the present state was entered: recovery ends there
	undoMarker   uint32
	undoRetrans  uint32       // bytes sent again since then and not reported as duplicates
	dupBudget    uint32       // bytes ever sent again and not reported as duplicates: a D-SACK beyond it is forged
	retransStamp plugins.Time // first retransmission of the episode

	rtoBase plugins.Time // the RTO runs from here
	ptoBase plugins.Time // the probe time-out runs from here

	batch int32 // index+1 of the flow's record for the present batch; 0: untouched
}

func (f *flow) has(bits uint16) bool { return f.bits&bits == bits }

func (f *flow) set(bits uint16, on bool) {
	if on {
		f.bits |= bits
	} else {
		f.bits &^= bits
	}
}

// flight is everything outstanding.
func (f *flow) flight() uint32 { return f.nxt - f.una }

// inFlight is what is in the network: not SACKed, not lost, plus what was sent again since it was marked lost (RFC 9937, 5).
func (f *flow) inFlight() uint32 {
	out := f.flight()
	return out - min(out, f.sackedOut+f.lostOut) + f.retransOut
}

// deliver counts n bytes as delivered at time now.
func (f *flow) deliver(b *batch, now plugins.Time, n uint32) {
	if n == 0 {
		return
	}
	f.delivered += uint64(n)
	f.deliveredTime = now
	b.acked += n
}
