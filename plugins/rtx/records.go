// Package rtx is the retransmit-queue module kind: which segments were lost, when to probe or time out, and the RTT and
// delivery-rate samples. It holds the records and the modules btree and list.
//
// The engine tells the module what it sent and what was acknowledged; the module answers with an absolute Status per flow and
// batch, MarkLost and Sacked ranges, and Probe. Commands are safe when late, lost or repeated: the engine ignores a MarkLost
// whose range was sent again or acknowledged since.
package rtx

import (
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// Kinds of Event.
const (
	// EvOpen starts a flow: Seq is the first data sequence number (ISS+1), Echo the handshake's send time (0 if ambiguous), so
	// that Time-Echo is the first RTT sample. FlagNoSACK and FlagNoTS tell what was negotiated.
	EvOpen uint8 = iota + 1
	// EvSent reports a transmission of [Seq, End), in packets of MSS bytes that left together, at departure time Time. TxID is the
	// transmission id of the last packet; the one before has TxID-1, and so on. FlagRetrans, FlagProbe (tail-loss probe),
	// FlagAppLimited, FlagFIN.
	EvSent
	// EvAck reports one acknowledgement that arrived at Time: Seq is SND.UNA after it, End is SND.NXT, Wnd the peer's window,
	// Sack[:NSack] its validated blocks, DSack its duplicate report (if not empty), Echo the send time that its timestamp echoes
	// (0 if none). FlagDup: a duplicate acknowledgement as RFC 5681 section 2 defines it. FlagECE.
	EvAck
	// EvTimer says that the timer of kind Timer, set by the last Status, expired at Time. Its Seq is SND.UNA, End SND.NXT.
	EvTimer
	// EvResume gives a live flow to this module: Seq is SND.UNA, End is SND.NXT; Echo holds SRTT, FirstSent MinRTT and
	// DeliveredTime RTTVar (all ns); Delivered, Lost and MSS as they are. The log follows as EvLog.
	EvResume
	// EvLog is one entry of the segment log after EvResume, in order of sequence: [Seq, End), its last packet's TxID, last departure time
	// Time, snapshot (Delivered, DeliveredTime, FirstSent, Lost), Mark, and FlagRetrans, FlagAppLimited. FlagLast ends the log; an
	// empty range with FlagLast says that everything was acknowledged meanwhile, and an EvResume with FlagLast has no log. A gap
	// between two entries was acknowledged while the log was replayed, with everything below it. No Status comes before the end.
	EvLog
	// EvClose ends a flow.
	EvClose
)

// Flags of an Event.
const (
	FlagRetrans uint8 = 1 << iota
	FlagProbe
	FlagAppLimited
	FlagFIN // the range ends with the FIN's sequence number
	FlagDup
	FlagECE
	FlagNoSACK
	FlagNoTS
)

// FlagLast ends the replay of a log. It shares its bit with FlagDup, which only EvAck uses.
const FlagLast = FlagDup

// Marks of a segment in the log.
const (
	MarkSacked  uint8 = 1 << iota
	MarkLost          // and not sent again since
	MarkRetrans       // sent more than once
)

// MaxSack is the largest number of SACK blocks in one acknowledgement (RFC 2018).
const MaxSack = 4

// Event is what a retransmit-queue module is told. 128 bytes, no pointers.
type Event struct {
	Flow          plugins.Flow
	ID            uint64
	Time          plugins.Time
	Kind          uint8
	Flags         uint8
	NSack         uint8
	Timer         uint8  // EvTimer: which; EvLog: Mark
	MSS           uint32 // present effective MSS; 0: as before
	Seq, End      uint32
	TxID          uint32 // transmission id, per flow, counts packets up from 1
	Wnd           uint32 // peer's window in bytes
	Sack          [MaxSack]seq.Range
	DSack         seq.Range
	Echo          plugins.Time
	Delivered     uint64
	DeliveredTime plugins.Time
	FirstSent     plugins.Time
	Lost          uint64
}

// Kinds of Command.
const (
	// CmdStatus is the flow's absolute state after the events up to AsOf; TimerAt its next timer. At most one per flow and Poll.
	CmdStatus uint8 = iota + 1
	// CmdLost marks as lost what lies in Range and was last sent with a transmission id of at most TxID. TxInFlight,
	// LostSinceSend, PriorDelivered, SendTime and FlagCmdAppLimited are the snapshot of its sending.
	CmdLost
	// CmdSacked marks Range as selectively acknowledged, for the segment log.
	CmdSacked
	// CmdProbe asks for a tail-loss probe: one new segment if there is one and the window allows, else the last segment again.
	CmdProbe
	// CmdReneged says that the peer reneged: all Sacked marks of the flow are void.
	CmdReneged
	// CmdNotLost says that the reduction was spurious: all Lost marks of the flow that were set before are void. What is still
	// lost follows as CmdLost. It precedes a CmdStatus with FlagUndo, if anything was marked.
	CmdNotLost
	// CmdEnd is one more than the last kind.
	CmdEnd
)

// Flags of a Command.
const (
	FlagRateValid uint32 = 1 << iota
	FlagRTTValid
	FlagCmdAppLimited
	FlagAckDelayed
	FlagEnter   // recovery was entered: a new reduction. Not set by a timeout within a recovery that is not over
	FlagExit    // recovery was left
	FlagUndo    // the last reduction was spurious
	FlagTimeout // this batch held a retransmission timeout
	FlagTLPLoss // a tail-loss probe repaired a loss: one congestion response without recovery
	FlagSpuriousProbe
	FlagSendNew     // F-RTO: answer this batch with up to two new segments, if there are any, before retransmissions (RFC 5682, 3.1 step 2b)
	FlagSackLimited // a SACK block was left aside in part, because it would have cut the queue into too many pieces
)

// AllCommandFlags are all flags of a Command.
const AllCommandFlags = FlagSackLimited<<1 - 1

// Kinds of timer. One at a time per flow.
const (
	TimerNone    uint8 = iota
	TimerRTO           // retransmission timeout (RFC 6298)
	TimerTLP           // tail-loss probe (RFC 8985, 7.2)
	TimerReorder       // RACK reordering (RFC 8985, 6.2 step 5)
)

// Congestion states, as in package cong.
const (
	CAOpen uint8 = iota
	CADisorder
	CACWR
	CARecovery
	CALoss
)

// Command is a retransmit-queue module's answer. 128 bytes, no pointers.
type Command struct {
	Flow           plugins.Flow
	AsOf           uint64 // ID of the last event of this flow that was taken into account
	Kind           uint8
	CA             uint8
	Timer          uint8
	Backoff        uint8 // consecutive timeouts
	Flags          uint32
	Aux            uint64 // CmdStatus: TimerAt; CmdLost and CmdSacked: Range
	TxID           uint32
	NewlyAcked     uint32 // bytes delivered by this batch
	NewlyLost      uint32 // bytes marked lost by this batch
	LostSinceSend  uint32
	InFlight       uint32 // bytes sent, not SACKed, not lost, plus retransmitted since lost
	LostOut        uint32 // bytes marked lost and not yet acknowledged
	SackedOut      uint32 // bytes SACKed above SND.UNA
	RTOUsec        uint32 // the present RTO in microseconds, back-off included
	TxInFlight     uint32
	RTTVarUsec     uint32
	Delivered      uint64
	PriorDelivered uint64
	Interval       time.Duration
	RTT            time.Duration // of the latest-sent acknowledged segment
	SRTT           time.Duration
	MinRTT         time.Duration
	SendTime       plugins.Time
}

// Range returns the range of CmdLost and CmdSacked.
func (c *Command) Range() seq.Range {
	return seq.Range{Start: uint32(c.Aux), End: uint32(c.Aux >> 32)}
}

// SetRange sets the range of CmdLost and CmdSacked.
func (c *Command) SetRange(r seq.Range) { c.Aux = uint64(r.Start) | uint64(r.End)<<32 }

// TimerAt returns the deadline of CmdStatus's timer.
func (c *Command) TimerAt() plugins.Time { return plugins.Time(c.Aux) }

// SetTimer sets CmdStatus's timer.
func (c *Command) SetTimer(kind uint8, at plugins.Time) { c.Timer, c.Aux = kind, uint64(at) }

// Module is a retransmit-queue module.
type Module = plugins.Module[Event, Command]

// New makes a retransmit-queue module.
type New = plugins.New[Event, Command]
