package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress shows how far the demo is: a bar on a terminal, a line every few seconds elsewhere.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	term  bool
	name  string
	total int64
	began time.Time
	shown time.Time
}

func newProgress(o Options) *progress { return &progress{w: o.Log, term: o.IsTerm} }

func (p *progress) begin(name string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.total, p.began, p.shown = name, total, time.Now(), time.Time{}
}

const barWidth = 40

func (p *progress) update(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := 3 * time.Second
	if p.term {
		every = 100 * time.Millisecond
	}
	if p.name == "" || time.Since(p.shown) < every {
		return
	}
	p.shown = time.Now()
	share := float64(n) / float64(max(p.total, 1))
	text := fmt.Sprintf("%s %3.0f %%  %d MiB  %.2f Gbit/s", p.name, share*100, n>>20, float64(n)*8/1e9/time.Since(p.began).Seconds())
	if p.term {
		full := min(int(share*barWidth), barWidth)
		fmt.Fprintf(p.w, "\r\033[K[%s%s] %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), text)
		return
	}
	fmt.Fprintln(p.w, text)
}

// event prints a line of its own.
func (p *progress) event(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term {
		fmt.Fprint(p.w, "\r\033[K")
	}
	fmt.Fprintln(p.w, "·", text)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term && p.name != "" {
		fmt.Fprint(p.w, "\r\033[K")
	}
	p.name = ""
}
