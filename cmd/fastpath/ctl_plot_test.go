package main

import (
	"context"
	"encoding/xml"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// flowDaemon has one connection, which is over after some looks at it, and swaps its module once somebody has looked.
type flowDaemon struct {
	fakeDaemon
	looks atomic.Int64
}

const flowLooks = 5

func (d *flowDaemon) SS(_ context.Context, r control.SSRequest) (*control.SSReply, error) {
	n := d.looks.Add(1)
	reply := &control.SSReply{TimeUnixNS: time.Now().UnixNano()}
	if n > 1 && n <= 1+flowLooks && r.LocalPort == 80 { // it opens after the first
		reply.Conns = []control.Conn{
			{Local: netip.MustParseAddrPort("10.7.0.1:80"), Peer: netip.MustParseAddrPort("10.7.0.2:4711"), SentBytes: uint64(1000 * n), SRTTNS: 50e6, CwndBytes: 15000, DeliveryBPS: 20e6},
			{Local: netip.MustParseAddrPort("10.7.0.1:80"), Peer: netip.MustParseAddrPort("10.7.0.2:1"), SentBytes: 1},
		}
	}
	return reply, nil
}

func (d *flowDaemon) Events(ctx context.Context, _ control.EventsRequest, emit func(control.Event) error) error {
	for d.looks.Load() < 3 { // the plot's time has begun
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	for _, e := range []control.Event{
		{Kind: control.EventSwap, TimeUnixNS: 1, Fields: map[string]string{"from": "old", "module": "older"}},
		{Kind: control.EventSwap, TimeUnixNS: time.Now().UnixNano(), Fields: map[string]string{"from": "bbr", "module": "cdg"}},
		{Kind: control.EventLink, TimeUnixNS: time.Now().UnixNano(), Message: "down"},
	} {
		if err := emit(e); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// The plot waits for a connection, follows the one that sends, and ends with it; swaps meanwhile are in it, older ones are not.
func TestCtlPlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, &flowDaemon{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()
	defer s.Close()
	file := filepath.Join(t.TempDir(), "f.svg")
	code, out, errOut := fastpath("ctl", "plot", "--socket", path, "-o", file, "--local", ":80")
	if code != 0 || errOut != "" || !strings.HasPrefix(out, file+": 5 samples in ") {
		t.Errorf("%d %q %q", code, out, errOut)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(svg, new(struct{})); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]bool{"10.7.0.1:80 → 10.7.0.2:4711": true, "bbr → cdg": true, "delivery rate": true, "srtt": true, "old → older": false} {
		if strings.Contains(string(svg), text) != want {
			t.Errorf("the plot has %q: %v", text, !want)
		}
	}
}

func TestCtlPlotErrors(t *testing.T) {
	path := startDaemon(t)
	file := filepath.Join(t.TempDir(), "f.svg")
	for _, tt := range []struct {
		args  []string
		error string
	}{
		{[]string{"-o", file, "--local", "x"}, "--local: \"x\" is not an address"},
		{[]string{"-o", filepath.Join(file, "x")}, "no such file"},
		{[]string{"-o", file, "--for", "60ms"}, "no connection has sent anything"},
		{nil, `required flag(s) "out" not set`},
	} {
		code, _, errOut := fastpath(append([]string{"ctl", "plot", "--socket", path}, tt.args...)...)
		if _, err := os.Stat(file); code != 1 || !strings.Contains(errOut, tt.error) || err == nil {
			t.Errorf("ctl plot %q: %d %q, the file is there: %v", tt.args, code, errOut, err == nil)
		}
	}
}
