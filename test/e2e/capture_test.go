package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// captured is how many frames each capture holds.
const captured = 1500

const fromClient = "ip.src == " + clientIP

// TestCapture has tshark judge what the daemon captured: nothing malformed, and every checksum right that was complete when the frame
// was captured.
func TestCapture(t *testing.T) {
	for _, c := range []struct {
		driver string
		ip     string // of which frames the IP header's checksum is complete
		tcp    string // and of which TCP's
	}{
		{"dpdk", "ip", "tcp"},                  // both are computed and verified by the stack
		{"afpacket", "ip", "tcp"},              // what the kernel completes is completed in the capture
		{"tap", "ip", "ip.dst == " + clientIP}, // the kernel never completes TCP's: its frames do not leave this machine
	} {
		t.Run(c.driver, func(t *testing.T) {
			need(t, "tshark")
			w := newWorld(t, link{driver: c.driver})
			file := w.capture(captured)
			if n := w.tshark(file, "frame"); n != captured {
				t.Errorf("the capture holds %d frames, want %d", n, captured)
			}
			for _, bad := range []string{
				"_ws.malformed", "!tcp", "tcp.len > 1460", "ip.len > 1500", "tcp.hdr_len > 44", c.ip + " && ip.checksum.status != 1",
			} {
				if n := w.tshark(file, bad); n != 0 {
					t.Errorf("%d frames with %s", n, bad)
				}
			}
			if c.tcp == "" {
				return
			}
			if n := w.tshark(file, c.tcp+" && tcp.checksum.status != 1"); n != 0 {
				t.Errorf("%d frames have a bad TCP checksum", n)
			}
			if n := w.tshark(file, c.tcp+" && tcp.checksum.status == 1"); n < captured/20 {
				t.Errorf("only %d frames had a good TCP checksum", n)
			}
		})
	}
}

// capture has `ctl capture` write so many frames of downloads and uploads to a file.
func (w *world) capture(frames int) (file string) {
	w.Helper()
	bin, err := program()
	w.must(err)
	file = filepath.Join(w.dir, "flow.pcapng")
	p := startProcess(w.T, w.client, exec.Command(bin, "ctl", "--socket", w.socket, "capture", "-w", file, "--filter", "tcp", "--count", strconv.Itoa(frames)))
	for end := time.Now().Add(limit); !p.ended() && time.Now().Before(end); {
		w.download(256 << 10)
		w.upload(256 << 10)
	}
	if err := p.wait(10 * time.Second); err != nil {
		w.Fatalf("ctl capture: %v\n%s", err, p.said())
	}
	if want := fmt.Sprintf("%d frames written, ", frames); !strings.Contains(p.said(), want) {
		w.Errorf("ctl capture said %q, want %q", p.said(), want)
	}
	return file
}

// tshark counts the frames of a capture that a display filter matches.
func (w *world) tshark(file, filter string) int {
	w.Helper()
	cmd := exec.Command("tshark", "-r", file, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-e", "frame.number", "-Y", filter)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("tshark -Y %q: %v\n%s", filter, err, stderr.String())
	}
	return strings.Count(string(out), "\n")
}
