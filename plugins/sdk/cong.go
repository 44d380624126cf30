package sdk

import (
	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
)

// What a congestion control is written with, so that its author imports this package only. Package cong documents the records.
type (
	Sample     = cong.Sample
	Decision   = cong.Decision
	CongModule = cong.Module
	NewCong    = cong.New
)

// Kinds of Sample. See package cong.
const (
	KindOpen    = cong.KindOpen
	KindAck     = cong.KindAck
	KindLost    = cong.KindLost
	KindTimeout = cong.KindTimeout
	KindRestart = cong.KindRestart
	KindResume  = cong.KindResume
	KindClose   = cong.KindClose
)

// Flags of a Sample. See package cong.
const (
	FlagAppLimited  = cong.FlagAppLimited
	FlagCwndLimited = cong.FlagCwndLimited
	FlagRateValid   = cong.FlagRateValid
	FlagRTTValid    = cong.FlagRTTValid
	FlagAckDelayed  = cong.FlagAckDelayed
	FlagEnter       = cong.FlagEnter
	FlagExit        = cong.FlagExit
	FlagUndo        = cong.FlagUndo
	FlagECE         = cong.FlagECE
	FlagSacked      = cong.FlagSacked
	FlagNoSACK      = cong.FlagNoSACK
	FlagPaced       = cong.FlagPaced
)

// Congestion states of the engine, as Linux names them. See package cong.
const (
	CAOpen     = cong.CAOpen
	CADisorder = cong.CADisorder
	CACWR      = cong.CACWR
	CARecovery = cong.CARecovery
	CALoss     = cong.CALoss
)

// Flags of a Decision. See package cong.
const (
	WantsPRR       = cong.WantsPRR
	MarkAppLimited = cong.MarkAppLimited
	EnterCWR       = cong.EnterCWR
)

// InfiniteSsthresh is the slow-start threshold before the first reduction.
const InfiniteSsthresh = cong.InfiniteSsthresh

// Each makes a congestion control of one function of a flow's state, a sample and the decision that it leads to. See cong.Each.
func Each[S any](step func(state *S, in *Sample, out *Decision)) CongModule { return cong.Each(step) }

// MulDiv is a*b/c with 128 bits between. See cong.MulDiv.
func MulDiv(a, b, c uint64) uint64 { return cong.MulDiv(a, b, c) }

// Types that all kinds share. See package plugins.
type (
	Time   = plugins.Time
	Flow   = plugins.Flow
	Info   = plugins.Info
	Param  = plugins.Param
	Values = plugins.Params // parameters as the configuration gives them: what a factory gets
)

// Features of the host that a module may need: see plugins.Features.
const (
	FeaturePacing = plugins.FeaturePacing
	FeatureECN    = plugins.FeatureECN
	FeatureLost   = plugins.FeatureLost
	FeatureReplay = plugins.FeatureReplay
)

// Kinds of modules, a time that does not come, and a rate without limit. See package plugins.
const (
	Rtx       = plugins.Rtx
	Pace      = plugins.Pace
	Cong      = plugins.Cong
	Never     = plugins.Never
	Unlimited = plugins.Unlimited
)
