package sdk

import (
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
	"github.com/fastpath-tcp/fastpath/stack/seq"
)

// What a retransmit queue is written with, so that its author imports this package only. Package rtx documents the records.
type (
	RtxEvent   = rtx.Event
	RtxCommand = rtx.Command
	RtxModule  = rtx.Module
	NewRtx     = rtx.New
	RtxRange   = seq.Range // of sequence numbers
)

// Kinds of Event. See package rtx.
const (
	RtxEvOpen   = rtx.EvOpen
	RtxEvSent   = rtx.EvSent
	RtxEvAck    = rtx.EvAck
	RtxEvTimer  = rtx.EvTimer
	RtxEvResume = rtx.EvResume
	RtxEvLog    = rtx.EvLog
	RtxEvClose  = rtx.EvClose
)

// Flags of an Event. See package rtx.
const (
	RtxFlagRetrans    = rtx.FlagRetrans
	RtxFlagProbe      = rtx.FlagProbe
	RtxFlagAppLimited = rtx.FlagAppLimited
	RtxFlagFIN        = rtx.FlagFIN
	RtxFlagDup        = rtx.FlagDup
	RtxFlagECE        = rtx.FlagECE
	RtxFlagNoSACK     = rtx.FlagNoSACK
	RtxFlagNoTS       = rtx.FlagNoTS
)

// Marks of a segment in the log. See package rtx.
const (
	RtxMarkSacked  = rtx.MarkSacked
	RtxMarkLost    = rtx.MarkLost
	RtxMarkRetrans = rtx.MarkRetrans
)

// Kinds of Command. See package rtx.
const (
	RtxCmdStatus  = rtx.CmdStatus
	RtxCmdLost    = rtx.CmdLost
	RtxCmdSacked  = rtx.CmdSacked
	RtxCmdProbe   = rtx.CmdProbe
	RtxCmdReneged = rtx.CmdReneged
	RtxCmdNotLost = rtx.CmdNotLost
	RtxCmdEnd     = rtx.CmdEnd
)

// Flags of a Command. See package rtx.
const (
	RtxFlagRateValid     = rtx.FlagRateValid
	RtxFlagRTTValid      = rtx.FlagRTTValid
	RtxFlagCmdAppLimited = rtx.FlagCmdAppLimited
	RtxFlagAckDelayed    = rtx.FlagAckDelayed
	RtxFlagEnter         = rtx.FlagEnter
	RtxFlagExit          = rtx.FlagExit
	RtxFlagUndo          = rtx.FlagUndo
	RtxFlagTimeout       = rtx.FlagTimeout
	RtxFlagTLPLoss       = rtx.FlagTLPLoss
	RtxFlagSpuriousProbe = rtx.FlagSpuriousProbe
	RtxFlagSendNew       = rtx.FlagSendNew
	RtxFlagSackLimited   = rtx.FlagSackLimited
)

// Kinds of timer. One at a time per flow. See package rtx.
const (
	RtxTimerNone    = rtx.TimerNone
	RtxTimerRTO     = rtx.TimerRTO
	RtxTimerTLP     = rtx.TimerTLP
	RtxTimerReorder = rtx.TimerReorder
)

// Congestion states, as in package cong. See package rtx.
const (
	RtxCAOpen     = rtx.CAOpen
	RtxCADisorder = rtx.CADisorder
	RtxCACWR      = rtx.CACWR
	RtxCARecovery = rtx.CARecovery
	RtxCALoss     = rtx.CALoss
)

// RtxFlagLast ends the replay of a log. It shares its bit with FlagDup, which only EvAck uses.
const RtxFlagLast = rtx.FlagLast

// RtxMaxSack is the largest number of SACK blocks in one acknowledgement (RFC 2018).
const RtxMaxSack = rtx.MaxSack

// RtxAllCommandFlags are all flags of a Command.
const RtxAllCommandFlags = rtx.AllCommandFlags
