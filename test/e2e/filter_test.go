package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// TestFilter replaces the packet filter of a daemon that serves the kernel's connections: who is refused learns so, who is denied hears
// nothing, connections that are open go on, each rule counts, and the file of the configuration brings the old rules back.
func TestFilter(t *testing.T) {
	need(t, "ping")
	w := newWorld(t, link{driver: "afpacket", more: "[[filter]]\nname = \"no ping\"\naction = \"deny\"\nprotocol = \"icmp\"\n"})
	bin, err := program()
	w.must(err)
	ctl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(bin, append([]string{"ctl", "--socket", w.socket, "filter"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ctl filter %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	ping := func() error { return w.client.Run("ping", "-c", "1", "-W", "0.3", serverIP) }
	if ping() == nil {
		t.Error("ICMP is denied, and yet the ping is answered")
	}
	open, err := dialIn(w.client, serverIP, portEcho)
	w.must(err)
	defer open.Close()
	rules := filepath.Join(w.dir, "rules.toml")
	w.must(os.WriteFile(rules, []byte(`
[[filter]]
name = "open"
action = "allow"
state = "established"
[[filter]]
name = "no echo"
action = "reject"
protocol = "tcp"
destination_ports = ["7"]
[[filter]]
name = "no discard"
action = "deny"
protocol = "tcp"
source = ["10.7.0.0/24"]
destination_ports = ["9"]
`), 0o644))
	if out := ctl("load", rules); !strings.Contains(out, "3 rules") {
		t.Errorf("load says %q", out)
	}
	w.eventually(10*time.Second, ping)
	w.download(64 << 10)
	if c, err := dialIn(w.client, serverIP, portEcho); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a rejected port: %v, %v", c, err)
	}
	if out, err := w.client.Command("curl", "-sS", "--max-time", "0.5", fmt.Sprintf("http://%s:%d/", serverIP, portDiscard)).CombinedOutput(); err == nil || !strings.Contains(string(out), "timed out") {
		t.Errorf("a denied port: %v, %s", err, out)
	}
	w.must(open.SetDeadline(time.Now().Add(20 * time.Second)))
	_, err = open.Write([]byte("still open"))
	w.must(err)
	b := make([]byte, 100)
	if n, err := open.Read(b); err != nil || string(b[:n]) != "still open" {
		t.Errorf("the connection that was open: %q, %v", b[:n], err)
	}
	var r control.FilterReply
	w.must(w.call(control.OpFilter, control.FilterRequest{}, &r))
	counted := map[string]uint64{}
	for _, one := range r.Rules {
		counted[one.Name] = one.Packets
	}
	if counted["open"] < 10 || counted["no echo"] == 0 || counted["no discard"] == 0 || len(r.Rules) != 3 {
		t.Errorf("rules have matched %v", counted)
	}
	if s := w.stat().Counters; s["drop_filter"] < 3 {
		t.Errorf("%d frames dropped by the filter", s["drop_filter"])
	}
	ctl("reload")
	if ping() == nil {
		t.Error("after reload the ping is answered")
	}
	again, err := dialIn(w.client, serverIP, portEcho)
	w.must(err)
	again.Close()
}
