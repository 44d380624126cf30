package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
)

// limit bounds every single transfer.
const limit = 60 * time.Second

// peer is a way to use the daemon. It fails the test unless everything arrived.
type peer struct {
	name   string
	tools  []string
	resets bool // ends connections by RST
	run    func(w *world, size int64)
}

var peers = []peer{
	{"download", []string{"curl"}, false, (*world).download},
	{"upload", []string{"curl"}, false, (*world).upload},
	{"source", nil, false, (*world).source},
	{"half-close", []string{"nc"}, false, (*world).halfClose},
	{"proxy", nil, false, (*world).proxyHalfClose},
	{"short", nil, false, (*world).short},
	{"net-http", nil, false, (*world).netHTTP},
	{"iperf3", []string{"iperf3"}, true, (*world).iperf}, // it leaves when its time is over, whatever is still on the way
	{"reset", nil, true, (*world).proxyReset},
	{"interactive", nil, false, (*world).interactive},
	{"as-client", []string{"curl"}, false, (*world).asClient},
}

// command runs a program in the client's namespace and returns what it wrote.
func (w *world) command(stdin io.Reader, name string, args ...string) []byte {
	w.Helper()
	cmd := w.client.Command(name, args...)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &stderr
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	t := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer t.Stop()
	if err := cmd.Wait(); err != nil {
		w.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, tail(out.Bytes()), stderr.Bytes())
	}
	return out.Bytes()
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

func (w *world) curl(args ...string) []byte {
	w.Helper()
	return w.command(nil, "curl", append([]string{"--silent", "--show-error", "--fail", "--globoff", "--max-time", "55"}, args...)...)
}

// same compares what arrived with what was sent.
func (w *world) same(what string, got []byte, seed uint64, size int64) {
	w.Helper()
	if sum := sha256.Sum256(got); int64(len(got)) != size || hex.EncodeToString(sum[:]) != apps.ContentSHA256(seed, size) {
		w.Errorf("%s: got %d bytes with SHA-256 %x, want %d with %s", what, len(got), sum, size, apps.ContentSHA256(seed, size))
	}
}

func (w *world) download(size int64) {
	w.Helper()
	w.same("download", w.curl(w.url(fmt.Sprintf("/blob?size=%d&seed=3", size))), 3, size)
}

// contentFile writes a file of generated content.
func (w *world) contentFile(seed uint64, size int64) string {
	w.Helper()
	path := filepath.Join(w.TempDir(), "content")
	f, err := os.Create(path)
	w.must(err)
	_, err = io.Copy(f, apps.ContentReader(seed, size))
	w.must(errors.Join(err, f.Close()))
	return path
}

func (w *world) upload(size int64) {
	w.Helper()
	w.uploaded(w.curl("-T", w.contentFile(5, size), w.url("/upload")), 5, size)
}

// uploaded checks the daemon's answer to an upload.
func (w *world) uploaded(answer []byte, seed uint64, size int64) {
	w.Helper()
	var u apps.Uploaded
	if err := json.Unmarshal(answer, &u); err != nil {
		w.Errorf("the answer to an upload: %v: %q", err, answer)
		return
	}
	if want := apps.ContentSHA256(seed, size); u.Bytes != size || u.SHA256 != want {
		w.Errorf("upload: the daemon got %d bytes with SHA-256 %s, want %d with %s", u.Bytes, u.SHA256, size, want)
	}
}

// source reads the whole content of the source application, which closes first.
func (w *world) source(int64) {
	w.Helper()
	c, err := w.dial(portSource)
	w.must(err)
	defer c.Close()
	w.must(c.SetDeadline(time.Now().Add(limit)))
	got, err := io.ReadAll(c)
	w.must(err)
	w.same("source", got, seed, sourceSize)
}

// halfClose sends a file to the echo application, ends its own direction and reads on.
func (w *world) halfClose(size int64) {
	w.Helper()
	size /= 4
	got := w.command(apps.ContentReader(11, size), "nc", "-N", "-w", "50", w.serverIP(), strconv.Itoa(portEcho))
	w.same("echo", got, 11, size)
}

// iperf runs iperf3 through the proxy: its server is behind the daemon, on the kernel's loopback. On a link that loses, a second can be over
// before the first segment of the data has arrived (a lost SYN alone takes that long): then it is run again, twice at the most.
func (w *world) iperf(int64) {
	w.Helper()
	for _, reverse := range []string{"", "-R"} {
		for left := 2; ; left-- {
			received, failed := w.iperfOnce(reverse)
			if failed == "" && received >= 1<<10 {
				break
			}
			if w.path == nil || failed != "" || left == 0 {
				w.Errorf("iperf3 %s: %d bytes received, error %q", reverse, received, failed)
				break
			}
		}
	}
}

// iperfOnce is a run of a second.
func (w *world) iperfOnce(reverse string) (received int64, failed string) {
	w.Helper()
	server := startProcess(w.T, w.server, exec.Command("iperf3", "-s", "-1", "-B", "127.0.0.1", "--forceflush"))
	w.eventually(limit, func() error {
		if !strings.Contains(server.said(), "listening") {
			return errors.New("iperf3 does not listen")
		}
		return nil
	})
	args := []string{"-c", w.serverIP(), "-J", "--connect-timeout", "20000", "-t", "1"}
	if reverse != "" {
		args = append(args, reverse)
	}
	var r struct {
		Error string
		End   struct {
			Sent     struct{ Bytes int64 } `json:"sum_sent"`
			Received struct{ Bytes int64 } `json:"sum_received"`
		}
	}
	w.must(json.Unmarshal(w.command(nil, "iperf3", args...), &r))
	w.Logf("iperf3 %s: %d bytes sent, %d received", reverse, r.End.Sent.Bytes, r.End.Received.Bytes)
	if err := server.wait(limit); err != nil {
		w.Errorf("iperf3 -s: %v\n%s", err, server.said())
	}
	return r.End.Received.Bytes, r.Error
}

// exchange sends content both ways at once over a connection, ends the own direction, and checks what came.
func exchange(c *net.TCPConn, mine, theirs uint64, size int64) error {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, apps.ContentReader(mine, size))
		sent <- errors.Join(err, c.CloseWrite())
	}()
	h := sha256.New()
	n, err := io.Copy(h, c)
	if err := errors.Join(err, <-sent); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	if got, want := hex.EncodeToString(h.Sum(nil)), apps.ContentSHA256(theirs, size); n != size || got != want {
		return fmt.Errorf("got %d bytes with SHA-256 %s, want %d with %s", n, got, size, want)
	}
	return nil
}

// routes are the ways through the proxy: the port to dial, and where the backend listens.
func (w *world) routes() []route {
	return []route{
		{"kernel", portKernel, func() *net.TCPListener { return w.listen(w.server, "127.0.0.1", portKernel) }},
		{"fastpath", portFastpath, func() *net.TCPListener { return w.listen(w.client, w.clientIP(), portFastpath) }},
	}
}

type route struct {
	via    string
	port   int
	listen func() *net.TCPListener
}

// proxyHalfClose exchanges data both ways at once through the proxy. Each side ends its direction when it has sent all.
func (w *world) proxyHalfClose(size int64) {
	w.Helper()
	size /= 4
	for _, r := range w.routes() {
		l := r.listen()
		backend := make(chan error, 1)
		go func() {
			c, err := l.AcceptTCP()
			if err == nil {
				err = exchange(c, 21, 22, size)
			}
			backend <- err
		}()
		c, err := w.dial(r.port)
		if err == nil {
			err = exchange(c, 22, 21, size)
		}
		if err != nil {
			w.Errorf("proxy over %s, client: %v", r.via, err)
		}
		l.Close() // so that a backend that nobody reached ends
		if err := <-backend; err != nil {
			w.Errorf("proxy over %s, backend: %v", r.via, err)
		}
	}
}

// proxyReset has the backend reset, then the client: the other end must see a reset each time.
func (w *world) proxyReset(int64) {
	w.Helper()
	for _, r := range w.routes() {
		l := r.listen()
		for _, who := range []string{"backend", "client"} {
			c, err := w.dial(r.port)
			w.must(err)
			w.must(l.SetDeadline(time.Now().Add(limit)))
			b, err := l.AcceptTCP()
			w.must(err)
			from, to := b, c
			if who == "client" {
				from, to = c, b
			}
			if err := resets(from, to); err != nil {
				w.Errorf("proxy over %s, reset by the %s: %v", r.via, who, err)
			}
			from.Close()
			to.Close()
		}
		l.Close()
	}
}

// resets sends a byte, so that both connections stand, then resets one end and wants the other to see it. A reset is sent once (RFC 9293
// 3.5.2): one that the link loses is only sent again in answer to a segment, so the other end writes for as long as it hears nothing.
func resets(from, to *net.TCPConn) error {
	end := time.Now().Add(limit)
	if err := errors.Join(from.SetDeadline(end), to.SetDeadline(end)); err != nil {
		return err
	}
	if _, err := from.Write([]byte{1}); err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(to, b); err != nil {
		return err
	}
	if err := errors.Join(from.SetLinger(0), from.Close()); err != nil {
		return err
	}
	for {
		if err := to.SetReadDeadline(time.Now().Add(limit / 60)); err != nil {
			return err
		}
		_, err := to.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			if _, err = to.Write(b); err == nil {
				continue
			}
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("the other end got %v, want a reset", err)
		}
		return nil
	}
}

// shortConns is how many connections are opened and closed; shortAtOnce how many at a time.
const shortAtOnce = 20

func shortConns() int {
	if *full {
		return 1000
	}
	return 200
}

// short opens many connections that carry one small request each.
func (w *world) short(int64) {
	w.Helper()
	w.shortTo(portEcho)
}

// shortTo opens them to a port that echoes.
func (w *world) shortTo(port int) {
	w.Helper()
	errs := make([]error, shortConns())
	var wg sync.WaitGroup
	slots := make(chan struct{}, shortAtOnce)
	for i := range errs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = w.echoLine(port, i)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.Errorf("short connections: %v", err)
	}
}

// echoLine sends a line to the echo application and reads it back.
func (w *world) echoLine(port, i int) error {
	c, err := w.dial(port)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	line := fmt.Sprintf("connection %d\n", i)
	if _, err := c.Write([]byte(line)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != line {
		err = fmt.Errorf("connection %d: got %q", i, got)
	}
	return err
}

// netHTTP uses Go's client: several requests at once over connections that are kept.
func (w *world) netHTTP(size int64) {
	w.Helper()
	size /= 8
	tr := &http.Transport{MaxIdleConnsPerHost: 4, DialContext: func(context.Context, string, string) (net.Conn, error) { return w.dial(portHTTP) }}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 4 {
				if err := w.request(client, uint64(4*i+j), size); err != nil {
					w.Errorf("net/http: request %d of client %d: %v", j, i, err)
				}
			}
		})
	}
	wg.Wait()
}

// request downloads and uploads.
func (w *world) request(client *http.Client, seed uint64, size int64) error {
	r, err := client.Get(w.url(fmt.Sprintf("/blob?size=%d&seed=%d", size, seed)))
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	r.Body.Close()
	if got, want := hex.EncodeToString(h.Sum(nil)), apps.ContentSHA256(seed, size); err != nil || got != want {
		return fmt.Errorf("got %d bytes with SHA-256 %s (%w), want %d with %s", n, got, err, size, want)
	}
	r, err = client.Post(w.url("/upload"), "application/octet-stream", io.LimitReader(apps.ContentReader(seed, size), size))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err == nil {
		w.uploaded(answer, seed, size)
	}
	return err
}
