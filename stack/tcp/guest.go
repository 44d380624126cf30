package tcp

import (
	"math"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Guest is a flow of another protocol in the fair queue. It takes turns with connections, and what it has in FIFO and port counts towards the
// backlog as theirs does, so that one that has always something to send holds nobody up for longer than a connection could. Only the
// worker's goroutine touches it.
type Guest struct {
	Flow GuestFlow // set before QueueGuest

	credit   int32
	lastSend plugins.Time
	inReady  bool
}

// GuestFlow is what a Guest sends.
type GuestFlow interface {
	// SendSome puts packets of about most bytes into the FIFO, and one at least if there are any. It returns how many bytes, PacketCost for
	// each packet's headers included.
	SendSome(most uint32) (sent uint32, left GuestLeft)
}

// PacketCost is what a packet's headers cost.
const PacketCost = segCost

// GuestLeft is what is left of a guest after its turn.
type GuestLeft uint8

// Values of GuestLeft.
const (
	GuestEmpty GuestLeft = iota // nothing
	GuestMore                   // more packets
	GuestFull                   // packets for which there was no room, or no buffer
)

// guestSlot stands for all guests where connections have their slots.
const guestSlot = math.MaxUint32

// QueueGuest queues g for output, unless it is queued.
func (e *Engine) QueueGuest(g *Guest) {
	if g.inReady {
		return
	}
	switch {
	case g.lastSend == 0: // a new one
		g.credit = firstCredit
	case g.credit < credit && e.now.Sub(g.lastSend) > refillDelay:
		g.credit = credit
	}
	e.ready.add(&e.ready.fresh, flow{g: g})
}

// serveGuest is g's turn. It reports whether others may have theirs.
func (e *Engine) serveGuest(g *Guest, from *flowQueue) bool {
	before := e.env.Fifo.Pushed()
	size, left := g.Flow.SendSome(min(uint32(g.credit), e.port.backlog.room()))
	frames := e.env.Fifo.Pushed() - before
	if size > 0 {
		g.credit -= int32(size)
		g.lastSend = e.now
		if frames > 0 { // else they wait for a link address
			e.port.entered(sending{slot: guestSlot, size: size, frames: frames, end: e.env.Fifo.Pushed(), at: stamp(e.now)})
		}
	}
	switch left {
	case GuestMore:
		e.goesOn(flow{g: g}, from)
	case GuestFull:
		e.Stats.TxFull++
		e.stays(flow{g: g}, from)
		e.fullStop = true
		return false
	}
	return true
}
