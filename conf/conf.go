// Package conf is fastpath's configuration: its types with their defaults, a strict TOML loader that reports all errors at
// once with file, line and key, and checks against the machine that it is to run on.
//
// example.toml beside this file lists every key with its default and its meaning; demo.toml is what `make demo` runs.
package conf

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// Config is a whole configuration. Load fills it in; Default is what an empty file means.
type Config struct {
	Ports    []Port   `toml:"port"`
	Workers  []Worker `toml:"worker"`
	DPDK     DPDK     `toml:"dpdk"`
	Memory   Memory   `toml:"memory"`
	TCP      TCP      `toml:"tcp"`
	Modules  Modules  `toml:"modules"`
	Standing []Module `toml:"module"`
	Apps     []App    `toml:"app"`
	Firewall Firewall `toml:"firewall"`
	Filters  []Filter `toml:"filter"`
	Control  Control  `toml:"control"`
	Log      Log      `toml:"log"`
	Metrics  Metrics  `toml:"metrics"`
	Shutdown Shutdown `toml:"shutdown"`

	doc *document // where each key stands, for Check
}

// Drivers of a port.
const (
	DriverDPDK     = "dpdk"
	DriverAFPacket = "afpacket"
	DriverTap      = "tap"
	DriverMemlink  = "memlink"
	DriverPcap     = "pcap"
)

// Port is a [[port]]: a network interface that the daemon drives.
type Port struct {
	Name      string         `toml:"name"`
	Driver    string         `toml:"driver" one:"dpdk afpacket tap memlink pcap"`
	Interface string         `toml:"interface"` // afpacket, tap: name of the kernel's interface
	Vdev      string         `toml:"vdev"`      // dpdk: virtual device, "net_af_packet0,iface=veth1"
	Device    string         `toml:"device"`    // dpdk: PCI address, "0000:00:03.0"
	Peer      string         `toml:"peer"`      // memlink: name of the port at the other end
	Replay    string         `toml:"replay"`    // pcap: file whose frames are received
	Record    string         `toml:"record"`    // pcap: file that takes what is transmitted
	Parent    string         `toml:"parent"`    // VLAN: name of the port whose tagged frames this one has
	VLAN      int            `toml:"vlan"`      // VLAN: its ID
	MAC       MAC            `toml:"mac"`       // nil: the device's own
	MTU       int            `toml:"mtu"`       // largest IP packet in bytes
	Queues    int            `toml:"queues"`    // queue pairs
	Ring      int            `toml:"ring"`      // descriptors per receive and per transmit ring; 0: the driver's own choice
	Buffers   int            `toml:"buffers"`   // packet buffers in the pool of each queue
	TSO       bool           `toml:"tso"`       // the port cuts TCP segments, where it offers to
	Addresses []netip.Prefix `toml:"addresses"`
	Gateway   netip.Addr     `toml:"gateway"`  // default route of its family; invalid: none
	Gateway6  netip.Addr     `toml:"gateway6"` // default route of IPv6; invalid: none
	SLAAC     bool           `toml:"slaac"`    // IPv6 addresses and routes from router advertisements
	DHCP      bool           `toml:"dhcp"`     // IPv4 address and routes from a DHCP server

	Exception          string         `toml:"exception"`           // TAP device to make, for frames that are not fastpath's; empty: none
	ExceptionAddresses []netip.Prefix `toml:"exception_addresses"` // the kernel's, on that device; those that it has stay
	ExceptionRate      int            `toml:"exception_rate"`      // frames per second in each direction
	ExceptionUnclaimed bool           `toml:"exception_unclaimed"` // also what fastpath would refuse at its own addresses
}

// Ways to run a worker.
const (
	PollSpin     = "spin"
	PollAdaptive = "adaptive"
)

// AnyCore is the Core of a worker that is not bound to one.
const AnyCore = -1

// NoQueue is the Queue of a worker that gets its frames from other workers, by software dispatch.
const NoQueue = -1

// autoQueue stands for "not given" until the loader has assigned a queue.
const autoQueue = -2

// Worker is a [[worker]]: one share-nothing TCP instance.
type Worker struct {
	Core  int    `toml:"core"` // with PollSpin: the number of a CPU; else AnyCore
	Poll  string `toml:"poll" one:"spin adaptive"`
	Port  string `toml:"port"`
	Queue int    `toml:"queue"` // NoQueue, or the number of the port's queue pair that this worker owns
}

// DPDK is [dpdk]: what the Environment Abstraction Layer is started with, once per process.
type DPDK struct {
	Hugepages  string   `toml:"hugepages" one:"auto require off"` // off: --no-huge
	FilePrefix string   `toml:"file_prefix"`
	Memory     Size     `toml:"memory"` // reserved at start; 0: EAL's own choice
	Args       []string `toml:"args"`   // further EAL arguments
}

// Memory is [memory]: the global budget over everything off the Go heap, and the limit of the heap itself.
type Memory struct {
	Low      Size `toml:"low"`      // below: no restriction
	Pressure Size `toml:"pressure"` // above: buffers no longer grow, then windows shrink
	High     Size `toml:"high"`     // above: new flows are refused
	Heap     Size `toml:"heap"`     // soft limit of the Go heap
}

// GC returns the garbage collector's settings for a small heap beside large off-heap memory: GOGC in percent and the soft
// memory limit in bytes. A heap of a few MB may grow several times over before it pays to collect; the limit bounds it.
func (m Memory) GC() (percent int, limit int64) { return 400, int64(m.Heap) }

// TCP is [tcp]: defaults of all connections.
type TCP struct {
	SendBuffer        Size      `toml:"send_buffer"`    // what a connection's may grow to
	ReceiveBuffer     Size      `toml:"receive_buffer"` // what a connection's may grow to
	ReceiveStart      Size      `toml:"receive_start"`  // receive buffer of a new connection
	MinPathMTU        int       `toml:"min_path_mtu"`   // least MTU believed of an IPv4 path, bytes
	PathProbing       string    `toml:"path_probing" one:"blackhole always off"`
	InitialWindow     int       `toml:"initial_window"` // segments (RFC 6928)
	DelayedACK        Duration  `toml:"delayed_ack"`
	MinRTO            Duration  `toml:"min_rto"`
	MaxRTO            Duration  `toml:"max_rto"`
	SYNRetries        int       `toml:"syn_retries"`
	SYNLinearTimeouts int       `toml:"syn_linear_timeouts"`
	SYNCookies        string    `toml:"syn_cookies" one:"overflow off always"`
	ECN               string    `toml:"ecn" one:"off passive on accecn accecn-passive"`
	AutoCork          bool      `toml:"autocork"`           // small writes wait for others while the port is busy
	FastOpenQueue     int       `toml:"fast_open_queue"`    // connections per listener that serve data before their handshake is over
	Retries           int       `toml:"retries"`            // consecutive retransmission timeouts before a connection is given up
	AdvertisedTimeout Duration  `toml:"advertised_timeout"` // user timeout that peers are told (RFC 5482); 0: the option is neither sent nor read
	MinUserTimeout    Duration  `toml:"min_user_timeout"`   // of those that peers bring about
	MaxUserTimeout    Duration  `toml:"max_user_timeout"`
	KeepAlive         bool      `toml:"keepalive"`
	KeepAliveIdle     Duration  `toml:"keepalive_idle"`
	KeepAliveInterval Duration  `toml:"keepalive_interval"`
	KeepAliveProbes   int       `toml:"keepalive_probes"`
	TimeWait          Duration  `toml:"time_wait"`
	OrphanTimeout     Duration  `toml:"orphan_timeout"`  // without progress, of a connection that the application has closed
	MaxOrphans        int       `toml:"max_orphans"`     // per worker
	MaxTimeWaits      int       `toml:"max_time_waits"`  // per worker
	ChallengeLimit    int       `toml:"challenge_limit"` // challenge ACKs per second and worker
	FinWait           Duration  `toml:"fin_wait"`        // FIN-WAIT-2 of a connection that nobody reads any more
	Backlog           int       `toml:"backlog"`         // connections per listener that wait for Accept
	Ports             PortRange `toml:"ports"`           // source ports of active opens
	SACK              bool      `toml:"sack"`
	Timestamps        bool      `toml:"timestamps"`
	WindowScaling     bool      `toml:"window_scaling"`
}

// When TCP probes for the path's MTU.
const (
	ProbeBlackHole = "blackhole"
	ProbeAlways    = "always"
	ProbeOff       = "off"
)

// Placements of a module.
const (
	PlacementBuiltin = "builtin"
	PlacementProcess = "process"
)

// Modules is [modules]: which module of each kind serves new flows from the start.
type Modules struct {
	// PluginDir holds module binaries by name, fastpath-KIND-NAME. Empty: none but those given by path.
	PluginDir string `toml:"plugin_dir"`
	User      string `toml:"user"` // whose module processes are, by name or number, if the daemon is root's. Empty: the daemon's own
	// StartTimeout bounds the start of a module's process until it answers: a slow machine needs more time for it.
	StartTimeout Duration `toml:"start_timeout"`
	// Spin is how long a module's process that shares its processor looks for events before it sleeps.
	Spin        Duration `toml:"spin"`
	MemoryLimit Size     `toml:"memory_limit"` // of each module process; 0: none
	// Together are kinds whose modules in use share one process, of a binary that has them all, such as the daemon's own: less isolated
	// from each other, but with fewer processes to wake. nil: see Shared.
	Together []string `toml:"together"`
	Rtx      Use      `toml:"rtx"`
	Pace     Use      `toml:"pace"`
	Cong     Use      `toml:"cong"`
}

// Kind returns the entry for kind k.
func (m *Modules) Kind(k plugins.Kind) *Use {
	return [...]*Use{plugins.Rtx: &m.Rtx, plugins.Pace: &m.Pace, plugins.Cong: &m.Cong}[k]
}

// Shared returns the kinds whose modules in use share one process: those that the configuration names, or, if it does not say, those
// that can, which are processes of the daemon's own binary with the same processors. A file of somebody else's runs alone unless asked
// to share.
func (m *Modules) Shared() []string {
	if m.Together != nil {
		return m.Together
	}
	own := func(k plugins.Kind) bool {
		u := m.Kind(k)
		return u.Placement == PlacementProcess && u.File(m.PluginDir, k, u.Use) == ""
	}
	for first := range plugins.NumKinds {
		var kinds []string
		for k := first; k < plugins.NumKinds && own(first); k++ {
			if own(k) && slices.Equal(m.Kind(k).CPUs, m.Kind(first).CPUs) {
				kinds = append(kinds, k.String())
			}
		}
		if len(kinds) > 1 {
			return kinds
		}
	}
	return nil
}

// Binary says where the code of a module comes from.
//
// A builtin module is linked in. A process is, in this order: the file at Path; PluginDir/fastpath-KIND-NAME if there is one;
// else the daemon's own binary, if it has the module built in. A file must have the checksum SHA256, unless AllowUnpinned.
type Binary struct {
	Placement     string            `toml:"placement" one:"builtin process"`
	Path          string            `toml:"path"`
	SHA256        SHA256            `toml:"sha256"`
	AllowUnpinned bool              `toml:"allow_unpinned"`
	Params        map[string]string `toml:"params"` // the module's own parameters, in text form
}

// Use is [modules.KIND]: the module in use, and how it is guarded.
type Use struct {
	Use string `toml:"use"`
	Binary
	// Fallback is the built-in module that serves flows while a process is late or dead. Load replaces an empty one only by
	// what FallbackFor says, which needs to know what is built in.
	Fallback string `toml:"fallback"`
	// CPUs are processors that processes of this kind have for themselves, at most one per worker: there they look for events all the
	// time while they have flows. Without any they share all processors, and sleep when there is nothing to do.
	CPUs          []int    `toml:"cpus"`
	Late          Duration `toml:"late"` // age of the oldest unconsumed event; 0: 10 ms on a dedicated core, 100 ms on a shared one
	Dead          Duration `toml:"dead"` // silence with events outstanding
	RestartMin    Duration `toml:"restart_min"`
	RestartMax    Duration `toml:"restart_max"`
	RestartLimit  int      `toml:"restart_limit"`  // give up after so many restarts …
	RestartWindow Duration `toml:"restart_window"` // … in this time
}

// FallbackFor returns the name of the built-in module that stands in for u of kind k: the configured one, else the same name
// if it is built in, else the kind's default.
func (u *Use) FallbackFor(k plugins.Kind, builtin func(name string) bool) string {
	switch {
	case u.Fallback != "":
		return u.Fallback
	case builtin(u.Use):
		return u.Use
	}
	return [...]string{plugins.Rtx: "btree", plugins.Pace: "edt", plugins.Cong: "cubic"}[k]
}

// Module is a [[module]]: a standing alternative that `ctl swap` may choose. A process is started with the daemon, because a
// swap goes to a process that already stands.
type Module struct {
	Kind string `toml:"kind" one:"rtx pace cong"`
	Name string `toml:"name"`
	Binary
}

// Kinds of application.
const (
	AppHTTP    = "http"
	AppEcho    = "echo"
	AppUDPEcho = "udp-echo"
	AppDiscard = "discard"
	AppSource  = "source"
	AppProxy   = "proxy"
)

// UDP reports whether the application serves datagrams.
func (a *App) UDP() bool { return a.Kind == AppUDPEcho }

// Networks that a proxy reaches its backend through.
const (
	ViaKernel   = "kernel"
	ViaFastpath = "fastpath"
)

// App is an [[app]]: an application that the daemon serves on a port's address.
type App struct {
	Name        string         `toml:"name"`
	Kind        string         `toml:"kind" one:"http echo udp-echo discard source proxy"`
	Listen      netip.AddrPort `toml:"listen"`
	IdleTimeout Duration       `toml:"idle_timeout"` // 0: none
	Rate        Rate           `toml:"rate"`         // http, source: cap per response or connection; 0: none

	Root   string `toml:"root"`   // http: directory of files; empty: generated content
	Size   Size   `toml:"size"`   // http: size of the generated content at /; source: bytes per connection, 0: endless
	Seed   uint64 `toml:"seed"`   // http, source: seed of the generated content
	Upload bool   `toml:"upload"` // http: PUT and POST to /upload, answered with the SHA-256

	Backend netip.AddrPort `toml:"backend"`                   // proxy
	Via     string         `toml:"via" one:"kernel fastpath"` // proxy
}

// Control is [control]: the control socket.
type Control struct {
	Socket string `toml:"socket"`
}

// DefaultSocket is the path of the control socket unless the configuration says otherwise.
const DefaultSocket = "/run/fastpath/control.sock"

// Log is [log].
type Log struct {
	Level  string `toml:"level" one:"debug info warn error"`
	Format string `toml:"format" one:"text json"`
}

// Metrics is [metrics]: Prometheus metrics over HTTP, on the kernel's network.
type Metrics struct {
	Listen netip.AddrPort `toml:"listen"` // invalid: off
}

// Shutdown is [shutdown].
type Shutdown struct {
	Drain Duration `toml:"drain"` // how long connections may finish before they are reset
}

// Default is the configuration that an empty file means, before the checks that want at least one port.
func Default() *Config {
	use := func(name string) Use {
		return Use{
			Use: name, Binary: Binary{Placement: PlacementProcess},
			Dead: Duration(2 * time.Second), RestartMin: Duration(100 * time.Millisecond), RestartMax: Duration(10 * time.Second),
			RestartLimit: 5, RestartWindow: Duration(time.Minute),
		}
	}
	return &Config{
		DPDK:   DPDK{Hugepages: "auto", FilePrefix: "fastpath"},
		Memory: Memory{Low: 256 * MiB, Pressure: 384 * MiB, High: 512 * MiB, Heap: 256 * MiB},
		TCP: TCP{ // Linux 6.12's figures, but for the largest buffers
			SendBuffer: 512 * MiB, ReceiveBuffer: 512 * MiB, ReceiveStart: 64 * KiB, MinPathMTU: 552, PathProbing: ProbeBlackHole, InitialWindow: 10,
			DelayedACK: Duration(40 * time.Millisecond), MinRTO: Duration(200 * time.Millisecond), MaxRTO: Duration(120 * time.Second),
			SYNRetries: 7, SYNCookies: "overflow", ECN: "passive", AutoCork: true, Retries: 15,
			MinUserTimeout: Duration(100 * time.Second), MaxUserTimeout: Duration(time.Hour),
			KeepAliveIdle: Duration(2 * time.Hour), KeepAliveInterval: Duration(75 * time.Second), KeepAliveProbes: 9,
			TimeWait: Duration(time.Minute), FinWait: Duration(time.Minute), OrphanTimeout: Duration(102200 * time.Millisecond),
			MaxOrphans: 65536, MaxTimeWaits: 262144, ChallengeLimit: 1000, Backlog: 1024,
			Ports: PortRange{Min: 32768, Max: 60999}, SACK: true, Timestamps: true, WindowScaling: true,
		},
		Modules: Modules{
			StartTimeout: Duration(10 * time.Second),
			Spin:         Duration(2 * time.Microsecond),
			MemoryLimit:  512 << 20,
			Rtx:          use("btree"),
			Pace:         use("edt"),
			Cong:         use("bbr"),
		},
		Firewall: Firewall{Default: ActionAllow},
		Control:  Control{Socket: DefaultSocket},
		Log:      Log{Level: "info", Format: "text"},
		Shutdown: Shutdown{Drain: Duration(10 * time.Second)},
	}
}

// setDefaults makes a new element of a list what it is before its keys are read.
func (p *Port) setDefaults() {
	p.MTU, p.Queues, p.Buffers, p.TSO, p.ExceptionRate = 1500, 1, 8192, true, 20_000
}

func (w *Worker) setDefaults() {
	w.Core, w.Poll, w.Queue = AnyCore, PollAdaptive, autoQueue
}

func (m *Module) setDefaults() { m.Placement = PlacementBuiltin }

func (a *App) setDefaults() {
	a.IdleTimeout, a.Via = Duration(time.Minute), ViaKernel
}
