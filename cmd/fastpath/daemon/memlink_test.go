package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// pair is a daemon with two ports that are joined in memory: applications listen on a, the tests' clients use b.
const pair = pairPorts + patientModules

const pairPorts = `
[[port]]
name = "a"
driver = "memlink"
peer = "b"
mac = "02:00:00:00:00:0a"
addresses = ["10.9.0.1/24"]
[[port]]
name = "b"
driver = "memlink"
peer = "a"
mac = "02:00:00:00:00:0b"
addresses = ["10.9.0.2/24"]
[[app]]
name = "web"
kind = "http"
listen = "10.9.0.1:80"
size = "32MiB"
seed = 3
rate = "400Mbit/s"
upload = true
[[app]]
name = "echo"
kind = "echo"
listen = "0.0.0.0:7"
[[app]]
name = "datagrams"
kind = "udp-echo"
listen = "0.0.0.0:7"
[[app]]
name = "forever"
kind = "source"
listen = "10.9.0.1:19"
rate = "10Mbit/s"
[[app]]
name = "proxy"
kind = "proxy"
listen = "10.9.0.2:8080"
backend = "10.9.0.1:80"
via = "fastpath"
`

// patientModules are in processes, with one that stands by: a busy machine is no failure of these tests, and a restart no pause.
const patientModules = `
[modules.cong]
restart_min = "10ms"
late = "5s"
dead = "20s"
[modules.rtx]
restart_min = "10ms"
late = "5s"
dead = "20s"
[modules.pace]
restart_min = "10ms"
late = "5s"
dead = "20s"
[[module]]
kind = "cong"
name = "cdg"
placement = "process"
`

const builtins = `
[modules.rtx]
placement = "builtin"
[modules.pace]
placement = "builtin"
[modules.cong]
placement = "builtin"
`

// withoutProcesses is pair with all modules linked in.
const withoutProcesses = pairPorts + builtins

// dialer makes connections over port b.
func (d *testDaemon) dialer() *sock.Dialer { return &sock.Dialer{Stack: d.ports[1].stack} }

func (d *testDaemon) client() *http.Client {
	tr := &http.Transport{DialContext: d.dialer().DialContext}
	d.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func (d *testDaemon) dial(addr string) net.Conn {
	d.t.Helper()
	c, err := d.dialer().DialContext(d.t.Context(), "tcp", addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// get downloads url and returns how much and which content it was. at is called when half of it is there.
func get(t *testing.T, c *http.Client, url string, half int64, at func()) (n int64, sum string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := sha256.New()
	first, err := io.CopyN(h, resp.Body, half)
	if err != nil {
		t.Fatal(err)
	}
	at()
	rest, err := io.Copy(h, resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return first + rest, hex.EncodeToString(h.Sum(nil))
}
