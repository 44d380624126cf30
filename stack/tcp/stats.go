package tcp

// Stats are an engine's counters. The worker owns them; others get copies.
type Stats struct {
	SegsIn, SegsOut             uint64
	BytesIn, BytesOut           uint64 // payload
	ActiveOpens, PassiveOpens   uint64
	AttemptFails, EstabResets   uint64
	Conns, TimeWaits            uint64 // gauges
	RetransSegs                 uint64
	RTOs                        uint64
	BackstopRTOs                uint64 // timeouts of the engine's own, because a module was silent
	TLPs                        uint64
	Recoveries, Undos           uint64
	LostSegs                    uint64
	OutRsts                     uint64
	ResetsLimited               uint64 // segments of no connection that got no reset, because there were too many
	NoPorts                     uint64
	PAWS                        uint64
	BadOptions                  uint64
	BadAcks                     uint64
	OutOfWindow                 uint64
	ChallengeAcks               uint64
	Coalesced                   uint64 // segments that were taken as part of the one before them in the same burst
	CoalescedBatches            uint64 // runs of such segments
	DelayedAcks, PureAcks       uint64
	OutOfOrder, DupSegs         uint64
	DSACKsSent, DSACKsRecv      uint64
	DSACKsDropped               uint64 // duplicates that were not reported, because too many came in bursts
	ZeroWindowProbes            uint64
	KeepaliveProbes             uint64
	SynRecvs                    uint64 // gauge: half-open connections
	ReqQFull                    uint64 // SYNs that found the SYN queue full
	ListenOverflows             uint64 // SYNs and last ACKs of handshakes that found the accept queue full
	ListenDrops                 uint64 // SYNs and last ACKs of handshakes that were dropped, for whatever reason
	EcnOpens, AccEcnOpens       uint64 // connections that negotiated classic ECN, AccECN
	EcnFallbacks                uint64 // active opens that were answered only when their SYN did not ask for ECN
	CEIn                        uint64 // segments of connections with ECN that came with a congestion mark
	ECEIn                       uint64 // acknowledgements that reported marks
	EcnReductions               uint64 // windows reduced for marks
	FastOpenActive              uint64 // SYNs whose data was taken by the peer
	FastOpenActiveFails         uint64 // ... was not
	FastOpenPassive             uint64 // connections opened by a SYN with a good cookie
	FastOpenPassiveFails        uint64 // SYNs with a bad cookie
	FastOpenOverflows           uint64 // SYNs with a good cookie that found too many connections whose handshake is not over
	FastOpenCookies             uint64 // SYNs that asked for a cookie
	SyncookiesSent              uint64
	SyncookiesRecv              uint64 // acknowledgements of cookies
	SyncookiesFailed            uint64 // acknowledgements that were none, while cookies were expected
	RcvMemDrops                 uint64 // segments dropped for want of memory
	RcvPieceDrops               uint64 // segments out of order that were dropped because there were too many pieces of what is missing
	RcvPruned                   uint64 // times that out-of-order data was dropped to make room for the next bytes
	SndMemWaits                 uint64 // times that a writer waited for memory
	LargeFrames                 uint64 // of several segments, which the port cut
	TsoDefers                   uint64 // times that what the windows allowed waited for an acknowledgement, to be more
	NoBuffers                   uint64 // times that output waited for a buffer
	TxFull                      uint64 // times that output waited for room in the TX FIFO
	AbortOnClose, AbortOnData   uint64
	AbortOnTimeout              uint64
	AbortOnMemory               uint64 // closed by the application while too many such were open, or memory was out
	Orphans                     uint64 // gauge: closed by the application and not over
	TimeWaitOverflows           uint64 // connections that went without TIME-WAIT, because there were too many
	TimeWaitReuses              uint64 // connections that we opened in place of one in TIME-WAIT
	ChallengesLimited           uint64 // challenges not sent, because there were too many
	BadCommands                 uint64 // commands of modules that were refused
	StaleDecisions              uint64 // decisions older than the flow's barrier
	Resumes                     uint64
	PacingTimers                uint64 // timers armed because a flow with data to send waited for its departure
	HorizonRefusals             uint64 // times that writers had to wait because the next departure lay too far ahead
	SmallQueueWaits             uint64 // times that a flow waited because it had too much in the port's queue
	PortLate                    uint64 // times that a flow had waited for the port for 2 ms, and went on without it
	BacklogWaits                uint64 // times that output stopped because FIFO and port had enough to stay busy
	AutoCorking                 uint64 // writes that waited to be joined by others, because the port was busy (TCPAutoCorking)
	SackIgnored                 uint64 // SACK blocks that cannot be true
	SackLimited                 uint64 // times that SACK blocks would have cut what is outstanding into too many pieces
	SmallMSS                    uint64 // SYNs and SYN-ACKs whose MSS was so small that the least useful one counts
	AppLimitedMarks, IdleStarts uint64
	UserTimeouts                uint64 // user timeouts that peers advertised, and that were looked at (RFC 5482)
	TooBigs, TooBigsIgnored     uint64 // routers' words about the path's MTU that quote something in flight
	PathShrinks                 uint64 // times that segments became smaller
	BlackHoles                  uint64 // ... because timeout followed timeout
	PathProbes                  uint64 // larger segments sent to find out whether they arrive
	PathProbesAcked             uint64
	PathProbesLost              uint64
}

// Add adds o to s, field by field.
func (s *Stats) Add(o *Stats) {
	dst, src := s.Fields(), o.Fields()
	for i := range dst {
		*dst[i].Value += *src[i].Value
	}
}
