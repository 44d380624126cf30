package control

import (
	"fmt"
	"slices"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/capture"
)

// Info is the answer to OpInfo.
type Info struct {
	PID         int        `json:"pid"`
	Version     string     `json:"version"`
	Config      string     `json:"config"` // path of the configuration
	StartUnixNS int64      `json:"start_unix_ns"`
	Ports       []PortInfo `json:"ports"`
}

// PortInfo is a port of Info.
type PortInfo struct {
	Name      string   `json:"name"`
	Driver    string   `json:"driver"`
	MAC       string   `json:"mac"`
	Addresses []string `json:"addresses"` // that it has now, with a state that is not "preferred": "2001:db8::1/64 tentative"
	LinkUp    bool     `json:"link_up"`
	LinkDowns uint64   `json:"link_downs"` // times that the link was seen to be down
	LinkUps   uint64   `json:"link_ups"`   // times that it came back
}

// ModulesReply is the answer to OpModules: the modules that serve flows or stand by, in order of kind and name.
type ModulesReply struct {
	Modules []Module `json:"modules"`
}

// States of a Module.
const (
	ModuleActive   = "active"   // serves new flows
	ModuleChosen   = "chosen"   // serves a part of the flows: see Module.For
	ModuleStandby  = "standby"  // ready, chosen by nobody
	ModuleFallback = "fallback" // serves the flows of another module that is late or dead
	ModuleStarting = "starting"
	ModuleLate     = "late"     // answers too late: its flows are with the fallback
	ModuleDead     = "dead"     // waits for its restart
	ModuleGivenUp  = "given_up" // restarted too often
)

// Module is one module of the daemon.
type Module struct {
	Kind            string   `json:"kind"` // "rtx", "pace", "cong"
	Name            string   `json:"name"`
	Version         string   `json:"version"`
	Placement       string   `json:"placement"` // "builtin" or "process"
	State           string   `json:"state"`
	PID             int      `json:"pid"`   // 0: builtin, or no process runs
	Flows           int      `json:"flows"` // that it serves now
	Restarts        int      `json:"restarts"`
	Path            string   `json:"path"`   // of its binary; empty for the daemon's own
	SHA256          string   `json:"sha256"` // of its binary; empty for builtin
	Fallback        string   `json:"fallback"`
	LateCount       uint64   `json:"late_count"`    // times that its flows went to the fallback because it was late
	Events          uint64   `json:"events"`        // records to it
	Commands        uint64   `json:"commands"`      // records from it that were accepted
	BadCommands     uint64   `json:"bad_commands"`  // records from it that were refused
	AnswerP50NS     int64    `json:"answer_p50_ns"` // of a process: from an event to its answer, in whole turns of the worker; 0: builtin, or none yet
	AnswerP99NS     int64    `json:"answer_p99_ns"`
	Resumes         uint64   `json:"resumes"`            // flows handed to it while alive
	NextRestartInNS int64    `json:"next_restart_in_ns"` // with state dead
	LastError       string   `json:"last_error"`
	For             []string `json:"for"`   // selections of flows that it was swapped in for, besides all others if it is active
	Needs           []string `json:"needs"` // features of the daemon that it needs; one that lacks them refuses it
	Params          []Param  `json:"params"`
}

// Param is a parameter of a module: its documentation, and its value now.
type Param struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Unit    string `json:"unit"`
	Default string `json:"default"`
	Value   string `json:"value"`
	Doc     string `json:"doc"`
}

// EventsRequest are the arguments of OpEvents.
type EventsRequest struct {
	Follow bool `json:"follow,omitempty"` // go on with new events
	Last   int  `json:"last,omitempty"`   // so many old events; 0: all that are kept
}

func (r *EventsRequest) check() error {
	if r.Last < 0 {
		return fmt.Errorf("last %d is negative", r.Last)
	}
	return nil
}

// Kinds of Event.
const (
	EventStart    = "start"    // the daemon serves
	EventStop     = "stop"     // the daemon drains
	EventSwap     = "swap"     // flows went to another module by request
	EventUpgrade  = "upgrade"  // a module goes on with the code of another file, by request
	EventSet      = "set"      // a module goes on with other parameters, by request
	EventRefused  = "refused"  // a module could not be started or used: what was in use stays
	EventRollback = "rollback" // a swap was taken back, as its trial has failed
	EventLate     = "late"     // a module is late, its flows went to the fallback
	EventDead     = "dead"     // a module died, or was killed
	EventFallback = "fallback" // the flows of a module that died are with the fallback
	EventRestart  = "restart"  // a module is started again
	EventReturn   = "return"   // flows went back to a module
	EventGivenUp  = "given_up" // a module is not started again
	EventMemory   = "memory"   // the memory budget entered another level
	EventLink     = "link"     // a port's link went up or down
	EventAddress  = "address"  // a port got an address or lost it, or another host has it
	EventFilter   = "filter"   // the packet filter was replaced
)

// Event is something that an operator wants to know.
type Event struct {
	Seq        uint64            `json:"seq"` // counts up from 1; a gap means that events were lost
	TimeUnixNS int64             `json:"time_unix_ns"`
	Kind       string            `json:"kind"`
	Message    string            `json:"message"`          // for people
	Fields     map[string]string `json:"fields,omitempty"` // for programs: module, pid, flows, gap_ns, …
}

// CaptureRequest are the arguments of OpCapture.
type CaptureRequest struct {
	Port    string `json:"port,omitempty"`     // only this port
	Filter  string `json:"filter,omitempty"`   // see capture.Parse
	Count   int    `json:"count,omitempty"`    // end after so many frames; 0: go on
	SnapLen int    `json:"snap_len,omitempty"` // bytes kept of each frame; 0: all
}

func (r *CaptureRequest) check() error {
	if r.Count < 0 {
		return fmt.Errorf("count %d is negative", r.Count)
	}
	if r.SnapLen < 0 {
		return fmt.Errorf("snap length %d is negative", r.SnapLen)
	}
	_, err := capture.Parse(r.Filter)
	return err
}

// Directions of a Frame.
const (
	DirIn  = "in"
	DirOut = "out"
)

// Frame is a captured Ethernet frame.
type Frame struct {
	TimeUnixNS  int64  `json:"time_unix_ns"`
	Port        string `json:"port"`
	Dir         string `json:"dir"`
	LengthBytes int    `json:"length_bytes"` // on the wire, without FCS
	Data        []byte `json:"data"`         // base64; the first SnapLen bytes
}

// CaptureSummary ends a capture.
type CaptureSummary struct {
	Captured uint64 `json:"captured"` // frames passed on
	Dropped  uint64 `json:"dropped"`  // frames that the client was too slow for
	Seen     uint64 `json:"seen"`     // frames that the filter looked at
}

// StatReply is the answer to OpStat.
type StatReply struct {
	TimeUnixNS int64             `json:"time_unix_ns"`
	UptimeNS   int64             `json:"uptime_ns"`
	Memory     MemoryStat        `json:"memory"`
	Go         GoStat            `json:"go"`
	Machine    MachineStat       `json:"machine"`
	Ports      []PortStat        `json:"ports"`
	Workers    []WorkerStat      `json:"workers"`
	Counters   map[string]uint64 `json:"counters"` // of the stack, over all workers, in the manner of nstat(8)
	Gauges     map[string]uint64 `json:"gauges"`   // what can fall: connections, TIME-WAITs, …
}

// MemoryStat is the memory budget.
type MemoryStat struct {
	Level         string            `json:"level"` // "normal", "pressure", "full"
	UsedBytes     uint64            `json:"used_bytes"`
	PeakBytes     uint64            `json:"peak_bytes"`
	MappedBytes   uint64            `json:"mapped_bytes"`
	LowBytes      uint64            `json:"low_bytes"`
	PressureBytes uint64            `json:"pressure_bytes"`
	HighBytes     uint64            `json:"high_bytes"`
	Pressures     uint64            `json:"pressures"` // times that pressure began
	Fulls         uint64            `json:"fulls"`     // times that the high limit was met
	Refusals      uint64            `json:"refusals"`  // requests that were refused
	ByUseBytes    map[string]uint64 `json:"by_use_bytes"`
}

// GoStat is the Go runtime.
type GoStat struct {
	HeapBytes      uint64 `json:"heap_bytes"`
	HeapLimitBytes uint64 `json:"heap_limit_bytes"`
	Goroutines     int    `json:"goroutines"`
	GCs            uint64 `json:"gcs"`
	GCPauseMaxNS   int64  `json:"gc_pause_max_ns"`
	GCPauseTotalNS int64  `json:"gc_pause_total_ns"`
}

// MachineStat is what the machine took from the daemon since its start: to be read beside the workers' turns and gaps.
type MachineStat struct {
	WaitedNS int64 `json:"waited_ns"` // its threads were ready to run and had no processor, added up
	StolenNS int64 `json:"stolen_ns"` // the hypervisor ran others on this machine's processors, added up
}

// PortStat is a port.
type PortStat struct {
	Name        string   `json:"name"`
	Driver      string   `json:"driver"`
	MAC         string   `json:"mac"`
	Addresses   []string `json:"addresses"`
	LinkUp      bool     `json:"link_up"`
	MTUBytes    int      `json:"mtu_bytes"`
	Offloads    []string `json:"offloads"` // that the port has: "rx_csum", "tx_csum", "tso", "rss"
	RxFrames    uint64   `json:"rx_frames"`
	RxBytes     uint64   `json:"rx_bytes"`
	RxDropped   uint64   `json:"rx_dropped"`
	RxErrors    uint64   `json:"rx_errors"`
	TxFrames    uint64   `json:"tx_frames"`
	TxBytes     uint64   `json:"tx_bytes"`
	TxErrors    uint64   `json:"tx_errors"`
	TxFull      uint64   `json:"tx_full"`      // polls that left frames behind
	PoolBuffers int      `json:"pool_buffers"` // over all queues
	PoolFree    int      `json:"pool_free"`    // now; what is free in the driver's own pool counts
}

// WorkerStat is a worker.
type WorkerStat struct {
	Worker   int       `json:"worker"`
	Port     string    `json:"port"`
	Queue    int       `json:"queue"` // -1: none
	Core     int       `json:"core"`  // -1: any
	Poll     string    `json:"poll"`  // "spin" or "adaptive"
	Conns    int       `json:"conns"`
	Turns    uint64    `json:"turns"`
	Idle     uint64    `json:"idle"`  // turns without work
	Parks    uint64    `json:"parks"` // times that it slept
	BusyNS   int64     `json:"busy_ns"`
	ParkedNS int64     `json:"parked_ns"`
	Turn     Histogram `json:"turn"` // duration of a turn with work
	Gap      Histogram `json:"gap"`  // time from one turn's end to the next one's start while not parked: what others took
}

// Histogram is a distribution of durations.
type Histogram struct {
	Count   uint64   `json:"count"`
	SumNS   int64    `json:"sum_ns"`
	P50NS   int64    `json:"p50_ns"`
	P90NS   int64    `json:"p90_ns"`
	P99NS   int64    `json:"p99_ns"`
	P999NS  int64    `json:"p999_ns"`
	MaxNS   int64    `json:"max_ns"`
	Buckets []Bucket `json:"buckets"` // rising; only those with a count
}

// Bucket counts durations above the previous bucket's bound and up to its own.
type Bucket struct {
	LeNS  int64  `json:"le_ns"`
	Count uint64 `json:"count"`
}

// Fill computes the percentiles from Buckets: each is the upper bound of its bucket, MaxNS at most.
func (h *Histogram) Fill() {
	h.Count = 0
	for _, b := range h.Buckets {
		h.Count += b.Count
	}
	at := func(perMille uint64) int64 {
		// The smallest bound with at least the wanted share of the count, rounded up.
		want := (h.Count*perMille + 999) / 1000
		i := slices.IndexFunc(h.Buckets, func(b Bucket) bool {
			if b.Count >= want {
				return true
			}
			want -= b.Count
			return false
		})
		if i < 0 {
			return 0
		}
		return min(h.Buckets[i].LeNS, h.MaxNS)
	}
	if h.Count > 0 {
		h.P50NS, h.P90NS, h.P99NS, h.P999NS = at(500), at(900), at(990), at(999)
	}
}
