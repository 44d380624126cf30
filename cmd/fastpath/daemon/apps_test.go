package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

func TestUploadAndProxy(t *testing.T) {
	d := start(t, withoutProcesses)
	data := make([]byte, 4<<20)
	if _, err := io.ReadFull(apps.ContentReader(5, int64(len(data))), data); err != nil {
		t.Fatal(err)
	}
	// Straight, and from the kernel's side of nothing: the proxy on b reaches a over fastpath. A port does not reach itself, so its
	// client is on a.
	direct := d.client()
	tr := &http.Transport{DialContext: (&sock.Dialer{Stack: d.ports[0].stack}).DialContext}
	defer tr.CloseIdleConnections()
	proxied := &http.Client{Transport: tr, Timeout: time.Minute}
	for url, c := range map[string]*http.Client{"http://10.9.0.1/upload": direct, "http://10.9.0.2:8080/upload": proxied} {
		resp, err := c.Post(url, "application/octet-stream", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var u apps.Uploaded
		if err := json.NewDecoder(resp.Body).Decode(&u); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if u.Bytes != int64(len(data)) || u.SHA256 != apps.ContentSHA256(5, int64(len(data))) {
			t.Errorf("%s: %+v", url, u)
		}
	}
}

// An application on 0.0.0.0 listens on every port.
func TestListenEverywhere(t *testing.T) {
	d := start(t, strings.Replace(withoutProcesses, `["10.9.0.1/24"]`, `["10.9.0.1/24", "10.9.0.5/24"]`, 1))
	for i, addr := range []string{"10.9.0.2:7", "10.9.0.1:7"} {
		c, err := (&sock.Dialer{Stack: d.ports[i].stack}).Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(i) {
			t.Errorf("%s: %v, %v", addr, b, err)
		}
	}
	for i, addr := range []string{"10.9.0.2:7", "10.9.0.1:7", "10.9.0.5:7"} { // datagrams too; these sockets take answers from there only
		c, err := (&sock.Dialer{Stack: d.ports[min(i, 1)].stack}).Dial("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 10)
		if _, err := c.Write([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || string(b[:n]) != "datagram" {
			t.Errorf("%s: %q, %v", addr, b[:n], err)
		}
	}
	n := 0
	for _, c := range call[control.SSReply](d, control.OpSS, control.SSRequest{States: []string{control.StateListen}}).Conns {
		if c.Local.Port() == 7 {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d listeners on port 7", n)
	}
}

// A proxy whose backend refuses resets its client, and ctl stat counts it.
func TestProxyBackendRefuses(t *testing.T) {
	d := start(t, strings.Replace(withoutProcesses, `backend = "10.9.0.1:80"`, `backend = "10.9.0.1:81"`, 1))
	c, err := (&sock.Dialer{Stack: d.ports[0].stack}).DialContext(t.Context(), "tcp", "10.9.0.2:8080")
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if err == nil || err == io.EOF {
		t.Errorf("a proxy without a backend: %v", err)
	}
	s, err := d.Stat(t.Context())
	if err != nil || s.Counters["proxy_backend_failures"] != 1 {
		t.Errorf("%d failures were counted, %v", s.Counters["proxy_backend_failures"], err)
	}
}
