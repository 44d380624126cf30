package daemon

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

func TestCapture(t *testing.T) {
	d := start(t, withoutProcesses)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := control.Dial(ctx, d.conf.Control.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src := d.dial("10.9.0.1:19")
	go io.Copy(io.Discard, src) //nolint:errcheck // ends with the connection
	var frames []control.Frame
	var sum control.CaptureSummary
	err = c.Stream(ctx, control.OpCapture, control.CaptureRequest{Port: "a", Filter: "tcp and src port 19", Count: 20, SnapLen: 60}, func(item json.RawMessage) error {
		var f control.Frame
		if err := json.Unmarshal(item, &f); err != nil {
			return err
		}
		frames = append(frames, f)
		return nil
	}, &sum)
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != 20 || sum.Captured != 20 || sum.Seen <= 20 {
		t.Fatalf("%d frames, %+v", len(frames), sum)
	}
	now := time.Now().UnixNano()
	for i, f := range frames {
		if f.Dir != control.DirOut || f.Port != "a" || len(f.Data) > 60 || f.LengthBytes < len(f.Data) || f.TimeUnixNS > now || f.TimeUnixNS < now-int64(time.Minute) ||
			i > 0 && f.TimeUnixNS < frames[i-1].TimeUnixNS {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
	d.secondCapture()
	if _, err := try[control.CaptureSummary](d, control.OpCapture, control.CaptureRequest{Port: "nosuch"}); err == nil || !strings.Contains(err.Error(), `no port "nosuch"`) {
		t.Errorf("capture on a port that does not exist: %v", err)
	}
}

// secondCapture tries to capture while a capture runs, which goes on until its client ends it.
func (d *testDaemon) secondCapture() {
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer cancel()
	c, err := control.Dial(ctx, d.conf.Control.Socket)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	tried := false
	var sum control.CaptureSummary
	err = c.Stream(ctx, control.OpCapture, control.CaptureRequest{}, func(json.RawMessage) error {
		if !tried {
			tried = true
			_, err := try[control.CaptureSummary](d, control.OpCapture, control.CaptureRequest{Port: "a"})
			if err == nil || !strings.Contains(err.Error(), "is running on port a already") {
				d.t.Errorf("second capture: %v", err)
			}
			cancel()
		}
		return nil
	}, &sum)
	if err != nil || !tried || sum.Captured == 0 || sum.Captured+sum.Dropped != sum.Seen {
		d.t.Errorf("a capture that its client ends: %v, %+v", err, sum)
	}
}
