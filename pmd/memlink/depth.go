package memlink

import "github.com/fastpath-tcp/fastpath/plugins"

// Queued is what waits for the bottleneck of the path that this port sends on, at the time now, which must not lie before that of
// the last Poll. It may be called from any goroutine.
func (p *Port) Queued(now plugins.Time) (frames, bytes int) {
	if p.out == nil {
		return 0, 0
	}
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	p.out.net.serve(now)
	return p.out.net.n, p.out.net.bytes
}
