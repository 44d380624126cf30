package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/capture"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

func (c *ctl) capture() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capture -w FILE",
		Short: "Capture frames of the running daemon as pcapng",
		Long: `Capture frames of the running daemon as pcapng, until --count frames were written or the command is interrupted.
Frames that come faster than they can be written are dropped and counted, the daemon is not slowed down.

Where a port computes checksums (afpacket, tap and DPDK ports with the offload tx_csum, see "fastpath ctl stat"), frames are captured before
it does: those that the daemon sent then show wrong checksums, which is no error.

Filters are those of tcpdump, as far as they are about addresses, ports, protocols, TCP flags and lengths:
  tcp and port 80 and not host 10.7.0.9
  src net 10.7.0.0/24 and (tcp-syn or tcp-fin)`,
		Example: `  fastpath ctl capture -w flow.pcapng --filter "tcp and port 80" --count 1000 --snaplen 128
  fastpath ctl capture -w - | tshark -r -`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	file := f.StringP("write", "w", "", `file to write, "-" for the standard output`)
	var r control.CaptureRequest
	f.StringVar(&r.Filter, "filter", "", "only frames that this expression matches")
	f.IntVar(&r.Count, "count", 0, "stop after so many frames (default: go on)")
	f.IntVar(&r.SnapLen, "snaplen", 0, "keep only so many bytes of each frame (default: all)")
	f.StringVar(&r.Port, "port", "", "only this port of the daemon (default: all)")
	asJSON := f.Bool("json", false, "print the summary as JSON")
	_ = cmd.MarkFlagRequired("write")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := capture.Parse(r.Filter); err != nil { // before the file is touched
			return err
		}
		out, summary := cmd.OutOrStdout(), cmd.ErrOrStderr()
		if *file != "-" {
			f, err := os.OpenFile(*file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			if err != nil {
				return err
			}
			defer f.Close()
			out, summary = f, out
		}
		w := &captureWriter{out: out, snapLen: r.SnapLen, ifaces: map[string]int{}, live: *file == "-"}
		var sum control.CaptureSummary
		err := c.stream(cmd.Context(), control.OpCapture, r, w.item, &sum)
		if err = errors.Join(err, w.flush()); err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(summary, &sum)
		}
		_, err = fmt.Fprintf(summary, "%d frames written, %d dropped, %d seen by the filter\n", w.frames, sum.Dropped, sum.Seen)
		return err
	}
	return cmd
}

// captureWriter writes frames as pcapng, with an interface for each port of the daemon.
type captureWriter struct {
	out     io.Writer
	snapLen int
	ng      *pcapgo.NgWriter
	ifaces  map[string]int
	frames  int
	live    bool // write each frame at once
}

func (w *captureWriter) item(item json.RawMessage) error {
	var f control.Frame
	if err := json.Unmarshal(item, &f); err != nil {
		return err
	}
	id, err := w.iface(f.Port)
	if err != nil {
		return err
	}
	w.frames++
	err = w.ng.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, f.TimeUnixNS), CaptureLength: len(f.Data),
		Length: max(f.LengthBytes, len(f.Data)), InterfaceIndex: id}, f.Data)
	if err == nil && w.live {
		err = w.ng.Flush()
	}
	return err
}

// iface returns the number of the interface for a port; "" stands for none in particular.
func (w *captureWriter) iface(port string) (int, error) {
	if id, ok := w.ifaces[port]; ok {
		return id, nil
	}
	iface := pcapgo.NgInterface{Name: port, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(w.snapLen), TimestampResolution: 9}
	id := 0
	var err error
	if w.ng == nil {
		w.ng, err = pcapgo.NewNgWriterInterface(w.out, iface, pcapgo.NgWriterOptions{
			SectionInfo: pcapgo.NgSectionInfo{Application: "fastpath"},
		})
	} else {
		id, err = w.ng.AddInterface(iface)
	}
	w.ifaces[port] = id
	return id, err
}

// flush completes the file. A capture without frames is a valid file, too.
func (w *captureWriter) flush() error {
	if w.ng == nil {
		if _, err := w.iface(""); err != nil {
			return err
		}
	}
	return w.ng.Flush()
}
