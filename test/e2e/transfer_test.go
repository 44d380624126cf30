package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
)

// transfer is a download by curl that runs beside the test.
type transfer struct {
	w    *world
	cmd  *exec.Cmd
	size int64
	got  atomic.Int64
	sum  string
	err  error
	log  bytes.Buffer
	done chan struct{}
}

// startDownload begins to download size bytes of content of seed 3.
func (w *world) startDownload(size int64) *transfer {
	w.Helper()
	t := &transfer{w: w, size: size, done: make(chan struct{})}
	t.cmd = w.client.Command("curl", "--silent", "--show-error", "--fail", "--max-time", "55", w.url(fmt.Sprintf("/blob?size=%d&seed=3", size)))
	t.cmd.Stderr = &t.log
	out, err := t.cmd.StdoutPipe()
	w.must(err)
	w.must(t.cmd.Start())
	go func() {
		defer close(t.done)
		h := sha256.New()
		_, err := io.Copy(io.MultiWriter(h, t), out)
		t.sum = hex.EncodeToString(h.Sum(nil))
		if t.err = t.cmd.Wait(); t.err == nil {
			t.err = err
		}
	}()
	w.Cleanup(func() {
		_ = t.cmd.Process.Kill()
		<-t.done
	})
	return t
}

// Write counts what has arrived.
func (t *transfer) Write(b []byte) (int, error) {
	t.got.Add(int64(len(b)))
	return len(b), nil
}

// reach waits until so many bytes have arrived.
func (t *transfer) reach(n int64) {
	t.w.Helper()
	for t.got.Load() < n {
		select {
		case <-t.done:
			t.w.Fatalf("the download ended after %d bytes: %v: %s", t.got.Load(), t.err, t.log.String())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// finish waits for the end and wants everything to have arrived.
func (t *transfer) finish() {
	t.w.Helper()
	<-t.done
	if want := apps.ContentSHA256(3, t.size); t.err != nil || t.sum != want {
		t.w.Errorf("the download of %d bytes ended after %d with SHA-256 %s, want %s: %v: %s", t.size, t.got.Load(), t.sum, want, t.err, t.log.String())
	}
}
