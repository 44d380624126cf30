package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows what a long command is at, on one line of a terminal. A nil one shows nothing.
type progress struct {
	w       *os.File
	started time.Time
	last    time.Time
	shown   bool
}

// newProgress returns nil unless w is a terminal.
func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return &progress{w: f, started: time.Now()}
}

// line replaces what is shown.
func (p *progress) line(format string, args ...any) {
	if p == nil {
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", fmt.Sprintf(format, args...))
	p.shown = true
}

// steps shows that done of total steps are behind, and which is next.
func (p *progress) steps(done, total int, what string) {
	const width = 40
	p.line("[%-*s] %d of %d: %s", width, "########################################"[:width*done/total], done+1, total, what)
}

// bar shows how far something is, once it has taken a second, and ten times a second at most.
func (p *progress) bar(done, total time.Duration) {
	if p == nil {
		return
	}
	now := time.Now()
	if now.Sub(p.started) < time.Second || now.Sub(p.last) < 100*time.Millisecond || total <= 0 {
		return
	}
	p.last = now
	const width = 40
	n := int(width * done / total)
	p.line("[%-*s] %v of %v", width, "########################################"[:min(n, width)], done.Round(10*time.Millisecond), total)
}

// done clears the line.
func (p *progress) done() {
	if p != nil && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
