// Package pmd is the poll-mode driver layer: buffers, pools, ports and queues.
//
// A Port has one or more Queues. Each Queue has one owner, a worker, which calls Poll once per turn: frames go out, frames come
// in, buffers are refilled, and a driver that needs C crosses into it once. Frames live in Bufs, fixed-size blocks of memory off
// the Go heap that come from the queue's Pool and return to it.
package pmd

import (
	"errors"
	"net"
)

// A Port is a network interface that this process drives.
type Port interface {
	// Info describes the port. It does not change while the port is open.
	Info() Info
	// NumQueues is the number of queue pairs.
	NumQueues() int
	// Queue returns queue pair i. Each has one owner at a time.
	Queue(i int) Queue
	// Stats returns the port's counters. It may be called from any goroutine.
	Stats() Stats
	// LinkUp reports whether the link is up. It may be called from any goroutine.
	LinkUp() bool
	// Close releases the port after all its queues are idle. It unmaps the pools: no Buf may be used afterwards. It returns a
	// *LeakError if buffers are still out.
	Close() error
}

// A Queue is one receive and transmit ring.
type Queue interface {
	// Poll runs one turn: it transmits a prefix of tx, of which it takes ownership, and fills rx with received frames, which the
	// caller then owns. It returns how many of each. It does not block. It never takes more frames than the ring has room for.
	Poll(tx, rx []*Buf) (ntx, nrx int)
	// TxRoom is the number of frames that the next Poll will surely take, if none of them is large.
	TxRoom() int
	// Pool is the pool of the queue's buffers. Frames passed to Poll may come from any pool that the Caps allow.
	Pool() *Pool
	// WakeFD is a file descriptor that becomes readable when frames arrive, or -1 if the driver has none.
	WakeFD() int
}

// A Parker is a Queue whose wakeups must be asked for: WakeFD becomes readable only between Park and Unpark. A worker that
// wants to sleep calls Park, waits for WakeFD if Park reports true, and in both cases calls Unpark before it polls again.
type Parker interface {
	Queue
	// Park asks for a wakeup. It reports whether there is nothing to receive now; if there is, the worker polls instead of
	// sleeping. A frame that arrives after Park looked makes WakeFD readable.
	Park() (empty bool)
	// Unpark ends the request and makes WakeFD unreadable.
	Unpark()
}

// A Completer is a Queue that keeps the frames it has taken until they are sent. One without it, or whose port has Copies, completes a
// frame when Poll takes it.
type Completer interface {
	Queue
	// Uncompleted is the number of frames that Poll has taken and that are not known to be sent. Frames complete in the order in which
	// Poll took them. Only the owner calls it.
	Uncompleted() int
}

// Uncompleted is q's, if it is a Completer; else 0.
func Uncompleted(q Queue) int {
	if c, ok := q.(Completer); ok {
		return c.Uncompleted()
	}
	return 0
}

// An Adviser is a Port that knows more about its state than the numbers say.
type Adviser interface {
	// Warnings lists what the port's user should know when it opens, one line each.
	Warnings() []string
	// LinkAdvice says why the link is down and what brings it back, or "".
	LinkAdvice() string
}

// Caps are offload capabilities, found by asking the port.
type Caps uint32

// Capabilities of a port. What is not set is done in software.
const (
	// RxCsum: the port verifies IPv4 and TCP checksums and sets RxCsumGood or RxCsumBad on each frame that it checked.
	RxCsum Caps = 1 << iota
	// TxCsum: the port completes the checksums that a frame's TxIPCsum and TxTCPCsum ask for.
	TxCsum
	// TSO: the port cuts large frames into segments; see Buf.Large. It has TxCsum too.
	TSO
	// RSSHash: the port steers by the Toeplitz hash of Info.RSSKey over the 4-tuple. Frames that carry it are marked RxHash.
	RSSHash
	// Copies: transmission is complete when Poll has taken the frame; the sender need not wait for the buffer to come back.
	Copies
	// AnyPool: the port takes frames of any pool and keeps no reference to them after Poll.
	AnyPool
	// Prompt: Poll does not cross into C, so that a worker may call it once more at a turn's end, without rx, to send what the turn has
	// made before applications run.
	Prompt
)

// Info describes a port.
type Info struct {
	Driver   string // "dpdk:net_af_packet", "afpacket", "tap", "memlink", "pcap"
	Name     string
	MAC      net.HardwareAddr
	MTU      int // largest IP packet
	Caps     Caps
	MaxTSO   int      // most bytes of TCP payload in a large frame; 0 without TSO
	RSSKey   []byte   // with RSSHash
	RSSTable []uint16 // redirection table with RSSHash: queue of hash % len
	Virtual  bool     // the port follows a virtual clock
}

// Stats are a port's counters. A large frame counts as what it is cut into.
type Stats struct {
	RxFrames, RxBytes uint64
	TxFrames, TxBytes uint64
	RxDropped         uint64 // frames lost for want of room or buffers
	RxErrors          uint64
	TxErrors          uint64
	TxFull            uint64 // Polls that left frames behind for want of room
}

// Errors that drivers share.
var (
	ErrNoBuffers = errors.New("pmd: pool exhausted")
	ErrClosed    = errors.New("pmd: port is closed")
)
