package sdk

import (
	"github.com/fastpath-tcp/fastpath/plugins/pace"
)

// What a pacing module is written with, so that its author imports this package only. Package pace documents the records.
type (
	PaceEvent  = pace.Event
	PaceLine   = pace.Line
	PaceModule = pace.Module
	NewPace    = pace.New
)

// Kinds of Event. See package pace.
const (
	PaceEvOpen   = pace.EvOpen
	PaceEvUpdate = pace.EvUpdate
	PaceEvResume = pace.EvResume
	PaceEvClose  = pace.EvClose
)

// PaceCreditOne is a credit fraction of 1 in Line.Credit.
const PaceCreditOne = pace.CreditOne
