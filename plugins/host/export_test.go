package host

import "github.com/fastpath-tcp/fastpath/plugins"

// SeedOf is the seed that the manager of a configuration gives to the module of a worker.
func SeedOf(c *Config, kind plugins.Kind, worker int) uint64 { return c.seed(kind, worker) }

// IdleEngine is an engine without workers: see idleEngine.
type IdleEngine struct{ idleEngine }

// Remote is the module of the kind that lives in a process.
func (e *IdleEngine) Remote(k plugins.Kind) any { return e.remote(k) }
