package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SSRequest are the arguments of OpSS. Empty fields select everything.
type SSRequest struct {
	// States are names as in Conn.State. Without any, all but LISTEN and TIME-WAIT are meant, as with ss(8).
	States []string `json:"states,omitempty"`
	// Local and Peer select by address prefix; LocalPort and PeerPort by port.
	Local     netip.Prefix `json:"local,omitzero"`
	Peer      netip.Prefix `json:"peer,omitzero"`
	LocalPort uint16       `json:"local_port,omitempty"`
	PeerPort  uint16       `json:"peer_port,omitempty"`
	// UDP selects UDP sockets, of all states, instead of connections.
	UDP bool `json:"udp,omitempty"`
	// Limit is the largest number of connections in the reply; 0: DefaultLimit.
	Limit int `json:"limit,omitempty"`
}

// DefaultLimit is the number of connections that a reply to OpSS holds at most unless the request says otherwise.
const DefaultLimit = 10000

// States of a connection, as ss(8) names them.
const (
	StateListen      = "LISTEN"
	StateSynSent     = "SYN-SENT"
	StateSynReceived = "SYN-RECV"
	StateEstablished = "ESTAB"
	StateFinWait1    = "FIN-WAIT-1"
	StateFinWait2    = "FIN-WAIT-2"
	StateCloseWait   = "CLOSE-WAIT"
	StateClosing     = "CLOSING"
	StateLastAck     = "LAST-ACK"
	StateTimeWait    = "TIME-WAIT"
	StateUnconnected = "UNCONN" // of UDP
)

var states = []string{StateListen, StateSynSent, StateSynReceived, StateEstablished, StateFinWait1, StateFinWait2,
	StateCloseWait, StateClosing, StateLastAck, StateTimeWait, StateUnconnected}

func (r *SSRequest) check() error {
	for _, s := range r.States {
		if !slices.Contains(states, s) {
			return fmt.Errorf("unknown state %q", s)
		}
	}
	if r.Limit < 0 {
		return fmt.Errorf("limit %d is negative", r.Limit)
	}
	if r.Limit == 0 {
		r.Limit = DefaultLimit
	}
	return nil
}

// Match reports whether r selects a connection in the given state with the given addresses.
func (r *SSRequest) Match(state string, local, peer netip.AddrPort) bool {
	if len(r.States) == 0 && (state == StateListen || state == StateTimeWait) ||
		len(r.States) > 0 && !slices.Contains(r.States, state) {
		return false
	}
	return (!r.Local.IsValid() || r.Local.Contains(local.Addr())) && (!r.Peer.IsValid() || r.Peer.Contains(peer.Addr())) &&
		(r.LocalPort == 0 || r.LocalPort == local.Port()) && (r.PeerPort == 0 || r.PeerPort == peer.Port())
}

// SSReply is the answer to OpSS.
type SSReply struct {
	TimeUnixNS int64  `json:"time_unix_ns"` // when the snapshot was taken
	Conns      []Conn `json:"conns"`
	Omitted    int    `json:"omitted"` // connections beyond the limit
}

// Conn is one connection or listener. Counters start at its opening. A figure that is not known is 0.
type Conn struct {
	State  string         `json:"state"`
	Local  netip.AddrPort `json:"local"`
	Peer   netip.AddrPort `json:"peer"` // 0.0.0.0:0 for a listener
	Worker int            `json:"worker"`
	Slot   uint32         `json:"slot"` // plugins.Flow
	Gen    uint32         `json:"gen"`

	// RecvQBytes is received data that the application has not read; for a listener, connections that wait for Accept.
	RecvQBytes uint64 `json:"recv_q_bytes"`
	// SendQBytes is data that the application wrote and the peer has not acknowledged; for a listener, the backlog.
	SendQBytes uint64 `json:"send_q_bytes"`

	Timer *Timer `json:"timer,omitempty"` // the timer that runs
	Rtx   string `json:"rtx"`             // modules that serve the flow
	Pace  string `json:"pace"`
	Cong  string `json:"cong"`

	Timestamps bool  `json:"timestamps"` // options in use
	SACK       bool  `json:"sack"`
	ECN        bool  `json:"ecn"`
	AccECN     bool  `json:"accecn"`   // ... with accurate feedback
	ECNSeen    bool  `json:"ecn_seen"` // the peer has sent data as ECN-capable
	FastOpen   bool  `json:"fastopen"` // data in the SYN was taken
	WScale     bool  `json:"wscale"`
	SndWScale  uint8 `json:"snd_wscale"` // shift of the windows that the peer announces
	RcvWScale  uint8 `json:"rcv_wscale"` // shift of ours

	RTONS    int64 `json:"rto_ns"`
	Backoff  int   `json:"backoff"` // consecutive timeouts
	SRTTNS   int64 `json:"srtt_ns"`
	RTTVarNS int64 `json:"rttvar_ns"`
	MinRTTNS int64 `json:"min_rtt_ns"`
	RcvRTTNS int64 `json:"rcv_rtt_ns"` // as the receiver estimates it
	ATONS    int64 `json:"ato_ns"`     // delayed acknowledgement

	MSSBytes      uint32 `json:"mss_bytes"` // payload of a full segment, sent
	PMTUBytes     uint32 `json:"pmtu_bytes"`
	RcvMSSBytes   uint32 `json:"rcv_mss_bytes"` // payload of a full segment, received
	AdvMSSBytes   uint32 `json:"adv_mss_bytes"` // announced to the peer
	CwndBytes     uint32 `json:"cwnd_bytes"`
	SsthreshBytes uint32 `json:"ssthresh_bytes"` // 0: none yet

	SentBytes     uint64 `json:"sent_bytes"`    // payload, retransmissions included
	RetransBytes  uint64 `json:"retrans_bytes"` // payload sent again
	AckedBytes    uint64 `json:"acked_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
	SegsOut       uint64 `json:"segs_out"`
	SegsIn        uint64 `json:"segs_in"`
	DataSegsOut   uint64 `json:"data_segs_out"`
	DataSegsIn    uint64 `json:"data_segs_in"`

	CongInfo []Figure `json:"cong_info,omitempty"` // the algorithm's own state, in its own order

	LastSndNS      int64  `json:"last_snd_ns"` // time since data was last sent
	LastRcvNS      int64  `json:"last_rcv_ns"` // time since data was last received
	LastAckNS      int64  `json:"last_ack_ns"` // time since the last acknowledgement
	SendBPS        uint64 `json:"send_bps"`    // MSS × cwnd / SRTT
	PacingBPS      uint64 `json:"pacing_bps"`  // 0: not paced
	MaxPacingBPS   uint64 `json:"max_pacing_bps"`
	DeliveryBPS    uint64 `json:"delivery_bps"`
	DeliveredBytes uint64 `json:"delivered_bytes"`
	DeliveredCE    uint64 `json:"delivered_ce"` // segments that arrived with a congestion mark, as AccECN tells
	AppLimited     bool   `json:"app_limited"`  // the delivery rate is the application's, not the path's

	BusyNS          int64 `json:"busy_ns"` // time with data outstanding
	RwndLimitedNS   int64 `json:"rwnd_limited_ns"`
	SndbufLimitedNS int64 `json:"sndbuf_limited_ns"`

	Unacked      uint32 `json:"unacked"` // segments sent and not acknowledged cumulatively
	Retrans      uint32 `json:"retrans"` // segments sent again and outstanding
	RetransTotal uint64 `json:"retrans_total"`
	Lost         uint32 `json:"lost"`   // segments marked lost
	Sacked       uint32 `json:"sacked"` // segments acknowledged selectively
	DSACKDups    uint64 `json:"dsack_dups"`
	Reordering   uint32 `json:"reordering"` // segments that one was overtaken by at most; 3 before any was
	ReordSeen    uint64 `json:"reord_seen"` // acknowledgements that told of it

	InFlightBytes    uint32 `json:"in_flight_bytes"`
	NotSentBytes     uint64 `json:"not_sent_bytes"`
	RcvSpaceBytes    uint64 `json:"rcv_space_bytes"`
	RcvSsthreshBytes uint64 `json:"rcv_ssthresh_bytes"`
	RcvOOOSegs       uint64 `json:"rcv_ooo_segs"` // segments that arrived out of order
	SndWndBytes      uint64 `json:"snd_wnd_bytes"`
	RcvWndBytes      uint64 `json:"rcv_wnd_bytes"`

	// Of UDP sockets, whose queues are in bytes of memory: Drops are datagrams that found no room.
	DatagramsIn  uint64 `json:"datagrams_in,omitempty"`
	DatagramsOut uint64 `json:"datagrams_out,omitempty"`
	Drops        uint64 `json:"drops,omitempty"`
}

// Timer is a running timer of a connection.
type Timer struct {
	Kind        string `json:"kind"` // "rto", "tlp", "reorder", "persist", "keepalive", "timewait", "delack", "pace"
	ExpiresInNS int64  `json:"expires_in_ns"`
}

// Figure is one named value, already in text form with its unit: {"bw","1234bps"}. A figure without a value is a flag that is set.
type Figure struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ParseFigures reads the form in which modules describe their state, which is that of ss(8): "bbr:(bw:1234bps,mrtt:0.027,flag)".
func ParseFigures(text string) []Figure {
	if i := strings.Index(text, "("); i >= 0 {
		text = strings.TrimSuffix(text[i+1:], ")")
	}
	if text == "" {
		return nil
	}
	var figures []Figure
	for f := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(f, ":")
		figures = append(figures, Figure{name, value})
	}
	return figures
}
