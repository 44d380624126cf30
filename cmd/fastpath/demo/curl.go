package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
)

// maxTime bounds each run of curl, in seconds.
const maxTime = "300"

// get is a download by curl in the client's namespace.
type get struct {
	got  atomic.Int64
	done chan struct{}
	sum  string
	err  error
}

func (d *demo) startDownload(ctx context.Context, url string) (*get, error) {
	cmd := d.net.client.Command("curl", "--silent", "--show-error", "--fail", "--max-time", maxTime, url)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting curl: %w", err)
	}
	g := &get{done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(g.done)
		defer stop()
		h := sha256.New()
		_, copyErr := io.CopyBuffer(io.MultiWriter(h, counter{&g.got}), struct{ io.Reader }{out}, make([]byte, 256<<10))
		g.err = errors.Join(copyErr, said(cmd, cmd.Wait(), &stderr))
		g.sum = hex.EncodeToString(h.Sum(nil))
	}()
	return g, nil
}

// said joins a program's failure with what it said.
func said(cmd *exec.Cmd, err error, stderr *bytes.Buffer) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// reached waits until n bytes have arrived.
func (g *get) reached(ctx context.Context, n int64, progress func(int64)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for g.got.Load() < n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.done:
			if g.got.Load() >= n {
				return nil
			}
			if g.err != nil {
				return g.err
			}
			return fmt.Errorf("the download ended after %d bytes", g.got.Load())
		case <-tick.C:
			progress(g.got.Load())
		}
	}
	return nil
}

func (g *get) finish(ctx context.Context, progress func(int64)) (sum string, n int64, err error) {
	if err := g.reached(ctx, 1<<62, progress); err != nil && g.err != nil || ctx.Err() != nil {
		return "", 0, errors.Join(g.err, ctx.Err())
	}
	return g.sum, g.got.Load(), nil
}

// put uploads a file by curl and returns the daemon's answer.
func (d *demo) put(ctx context.Context, file, url string) (u apps.Uploaded, err error) {
	cmd := d.net.client.Command("curl", "--silent", "--show-error", "--fail", "--max-time", maxTime, "-T", file, url)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return u, fmt.Errorf("starting curl: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := said(cmd, cmd.Wait(), &stderr); err != nil {
		return u, err
	}
	if err := json.Unmarshal(out.Bytes(), &u); err != nil {
		return u, fmt.Errorf("the answer to the upload is no JSON: %w: %q", err, out.String())
	}
	return u, nil
}

// capture starts `fastpath ctl capture` and returns once it captures: dissectors must see a connection from its beginning. The
// function that it returns waits for the end and has tshark judge the file.
func (d *demo) capture(ctx context.Context) (finish func() error, err error) {
	path := filepath.Join(d.o.Out, "flow.pcapng")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, d.o.Program, "ctl", "--socket", d.server.socket, "capture", "-w", "-", "--count", strconv.Itoa(captured))
	var stderr bytes.Buffer
	out := &firstWrite{w: f, came: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := d.eventually(ctx, 10*time.Second, func() error { // small requests, until one is seen
		probe := d.net.client.Command("curl", "--silent", "--max-time", "2", d.url("/blob?size=0"))
		if err := probe.Run(); err != nil {
			return fmt.Errorf("the daemon does not answer curl: %w", err)
		}
		select {
		case <-out.came:
			return nil
		default:
			return errors.New("the capture does not start")
		}
	}); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait(), f.Close())
	}
	return func() error {
		if err := errors.Join(said(cmd, cmd.Wait(), &stderr), f.Close()); err != nil {
			return err
		}
		d.result.Capture = path
		return d.judge(ctx, path)
	}, nil
}

// firstWrite passes writes on and tells when the first came.
type firstWrite struct {
	w    io.Writer
	once sync.Once
	came chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.came) })
	return f.w.Write(p)
}

// judge counts what tshark's dissector calls malformed.
func (d *demo) judge(ctx context.Context, path string) error {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		d.say.event("tshark is not installed: nobody judges " + path)
		return nil
	}
	count := func(filter string) (int, error) {
		args := []string{"-r", path, "-T", "fields", "-e", "frame.number"}
		if filter != "" {
			args = append(args, "-Y", filter)
		}
		cmd := exec.CommandContext(ctx, tshark, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		return strings.Count(string(out), "\n"), said(cmd, err, &stderr)
	}
	frames, err := count("")
	if err != nil {
		return err
	}
	malformed, err := count("_ws.malformed")
	if err != nil {
		return err
	}
	d.result.CapturedFrames, d.result.MalformedFrames, d.result.Judged = frames, malformed, true
	if frames == 0 || malformed > 0 {
		return fmt.Errorf("tshark finds %d malformed of %d frames in %s", malformed, frames, path)
	}
	return nil
}
