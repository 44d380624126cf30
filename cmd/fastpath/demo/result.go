package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// Transfer is one act.
type Transfer struct {
	Bytes    int64   `json:"bytes"`
	TookNS   int64   `json:"took_ns"`
	GbitPerS float64 `json:"gbit_per_s"` // of payload
	SHA256   string  `json:"sha256"`     // of what arrived; equal to what was sent
}

func transfer(n int64, took time.Duration) Transfer {
	return Transfer{Bytes: n, TookNS: took.Nanoseconds(), GbitPerS: float64(n) * 8 / float64(took.Nanoseconds())}
}

// Result is what the demo prints.
type Result struct {
	Version  string   `json:"version"`
	Driver   string   `json:"driver"`
	Download Transfer `json:"download"`
	Upload   Transfer `json:"upload"`

	Retransmits uint64 `json:"retransmits"` // segments of the download sent again
	SRTTUsec    int64  `json:"srtt_usec"`   // at the end of the download
	MinRTTUsec  int64  `json:"min_rtt_usec"`

	SwapFlows    int     `json:"swap_flows"`
	SwapGapUsec  float64 `json:"swap_gap_usec"` // longest loop-boundary work of the change of owner
	KilledPID    int     `json:"killed_pid"`
	RecoveredPID int     `json:"recovered_pid"`
	FallbackUsec float64 `json:"fallback_usec"` // from the kill until the fallback served
	RecoveryMsec float64 `json:"recovery_msec"` // from the kill until a new process served

	Plot            string `json:"plot"`
	Capture         string `json:"capture"`
	CapturedFrames  int    `json:"captured_frames"`
	MalformedFrames int    `json:"malformed_frames"`
	Judged          bool   `json:"judged"` // by tshark

	killed time.Time
}

// connection takes the figures of the download's connection.
func (r *Result) connection(c control.Conn) {
	r.Retransmits = c.RetransTotal
	r.SRTTUsec, r.MinRTTUsec = c.SRTTNS/1000, c.MinRTTNS/1000
}

func (r *Result) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *Result) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(t, "\nfastpath %s, driver %s\n", r.Version, r.Driver)
	row("download", "%d bytes in %.2f s, %.3f Gbit/s, SHA-256 right", r.Download.Bytes, seconds(r.Download), r.Download.GbitPerS)
	row("upload", "%d bytes in %.2f s, %.3f Gbit/s, SHA-256 right", r.Upload.Bytes, seconds(r.Upload), r.Upload.GbitPerS)
	row("retransmits", "%d segments", r.Retransmits)
	row("RTT", "%d µs smoothed, %d µs minimum", r.SRTTUsec, r.MinRTTUsec)
	row("swap bbr → cdg", "%d flow(s), gap %.1f µs", r.SwapFlows, r.SwapGapUsec)
	row("module killed", "process %d; fallback after %.0f µs, process %d served after %.1f ms", r.KilledPID, r.FallbackUsec, r.RecoveredPID, r.RecoveryMsec)
	row("plot", "%s", r.Plot)
	if r.Judged {
		row("capture", "%s: %d frames, %d malformed (tshark)", r.Capture, r.CapturedFrames, r.MalformedFrames)
	} else {
		row("capture", "%s (not judged: no tshark)", r.Capture)
	}
	return t.Flush()
}

func seconds(t Transfer) float64 { return float64(t.TookNS) / 1e9 }
