// Package demo is the main job, shown and checked: the kernel's TCP downloads from the daemon and uploads to it over a veth pair, while
// congestion control is swapped and its process is killed.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/cmd/fastpath/flowplot"
	"github.com/fastpath-tcp/fastpath/conf"
)

// Options of a demo.
type Options struct {
	Config  string    // configuration of the daemon
	Driver  string    // "dpdk", "afpacket" or "tap"
	Size    conf.Size // of the download; the upload is a quarter of it
	Out     string    // directory for what it leaves behind
	JSON    bool      // the result as JSON on Stdout
	Stdout  io.Writer
	Log     io.Writer // progress
	Program string    // this program
	IsTerm  bool      // Log is a terminal
}

// DefaultSize is the download's size; DefaultOut where plots and captures go.
const (
	DefaultSize = conf.Size(1 << 30)
	DefaultOut  = "demo-out"
	minSize     = conf.Size(1 << 20)
)

// least is how long the download lasts at the least, so that a swap, a crash and the recovery fit into it.
const least = 16 * time.Second

// captured is how many frames flow.pcapng holds.
const captured = 10000

// Run runs the demo and prints its result. It returns an error if anything did not hold.
func Run(ctx context.Context, o Options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("the demo needs root: it makes a network namespace and a veth pair")
	}
	if o.Size < minSize {
		return fmt.Errorf("--size: %v is less than %v, which is what it takes to swap and to kill within the download", o.Size, minSize)
	}
	for _, tool := range []string{"curl", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("the demo needs %s: test/deps installs it", tool)
		}
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	c, path, err := configure(o)
	if path != o.Config {
		defer os.Remove(path)
	}
	if err != nil {
		return err
	}
	if other, err := control.Dial(ctx, c.Control.Socket); err == nil {
		other.Close()
		return fmt.Errorf("a daemon runs already on the demo's control socket %s: another demo?", c.Control.Socket)
	}
	d := &demo{o: o, conf: c, result: &Result{Driver: o.Driver}, say: newProgress(o), huge: newHugepages(c.Control.Socket)}
	interrupted := ctx
	ctx, d.server.gone = context.WithCancelCause(ctx)
	defer d.server.gone(nil)
	defer func() { err = errors.Join(err, d.cleanup()) }()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"network", d.network},
		{"daemon", func(ctx context.Context) error { return d.daemon(ctx, path) }},
		{"download", d.download},
		{"upload", d.upload},
		{"results", d.results},
	} {
		if err := step.run(ctx); err != nil {
			if interrupted.Err() != nil {
				err = errors.New("interrupted")
			} else if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("%s: %w%s", step.name, err, d.daemonSays())
		}
	}
	if o.JSON {
		return d.result.json(o.Stdout)
	}
	return d.result.table(o.Stdout)
}

// demo is one run.
type demo struct {
	o      Options
	conf   *conf.Config
	say    *progress
	result *Result
	net    network
	server server
	series flowplot.Series
	huge   hugepages
}

func (d *demo) mark(text string) time.Time {
	now := time.Now()
	d.series.Mark(now, text)
	d.say.event(text)
	return now
}

func (d *demo) url(path string) string { return fmt.Sprintf("http://%s%s", d.net.server, path) }

// download is the first act: a download of generated content, with a swap at one third and a crash at two thirds.
func (d *demo) download(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	size := int64(d.o.Size)
	seed := d.conf.Apps[0].Seed
	capture, err := d.capture(ctx)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	d.series.Socket = d.server.socket
	var following sync.WaitGroup
	following.Go(func() { d.series.Follow(ctx) })
	defer following.Wait()
	defer cancel()
	start := d.mark("download starts")
	get, err := d.startDownload(ctx, d.url(fmt.Sprintf("/blob?size=%d&seed=%d", size, seed)))
	if err != nil {
		return err
	}
	d.say.begin("download", size)
	for _, act := range []struct {
		at  int64
		run func(context.Context) error
	}{{size / 3, d.swap}, {size * 2 / 3, d.crash}} {
		if err := get.reached(ctx, act.at, d.say.update); err != nil {
			return err
		}
		if err := act.run(ctx); err != nil {
			return err
		}
	}
	sum, n, err := get.finish(ctx, d.say.update)
	if err != nil {
		return err
	}
	took := time.Since(start)
	d.mark("download ends")
	d.say.end()
	d.result.Download = transfer(n, took)
	want := apps.ContentSHA256(seed, size)
	if n != size || sum != want {
		return fmt.Errorf("got %d bytes with SHA-256 %s, want %d with %s", n, sum, size, want)
	}
	d.result.Download.SHA256 = sum
	d.result.connection(d.series.Last())
	if err := d.recovered(ctx); err != nil {
		return err
	}
	return capture()
}

// swap changes the congestion control of all flows from bbr to cdg.
func (d *demo) swap(ctx context.Context) error {
	var r control.SwapReply
	if err := d.server.call(ctx, control.OpSwap, control.SwapRequest{Kind: "cong", Name: "cdg"}, &r); err != nil {
		return fmt.Errorf("swap bbr → cdg: %w", err)
	}
	d.mark("swap bbr → cdg")
	if r.Flows == 0 {
		return errors.New("swap bbr → cdg: no flow changed over")
	}
	d.result.SwapGapUsec = float64(r.GapNS) / 1e3
	d.result.SwapFlows = r.Flows
	return nil
}

// upload is the second act: the other direction.
func (d *demo) upload(ctx context.Context) error {
	size := int64(d.o.Size) / 4
	file := filepath.Join(d.o.Out, "upload.bin")
	defer os.Remove(file)
	const seed = 2
	if err := writeContent(file, seed, size); err != nil {
		return err
	}
	d.say.begin("upload", size)
	start := d.mark("upload starts")
	got, err := d.put(ctx, file, d.url("/upload"))
	if err != nil {
		return err
	}
	d.result.Upload = transfer(got.Bytes, time.Since(start))
	d.say.end()
	if want := apps.ContentSHA256(seed, size); got.Bytes != size || got.SHA256 != want {
		return fmt.Errorf("the daemon got %d bytes with SHA-256 %s, want %d with %s", got.Bytes, got.SHA256, size, want)
	}
	d.result.Upload.SHA256 = got.SHA256
	return nil
}

func writeContent(path string, seed uint64, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, apps.ContentReader(seed, size))
	return errors.Join(err, f.Close())
}

// results draws the plot.
func (d *demo) results(context.Context) error {
	path := filepath.Join(d.o.Out, "flow.svg")
	if err := d.series.Plot(path, "download through the kernel's TCP"); err != nil {
		return err
	}
	d.result.Plot = path
	return nil
}

// cleanup removes what the demo made, and nothing else.
func (d *demo) cleanup() error {
	d.say.end()
	err := errors.Join(d.server.stop(), d.net.close(), d.huge.restore())
	d.server.tidy()
	return err
}
