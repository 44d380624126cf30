package sim

import (
	"cmp"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
)

// Scenario is a scenario file: two hosts, the link between them, flows, and what happens meanwhile. All times count from the
// start of the simulation.
type Scenario struct {
	Name        string        `toml:"name"` // default: the file's name
	Description string        `toml:"description"`
	Seed        uint64        `toml:"seed"`     // default 1
	Duration    conf.Duration `toml:"duration"` // the simulation ends here, or before, when every flow with an end has ended
	Sample      conf.Duration `toml:"sample"`   // interval of the time series; default: a thousandth of Duration, at least 1 ms
	Turn        conf.Duration `toml:"turn"`     // what a round of the workers' loops takes; default 1 µs
	MTU         int           `toml:"mtu"`      // default 1500
	Host        Hosts         `toml:"host"`
	Link        Link          `toml:"link"`
	Flows       []Flow        `toml:"flow"`
	Events      []Event       `toml:"event"`

	external map[string]func(seed uint64) (any, error) // congestion controls that are not built in, by name
}

// Hosts are the two ends. Flows begin at a unless they say otherwise.
type Hosts struct {
	A Host `toml:"a"`
	B Host `toml:"b"`
}

// Host is one end: the modules that serve its flows, and its TCP's settings.
type Host struct {
	Rtx  Use `toml:"rtx"`  // default btree
	Pace Use `toml:"pace"` // default edt
	Cong Use `toml:"cong"` // default cubic

	RecvBuffer    conf.Size     `toml:"recv_buffer"` // what it may grow to; default 1 GiB - 16 KiB
	RecvStart     conf.Size     `toml:"recv_start"`  // what it is at first; default 64 KiB
	SendBuffer    conf.Size     `toml:"send_buffer"` // what it may grow to; default 1 GiB + 4 MiB
	InitialWindow int           `toml:"initial_window"`
	DelAck        conf.Duration `toml:"delayed_ack"`
	ECN           string        `toml:"ecn" one:"off passive on accecn"` // default passive
	NoSACK        bool          `toml:"no_sack"`
	NoTimestamps  bool          `toml:"no_timestamps"`
	Memory        conf.Size     `toml:"memory"` // what its stack may use in all, for data of its connections; default: no limit
}

// Use names a built-in module and its parameters.
type Use struct {
	Use    string            `toml:"use"`
	Params map[string]string `toml:"params"`
}

// Link holds the paths of the two directions. What stands in both is the default of either.
type Link struct {
	Both Path `toml:"both"`
	AtoB Path `toml:"a_to_b"`
	BtoA Path `toml:"b_to_a"`
}

// Path is one direction of the link; see memlink.Path, whose fields it has.
type Path struct {
	Rate        conf.Rate     `toml:"rate"`
	Trace       string        `toml:"trace"` // in place of rate: a file, relative to the scenario, that says how it changes; see trace.go
	Overhead    int           `toml:"overhead"`
	Queue       conf.Size     `toml:"queue"`
	QueueFrames int           `toml:"queue_frames"`
	Mark        conf.Size     `toml:"mark"`
	MarkFrames  int           `toml:"mark_frames"`
	Delay       conf.Duration `toml:"delay"`
	Jitter      conf.Duration `toml:"jitter"`
	KeepOrder   bool          `toml:"keep_order"`
	Loss        Loss          `toml:"loss"`
	Policer     Policer       `toml:"policer"`
	Duplicate   Probability   `toml:"duplicate"`
	Reorder     Reorder       `toml:"reorder"`
	Corrupt     Corrupt       `toml:"corrupt"`
	Hold        conf.Duration `toml:"hold"`      // the sending port keeps its frames, and tells so long after the bottleneck has served one
	HoldEach    conf.Duration `toml:"hold_each"` // it tells together, at least so long after the last time, what it has sent meanwhile

	trace *memlink.Trace
}

// Loss are the models of loss; they add up.
type Loss struct {
	Random   Probability `toml:"random"`
	Frames   []uint64    `toml:"frames"` // by number in the direction, from 1
	Burst    Probability `toml:"burst"`  // that a frame is the first of a burst
	BurstLen int         `toml:"burst_len"`
	Gilbert  Gilbert     `toml:"gilbert"`
}

// Gilbert is the Gilbert-Elliott model: per frame the chances to change state, and to be lost in either.
type Gilbert struct {
	ToBad  Probability `toml:"to_bad"`
	ToGood Probability `toml:"to_good"`
	Good   Probability `toml:"good"`
	Bad    Probability `toml:"bad"`
}

// Policer is a token bucket that drops what is beyond its rate.
type Policer struct {
	Rate  conf.Rate `toml:"rate"`
	Burst conf.Size `toml:"burst"`
}

// Reorder holds a frame back, so that later ones overtake it.
type Reorder struct {
	Chance Probability   `toml:"chance"`
	By     conf.Duration `toml:"by"`
}

// Corrupt inverts bits of a frame behind its Ethernet header.
type Corrupt struct {
	Chance Probability `toml:"chance"`
	Bits   int         `toml:"bits"` // longest burst, 1 to 15
}

// Kinds of flow.
const (
	Bulk       = "bulk"        // sends all the time
	ReqResp    = "rr"          // sends Request bytes, waits for Response bytes, thinks
	OnOff      = "onoff"       // sends for On, is silent for Off
	AppLimited = "app_limited" // sends Rate, in messages of Write bytes
)

// Flow is one connection. Its client, at host From, opens it and sends; in a request/response flow the other end sends as well.
type Flow struct {
	Name    string        `toml:"name"` // default: its number, from 1
	Kind    string        `toml:"kind" one:"bulk rr onoff app_limited"`
	From    string        `toml:"from" one:"a b"` // default a
	Start   conf.Duration `toml:"start"`
	Stop    conf.Duration `toml:"stop"`  // when it ends; default: the end of the simulation
	Bytes   conf.Size     `toml:"bytes"` // after how many bytes of the client it ends, if before Stop
	Rtx     Use           `toml:"rtx"`   // default: those of the host
	Pace    Use           `toml:"pace"`
	Cong    Use           `toml:"cong"`
	MaxRate conf.Rate     `toml:"max_rate"` // limit of the connection's pacing rate
	NoDelay bool          `toml:"no_delay"`
	Delay   conf.Duration `toml:"delay"` // that it adds to the link's, in either direction: a round-trip time of its own

	Request  conf.Size     `toml:"request"`
	Response conf.Size     `toml:"response"`
	Think    conf.Duration `toml:"think"`
	Count    int           `toml:"count"` // of transactions; default: no limit

	On  conf.Duration `toml:"on"`
	Off conf.Duration `toml:"off"`

	Rate  conf.Rate `toml:"rate"`
	Write conf.Size `toml:"write"` // default 1 kB

	own [plugins.NumKinds]bool // its modules are its own, not its host's
}

// Event changes something while flows run: the module of a kind that serves a host's flows, a path, or a host's memory.
type Event struct {
	At     conf.Duration     `toml:"at"`
	Swap   string            `toml:"swap"`           // "cong cdg": the kind, and the module that takes over
	Params map[string]string `toml:"params"`         // of that module
	Memory conf.Size         `toml:"memory"`         // the host's limit from then on; "0B": none
	Host   string            `toml:"host" one:"a b"` // of swap and memory; default a
	Path   string            `toml:"path" one:"a_to_b b_to_a both"`
	Set    Path              `toml:"set"` // keys that are given here change

	index      int  // in the file
	memory     bool // Memory is given
	aToB, bToA Path // the paths from then on
}

// Probability is a chance in text form, in per cent: "0.1%".
type Probability memlink.PPB

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Probability) UnmarshalText(b []byte) error {
	num, ok := strings.CutSuffix(string(b), "%")
	num = strings.TrimRight(num, " ")
	if !ok || num == "" || len(num) > 32 || strings.Trim(num, "0123456789.") != "" {
		return fmt.Errorf("%q is not a probability; write it as \"1%%\" or \"0.05%%\"", b)
	}
	v, ok := new(big.Rat).SetString(num)
	if !ok {
		return fmt.Errorf("%q is not a number", num)
	}
	v.Mul(v, big.NewRat(int64(memlink.Percent), 1))
	if !v.IsInt() {
		return fmt.Errorf("%q is finer than a part per billion", b)
	}
	if !v.Num().IsInt64() || v.Num().Int64() > int64(memlink.Always) {
		return fmt.Errorf("%q is more than 100%%", b)
	}
	*p = Probability(v.Num().Int64())
	return nil
}

func (p *Path) memlink() memlink.Path {
	return memlink.Path{
		Rate: p.Rate.Bits(), Trace: p.trace, Overhead: p.Overhead, QueueBytes: int(p.Queue), QueueFrames: p.QueueFrames, MarkBytes: int(p.Mark),
		MarkFrames: p.MarkFrames, Delay: p.Delay.D(), Jitter: p.Jitter.D(), KeepOrder: p.KeepOrder,
		Loss: memlink.Loss{
			Random: memlink.PPB(p.Loss.Random), Frames: p.Loss.Frames, Burst: memlink.PPB(p.Loss.Burst), BurstLen: p.Loss.BurstLen,
			Gilbert: memlink.Gilbert{ToBad: memlink.PPB(p.Loss.Gilbert.ToBad), ToGood: memlink.PPB(p.Loss.Gilbert.ToGood),
				Good: memlink.PPB(p.Loss.Gilbert.Good), Bad: memlink.PPB(p.Loss.Gilbert.Bad)},
		},
		PolicerRate: p.Policer.Rate.Bits(), PolicerBurst: int(p.Policer.Burst),
		Duplicate: memlink.PPB(p.Duplicate), Reorder: memlink.PPB(p.Reorder.Chance), ReorderDelay: p.Reorder.By.D(),
		Corrupt: memlink.PPB(p.Corrupt.Chance), CorruptBits: p.Corrupt.Bits, Hold: p.Hold.D(), HoldEach: p.HoldEach.D(),
	}
}

// maxScenario bounds what Load reads: a scenario is written by hand.
const maxScenario = 256 << 10

// Load reads a scenario file. What is wrong with it is of type conf.Problems and complete; a file that cannot be read gives an
// error of the os package.
func Load(file string) (*Scenario, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxScenario+1))
	if err != nil {
		return nil, err
	}
	return Parse(file, data)
}

// Parse is Load for a file that has been read already. file gives the scenario its name, unless it has one, stands in errors, and says
// where the files lie that it names.
func Parse(file string, data []byte) (*Scenario, error) {
	s := &Scenario{Seed: 1, Turn: conf.Duration(time.Microsecond), MTU: 1500}
	doc := conf.Decode(file, data, s)
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	both := s.Link.Both
	s.Link.AtoB, s.Link.BtoA = both, both
	doc.Overlay(&s.Link.AtoB, "link", "a_to_b")
	doc.Overlay(&s.Link.BtoA, "link", "b_to_a")
	s.resolveEvents(doc)
	s.setDefaults()
	s.resolvePaths(doc)
	s.resolveTraces(file, doc)
	if !doc.Broken() {
		(&check{s, doc}).run()
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Scenario) setDefaults() {
	def(&s.Sample, max(conf.Duration(time.Millisecond), s.Duration/1000))
	def(&s.Host.A.Rtx.Use, "btree")
	def(&s.Host.A.Pace.Use, "edt")
	def(&s.Host.A.Cong.Use, "cubic")
	def(&s.Host.B.Rtx.Use, "btree")
	def(&s.Host.B.Pace.Use, "edt")
	def(&s.Host.B.Cong.Use, "cubic")
	for i := range s.Flows {
		f := &s.Flows[i]
		def(&f.Name, fmt.Sprint(i+1))
		def(&f.From, "a")
		def(&f.Write, 1000)
		def(&f.Stop, s.Duration)
		host := &s.Host.A
		if f.From == "b" {
			host = &s.Host.B
		}
		for k := range plugins.NumKinds {
			f.own[k] = inherit(f.use(k), host.use(k))
		}
	}
	for i := range s.Events {
		def(&s.Events[i].Host, "a")
		if e := &s.Events[i]; e.isPath() {
			def(&s.Events[i].Path, "both")
		}
	}
}

// isPath reports whether the event changes a path.
func (e *Event) isPath() bool { return e.Swap == "" && !e.memory }

// resolveEvents puts the events in the order of their times.
func (s *Scenario) resolveEvents(doc *conf.Document) {
	for i := range s.Events {
		s.Events[i].index, s.Events[i].memory = i, doc.Has(fmt.Sprintf("event[%d].memory", i))
	}
	slices.SortStableFunc(s.Events, func(x, y Event) int { return cmp.Compare(x.At, y.At) })
}

// resolvePaths says what each event makes of the paths.
func (s *Scenario) resolvePaths(doc *conf.Document) {
	a, b := s.Link.AtoB, s.Link.BtoA
	for i := range s.Events {
		e := &s.Events[i]
		if e.Path == "a_to_b" || e.Path == "both" {
			doc.Overlay(&a, "event", e.index, "set")
		}
		if e.Path == "b_to_a" || e.Path == "both" {
			doc.Overlay(&b, "event", e.index, "set")
		}
		e.aToB, e.bToA = a, b
	}
}

// inherit gives a flow its host's module, unless it has one of its own.
func inherit(u, host *Use) (own bool) {
	if u.Use == "" && u.Params == nil {
		*u = *host
		return false
	}
	def(&u.Use, host.Use)
	return true
}

func (h *Host) use(k plugins.Kind) *Use { return [...]*Use{&h.Rtx, &h.Pace, &h.Cong}[k] }

func (f *Flow) use(k plugins.Kind) *Use { return [...]*Use{&f.Rtx, &f.Pace, &f.Cong}[k] }

// Override makes a module serve all flows of both hosts from the start, whatever the file says.
func (s *Scenario) Override(k plugins.Kind, u Use) error {
	e, ok := builtin.Find(k, u.Use)
	if !ok {
		return fmt.Errorf("sim: no %v module %q (there are %s)", k, u.Use, strings.Join(builtin.Names(k), ", "))
	}
	if _, err := e.New(u.Params, 1); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	*s.Host.A.use(k), *s.Host.B.use(k) = u, u
	for i := range s.Flows {
		*s.Flows[i].use(k), s.Flows[i].own[k] = u, false
	}
	return nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
