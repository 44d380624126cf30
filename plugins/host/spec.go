package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

// Placement says where a module's code runs.
type Placement uint8

// Placements.
const (
	Builtin Placement = iota // linked in, called by the worker
	Process                  // a process of its own, behind rings
)

func (p Placement) String() string {
	if p == Process {
		return "process"
	}
	return "builtin"
}

// Spec names a module and says where its code comes from. A process is, in this order: the file at Path; the file
// fastpath-KIND-NAME in Config.PluginDir; else this very program, if it has the module built in (see ServeBuiltin).
type Spec struct {
	Kind      plugins.Kind
	Name      string
	Placement Placement
	Path      string
	Args      []string // further arguments for the file at Path
	// SHA256 is the checksum that the file must have, in hexadecimal. Without it the module is refused, unless AllowUnpinned.
	// This very program needs none.
	SHA256        string
	AllowUnpinned bool
	Params        plugins.Params
}

func (s *Spec) String() string { return s.Kind.String() + "/" + s.Name }

func (s *Spec) check() error {
	if s.Kind >= plugins.NumKinds {
		return fmt.Errorf("unknown module %v", s.Kind)
	}
	if !nameOK(s.Name) {
		return fmt.Errorf("%v module name %q (want letters, digits, '-', '_' and '.')", s.Kind, s.Name)
	}
	if s.Placement == Builtin {
		if _, ok := builtin.Find(s.Kind, s.Name); !ok {
			return fmt.Errorf("module %v is not built in (built in are: %v)", s, builtin.Names(s.Kind))
		}
	}
	if s.SHA256 != "" {
		if b, err := hex.DecodeString(s.SHA256); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("module %v: sha256 %q is not %d hexadecimal digits", s, s.SHA256, 2*sha256.Size)
		}
	}
	return nil
}

// nameOK keeps names usable as part of a file name.
func nameOK(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// Use says which module serves a kind from the start, and how the modules of the kind are guarded.
type Use struct {
	Spec
	// Fallback is the built-in module that serves flows while a process is late or dead. Empty: the same name built in, else
	// btree, edt or cubic.
	Fallback string
	Guard    Guard
	Restart  Restart
	// CPUs are processors that processes of this kind have for themselves, at most one per worker: a module loop is pinned to
	// each, and looks for events all the time while it has flows. Default: none, all share.
	CPUs []int
}

// Restart limits the restarts of a module that dies. Zero fields mean the defaults.
type Restart struct {
	Min    time.Duration // wait before the first restart; doubles with each further death within Window. Default 50 ms
	Max    time.Duration // longest wait. Default 10 s
	Limit  int           // give up after so many deaths ... Default 10
	Window time.Duration // ... in this time. Default 1 min
}

func (r Restart) withDefaults() Restart {
	if r.Min <= 0 {
		r.Min = 50 * time.Millisecond
	}
	if r.Max <= 0 {
		r.Max = 10 * time.Second
	}
	if r.Limit <= 0 {
		r.Limit = 10
	}
	if r.Window <= 0 {
		r.Window = time.Minute
	}
	return r
}

var defaultNames = [plugins.NumKinds]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"}

// fallbackFor returns the name of the built-in module that stands in for a module of the name.
func (u *Use) fallbackFor(name string) string {
	if u.Fallback != "" {
		return u.Fallback
	}
	if _, ok := builtin.Find(u.Kind, name); ok {
		return name
	}
	return defaultNames[u.Kind]
}

// Config is what a Manager works with. Engine is required; the rest has defaults.
type Config struct {
	Engine Engine
	Log    *slog.Logger
	// Use has at most one entry per kind. A kind without one gets its default, built in.
	Use []Use
	// Together are kinds whose modules in use share one process, of one binary that has them all: less isolated from each other, but
	// with fewer processes to wake. Swap, Upgrade and Set take a module out of it: what comes instead has a process of its own.
	Together []plugins.Kind
	// Standing modules are started with the manager and wait for Swap without flows.
	Standing []Spec
	// PluginDir is searched for fastpath-KIND-NAME. Empty: no search.
	PluginDir string
	// AllowUnpinned lets Swap start a module from PluginDir that the configuration does not mention, so without a checksum.
	AllowUnpinned bool
	// RunDir is where the manager makes its directory for sockets. Default: the system's directory for temporary files.
	RunDir string
	// Seed feeds the random draws of all modules.
	Seed uint64
	// Spin is how long a module that shares its processor looks for events before it sleeps. Default 2 µs: what comes later
	// is gathered.
	Spin time.Duration
	// Ring is the number of slots of each ring, a power of two. Default 4096.
	Ring int
	// StartTimeout bounds the start of a module process until it answers. Default 10 s.
	StartTimeout time.Duration
	// Lockstep makes workers wait for module processes, turn by turn, in the workers' time: for simulation and conformance.
	Lockstep bool
	// Isolation restricts module processes.
	Isolation Isolation
	// MaxEvents bounds the list that Events returns. Default 256.
	MaxEvents int
}

func (c *Config) setDefaults() error {
	if c.Engine == nil {
		return errors.New("host: no engine")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Spin == 0 {
		c.Spin = 2 * time.Microsecond
	}
	if c.Ring == 0 {
		c.Ring = 4096
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 10 * time.Second
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = 256
	}
	return nil
}

// spin is how long modules of a kind look for events before they park.
func (m *Manager) spin(kind plugins.Kind) time.Duration {
	if len(m.use[kind].CPUs) > 0 {
		return ownSpin
	}
	return m.cfg.Spin
}

// ownSpin is Spin on a processor of its own: long enough that a module in use never parks, yet a standing one does, and
// leaves the processor to the other.
const ownSpin = 100 * time.Millisecond

// seed mixes a seed of its own for each instance, by splitmix64.
func (c *Config) seed(kind plugins.Kind, worker int) uint64 {
	z := c.Seed + 0x9e3779b97f4a7c15*(uint64(kind)<<16+uint64(worker)+1)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (c *Config) geometry(specs []Spec) link.Geometry {
	g := link.Geometry{Workers: c.Engine.Workers(), Events: c.Ring, Commands: c.Ring}
	for i := range specs {
		g.Kinds = append(g.Kinds, specs[i].Kind)
	}
	return g
}
