package control

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// SwapRequest are the arguments of OpSwap: flows of a kind go to the module of the given name. Without a selection they are all flows,
// present and new.
type SwapRequest struct {
	Kind      string       `json:"kind"`
	Name      string       `json:"name"`
	NewOnly   bool         `json:"new_only,omitempty"` // flows that open from now on, no present ones
	Percent   int          `json:"percent,omitempty"`  // so many of a hundred, chosen by a hash of addresses and ports; 0: all
	Local     netip.Prefix `json:"local,omitzero"`
	LocalPort uint16       `json:"local_port,omitempty"`
	Peer      netip.Prefix `json:"peer,omitzero"`
	PeerPort  uint16       `json:"peer_port,omitempty"`
	DryRun    bool         `json:"dry_run,omitempty"` // change nothing, only count
	// With a trial the flows are watched for so long, and the swap is taken back if, against before, their goodput falls or their
	// round-trip time rises by more than so many percent (0: no bound), or the module fails.
	TrialNS               int64 `json:"trial_ns,omitempty"`
	MaxRTTIncreasePercent int   `json:"max_rtt_increase_percent,omitempty"`
	MaxGoodputDropPercent int   `json:"max_goodput_drop_percent,omitempty"`
	// ShadowNS is how long a congestion control or pacing module first gets the events of all flows besides the one that serves them, and
	// only tells what it would have decided. If it dies meanwhile or is late there is no swap.
	ShadowNS int64 `json:"shadow_ns,omitempty"`
	// To is the absolute path of a file with which the module is to go on, in place: with the flows and selections that it has. The file
	// must have the checksum ToSHA256. A dry run starts and checks the new code beside the old; a shadow is of the new code; a trial goes
	// back to the old one.
	To       string `json:"to,omitempty"`
	ToSHA256 string `json:"to_sha256,omitempty"`
}

// MaxTrial is the longest trial, and the longest time to watch a shadow.
const MaxTrial = 10 * time.Minute

// Selection is which flows the request is for.
func (r *SwapRequest) Selection() plugins.Selection {
	s := plugins.Selection{NewOnly: r.NewOnly, Percent: r.Percent, LocalPort: r.LocalPort, PeerPort: r.PeerPort}
	if r.Local.IsValid() {
		s.Local = r.Local.Masked()
	}
	if r.Peer.IsValid() {
		s.Peer = r.Peer.Masked()
	}
	return s
}

func (r *SwapRequest) check() error {
	if _, err := plugins.ParseKind(r.Kind); err != nil {
		return err
	}
	if r.Name == "" {
		return errors.New("the name of the module is missing")
	}
	if r.TrialNS < 0 || r.TrialNS > int64(MaxTrial) {
		return fmt.Errorf("a trial of %v is not within 0s…%v", time.Duration(r.TrialNS), MaxTrial)
	}
	if r.ShadowNS < 0 || r.ShadowNS > int64(MaxTrial) {
		return fmt.Errorf("a shadow of %v is not within 0s…%v", time.Duration(r.ShadowNS), MaxTrial)
	}
	if r.MaxRTTIncreasePercent < 0 || r.MaxGoodputDropPercent < 0 || r.MaxGoodputDropPercent > 100 {
		return errors.New("a bound of the trial is out of range")
	}
	if r.TrialNS == 0 && r.MaxRTTIncreasePercent+r.MaxGoodputDropPercent > 0 {
		return errors.New("bounds for a trial without its time")
	}
	if r.TrialNS > 0 && (r.DryRun || r.NewOnly) {
		return errors.New("a trial is for present flows, and no dry run")
	}
	if err := r.checkTo(); err != nil {
		return err
	}
	return r.Selection().Check()
}

func (r *SwapRequest) checkTo() error {
	switch sum, err := hex.DecodeString(r.ToSHA256); {
	case r.To == "" && r.ToSHA256 == "":
		return nil
	case !filepath.IsAbs(r.To):
		return fmt.Errorf("%q is no absolute path", r.To)
	case err != nil || len(sum) != 32:
		return errors.New("the checksum of the file is missing, or is no SHA-256")
	case r.NewOnly || !r.Selection().All():
		return errors.New("an upgrade in place is for the flows that the module has: it goes with no selection")
	}
	return nil
}

// SwapReply is the answer to OpSwap, once every worker has changed over.
type SwapReply struct {
	Kind    string `json:"kind"`
	From    string `json:"from"`    // the module that served new flows before
	To      string `json:"to"`      // the module that was swapped in; of an upgrade, its new version
	For     string `json:"for"`     // the selection, in words
	DryRun  bool   `json:"dry_run"` // nothing has changed: Flows would
	Flows   int    `json:"flows"`   // that changed owner
	Workers int    `json:"workers"`
	// GapNS is the longest time, over all workers, from the change of owner to the new module's first answer for a flow that was
	// handed over, in whole turns of the worker; meanwhile the flows keep their last window and rate. 0 if there was no flow.
	GapNS  int64   `json:"gap_ns"`
	TookNS int64   `json:"took_ns"` // from request until every worker has changed over, the start of a new process included; or the trial's end
	Trial  *Trial  `json:"trial,omitempty"`
	Shadow *Shadow `json:"shadow,omitempty"`
	SHA256 string  `json:"sha256,omitempty"` // of the file that an upgraded module runs from
}

// Shadow is what a congestion control or pacing module would have decided, had it served the flows whose events it saw.
type Shadow struct {
	Decisions uint64       `json:"decisions"`
	Lower     int          `json:"lower"`  // flows whose window, of pacing: rate, it would have made smaller
	Higher    int          `json:"higher"` // larger
	Flows     []ShadowFlow `json:"flows"`  // in the order of addresses, at most MaxShadowFlows
}

// MaxShadowFlows bounds Shadow.Flows.
const MaxShadowFlows = 100

// ShadowFlow is a flow of Shadow, at its end.
type ShadowFlow struct {
	Local          netip.AddrPort `json:"local"`
	Peer           netip.AddrPort `json:"peer"`
	CwndBytes      uint32         `json:"cwnd_bytes"`
	WouldCwndBytes uint32         `json:"would_cwnd_bytes"`
	PacingBPS      uint64         `json:"pacing_bps"` // 0: from window and round-trip time; of pacing: none
	WouldPacingBPS uint64         `json:"would_pacing_bps"`
}

// writeShadow writes what the module would have decided.
func writeShadow(w io.Writer, kind string, s *Shadow) error {
	what := "window"
	if kind == plugins.Pace.String() {
		what = "rate"
	}
	if _, err := fmt.Fprintf(w, "shadow: %d decisions; the %s of %d flows would be smaller, of %d larger\n", s.Decisions, what, s.Lower, s.Higher); err != nil {
		return err
	}
	rows := [][]string{{"LOCAL", "PEER", "CWND", "WOULD-BE", "PACING", "WOULD-BE"}}
	rate := func(bps uint64) string {
		if bps == 0 {
			return "-"
		}
		return fmt.Sprintf("%.4g Mbit/s", float64(bps)/1e6)
	}
	bytes := func(n uint32) string {
		if n == 0 {
			return "-"
		}
		return u(uint64(n))
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		rows = append(rows, []string{f.Local.String(), f.Peer.String(), bytes(f.CwndBytes), bytes(f.WouldCwndBytes), rate(f.PacingBPS), rate(f.WouldPacingBPS)})
	}
	return table(w, rows)
}

// Trial is how the flows that were there all the time did before a swap, and last.
type Trial struct {
	Flows            int    `json:"flows"`
	GoodputBeforeBPS uint64 `json:"goodput_before_bps"` // of all together
	GoodputBPS       uint64 `json:"goodput_bps"`
	RTTBeforeNS      int64  `json:"rtt_before_ns"` // mean of smoothed round-trip times
	RTTNS            int64  `json:"rtt_ns"`
	RolledBack       string `json:"rolled_back"` // why the swap was taken back; empty: it stands
}

// WriteSwap writes the result of `ctl swap`.
func WriteSwap(w io.Writer, r *SwapReply) error {
	if r.Shadow != nil {
		if err := writeShadow(w, r.Kind, r.Shadow); err != nil {
			return err
		}
	}
	if r.DryRun {
		_, err := fmt.Fprintf(w, "%s: %s → %s for %s would move %d flows on %d workers; nothing has changed\n", r.Kind, r.From, r.To, r.For, r.Flows, r.Workers)
		return err
	}
	if t := r.Trial; t != nil {
		verdict := "it stays"
		if t.RolledBack != "" {
			verdict = "rolled back: " + t.RolledBack
		}
		_, err := fmt.Fprintf(w, "trial of %v with %d flows: goodput %.4g → %.4g Mbit/s, RTT %s → %s; %s\n", time.Duration(r.TookNS).Round(time.Millisecond),
			t.Flows, float64(t.GoodputBeforeBPS)/1e6, float64(t.GoodputBPS)/1e6, dur(t.RTTBeforeNS), dur(t.RTTNS), verdict)
		if err != nil || t.RolledBack != "" {
			return err
		}
	}
	if r.SHA256 != "" {
		_, err := fmt.Fprintf(w, "%s: %s goes on as version %s (sha256:%s), %d flows on %d workers, gap %v, took %v\n", r.Kind, r.From, r.To, r.SHA256, r.Flows,
			r.Workers, time.Duration(r.GapNS), time.Duration(r.TookNS))
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s → %s for %s, %d flows on %d workers, gap %v, took %v\n", r.Kind, r.From, r.To, r.For, r.Flows, r.Workers,
		time.Duration(r.GapNS), time.Duration(r.TookNS))
	return err
}
