package congtest

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// Hand drives one flow of a module with hand-made samples. The embedded Sample is the flow's state: it is the base of each
// sample, and window and threshold follow the answers.
type Hand struct {
	cong.Sample
	M cong.Module

	t testing.TB
}

// NewHand returns a flow that is to be opened; its fields may be set before.
func NewHand(t testing.TB, m cong.Module, mss uint32) *Hand {
	return &Hand{t: t, M: m, Sample: cong.Sample{
		Flow: plugins.Flow{Slot: 1, Gen: 1}, Now: Start, MSS: mss, Cwnd: 10 * mss, Ssthresh: cong.InfiniteSsthresh,
	}}
}

// Send sends the flow's state as a sample of the given kind, and clears Flags and the counts of the batch.
func (h *Hand) Send(kind uint8) cong.Decision {
	h.t.Helper()
	h.Kind = kind
	h.ID++
	d, ok := ask(h.M, &h.Sample)
	if !ok || d.AsOf != h.ID || d.Flow != h.Flow {
		h.t.Fatalf("answer %+v (there is one: %v) to %+v", d, ok, h.Sample)
	}
	h.Cwnd, h.Ssthresh = d.Cwnd, d.Ssthresh
	h.Flags, h.Acked, h.Lost, h.Marked = 0, 0, 0, 0
	return d
}

// Ack sends an acknowledgement of n bytes, with the window used up before and after.
func (h *Hand) Ack(n uint32, flags uint16) cong.Decision {
	h.t.Helper()
	h.Acked, h.Flags = n, h.Flags|flags|cong.FlagCwndLimited
	h.Delivered += uint64(n)
	h.PriorInFlight, h.InFlight = h.Cwnd, h.Cwnd-min(h.Cwnd, n)
	return h.Send(cong.KindAck)
}

// Enter sends an acknowledgement with which congestion state ca is entered.
func (h *Hand) Enter(ca uint8, flags uint16) cong.Decision {
	h.t.Helper()
	h.CA = ca
	return h.Ack(0, cong.FlagEnter|flags)
}

// Exit sends an acknowledgement with which the congestion state ends.
func (h *Hand) Exit(flags uint16) cong.Decision {
	h.t.Helper()
	h.CA = cong.CAOpen
	return h.Ack(0, cong.FlagExit|flags)
}

// Timeout sends a retransmission timeout.
func (h *Hand) Timeout() cong.Decision {
	h.t.Helper()
	h.CA = cong.CALoss
	h.PriorInFlight, h.InFlight = h.Cwnd, h.Cwnd
	d := h.Send(cong.KindTimeout)
	h.InFlight = 0
	return d
}
