package host

import (
	"errors"
	"fmt"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// class is what an event means for the ownership of its flow.
type class uint8

const (
	other   class = iota
	takes         // Open, Resume: the module has the flow from here on
	givesUp       // Close
)

// schema tells a Remote about the records of a kind.
type schema[E, C any] struct {
	kind plugins.Kind
	// perEvent is how many commands an event may cause, over a long time: of rtx, what it says of the segments of a transmission.
	perEvent int
	// event returns an event's flow, id and class.
	event func(*E) (plugins.Flow, uint64, class)
	// close returns the event that ends a flow.
	close func(flow plugins.Flow, id uint64, now plugins.Time) E
	// command returns a command's flow and AsOf.
	command func(*C) (plugins.Flow, uint64)
	// check returns an error for a command that no module of the protocol can say. What is merely out of date or out of a
	// flow's window is for the engine, which treats linked-in modules alike.
	check func(*C) error
}

var errRecord = errors.New("invalid record")

var congSchema = schema[cong.Sample, cong.Decision]{
	kind: plugins.Cong, perEvent: 2,
	event: func(e *cong.Sample) (plugins.Flow, uint64, class) {
		switch e.Kind {
		case cong.KindOpen, cong.KindResume:
			return e.Flow, e.ID, takes
		case cong.KindClose:
			return e.Flow, e.ID, givesUp
		}
		return e.Flow, e.ID, other
	},
	close: func(f plugins.Flow, id uint64, now plugins.Time) cong.Sample {
		return cong.Sample{Flow: f, ID: id, Now: now, Kind: cong.KindClose}
	},
	command: func(c *cong.Decision) (plugins.Flow, uint64) { return c.Flow, c.AsOf },
	check: func(c *cong.Decision) error {
		if c.Flags&^(cong.WantsPRR|cong.MarkAppLimited|cong.EnterCWR) != 0 {
			return fmt.Errorf("%w: unknown flags %#x in a decision", errRecord, c.Flags)
		}
		return nil
	},
}

var paceSchema = schema[pace.Event, pace.Line]{
	kind: plugins.Pace, perEvent: 2,
	event: func(e *pace.Event) (plugins.Flow, uint64, class) {
		switch e.Kind {
		case pace.EvOpen, pace.EvResume:
			return e.Flow, e.ID, takes
		case pace.EvClose:
			return e.Flow, e.ID, givesUp
		}
		return e.Flow, e.ID, other
	},
	close: func(f plugins.Flow, id uint64, now plugins.Time) pace.Event {
		return pace.Event{Flow: f, ID: id, Time: now, Kind: pace.EvClose}
	},
	command: func(c *pace.Line) (plugins.Flow, uint64) { return c.Flow, c.AsOf },
	check: func(c *pace.Line) error {
		switch {
		case c.Rate == 0:
			return fmt.Errorf("%w: a pacing line of rate 0", errRecord)
		case c.Horizon < 0:
			return fmt.Errorf("%w: a negative horizon", errRecord)
		case c.Credit > pace.CreditOne:
			return fmt.Errorf("%w: credit %d above one (%d)", errRecord, c.Credit, pace.CreditOne)
		}
		return nil
	},
}

var rtxSchema = schema[rtx.Event, rtx.Command]{
	kind: plugins.Rtx, perEvent: 32,
	event: func(e *rtx.Event) (plugins.Flow, uint64, class) {
		switch e.Kind {
		case rtx.EvOpen, rtx.EvResume:
			return e.Flow, e.ID, takes
		case rtx.EvClose:
			return e.Flow, e.ID, givesUp
		}
		return e.Flow, e.ID, other
	},
	close: func(f plugins.Flow, id uint64, now plugins.Time) rtx.Event {
		return rtx.Event{Flow: f, ID: id, Time: now, Kind: rtx.EvClose}
	},
	command: func(c *rtx.Command) (plugins.Flow, uint64) { return c.Flow, c.AsOf },
	check:   checkRtx,
}

func checkRtx(c *rtx.Command) error {
	switch {
	case c.Kind < rtx.CmdStatus || c.Kind >= rtx.CmdEnd:
		return fmt.Errorf("%w: unknown command %d", errRecord, c.Kind)
	case c.CA > rtx.CALoss:
		return fmt.Errorf("%w: unknown congestion state %d", errRecord, c.CA)
	case c.Timer > rtx.TimerReorder:
		return fmt.Errorf("%w: unknown timer %d", errRecord, c.Timer)
	case c.Flags&^rtx.AllCommandFlags != 0:
		return fmt.Errorf("%w: unknown flags %#x in a command", errRecord, c.Flags)
	case c.Interval < 0 || c.RTT < 0 || c.SRTT < 0 || c.MinRTT < 0:
		return fmt.Errorf("%w: a negative duration", errRecord)
	}
	if c.Kind == rtx.CmdLost || c.Kind == rtx.CmdSacked {
		// Sequence numbers wrap; a range runs forwards, over less than half of their space (RFC 9293, 3.4).
		if r := c.Range(); int32(r.End-r.Start) <= 0 {
			return fmt.Errorf("%w: range [%d, %d) runs backwards", errRecord, r.Start, r.End)
		}
	}
	return nil
}
