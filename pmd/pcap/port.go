package pcap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
)

// Config describes a port that plays a capture and records another.
type Config struct {
	Name string           // "pcap"
	MAC  net.HardwareAddr // 02:00:00:00:00:0c
	MTU  int              // 1500
	Bufs int              // 1024: buffers in the pool

	// Replay is the capture whose frames the port receives, nil for none. Open reads all of it.
	Replay io.Reader
	// Fast plays frames as fast as they are polled. Otherwise each comes as long after the first Poll as it was recorded after
	// the first frame; it is dropped and counted if there is no buffer for it then.
	Fast bool
	// Record is where transmitted frames are written, nil for nowhere. They are complete after Close, which does not close it.
	Record io.Writer
	Snap   int    // as in WriterConfig
	Count  uint64 // as in WriterConfig; further frames are transmitted but not recorded

	// Now is the clock, read once per Poll. It is needed to record, and to replay unless Fast is set.
	Now func() plugins.Time
	// Epoch is the Unix time, in ns, at which Now is 0.
	Epoch int64
	// Virtual says that Now is a virtual clock.
	Virtual bool
}

// ring is the number of frames that one Poll takes.
const ring = 1024

const ethHeader, vlanTag = 14, 4

// Port replays and records. It has one queue.
type Port struct {
	cfg  Config
	pool *pmd.Pool
	w    *Writer
	rec  *recording

	next   int // frame to play
	played atomic.Bool
	begun  bool
	start  plugins.Time
	closed bool
	werr   error // of the first failed write

	stats struct {
		rxFrames, rxBytes, txFrames, txBytes, rxDropped, rxErrors, txErrors, txFull atomic.Uint64
	}
}

// Open reads the capture to be replayed and writes the header of the one to be recorded.
func Open(c Config) (*Port, error) {
	if c.Name == "" {
		c.Name = "pcap"
	}
	if c.MAC == nil {
		c.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x0c}
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	if c.Bufs == 0 {
		c.Bufs = 1024
	}
	switch {
	case len(c.MAC) != 6:
		return nil, fmt.Errorf("pcap: MAC: %v is not an Ethernet address", c.MAC)
	case c.MTU < 68 || c.MTU > 65535:
		return nil, fmt.Errorf("pcap: MTU: %d is not in 68 … 65535", c.MTU)
	case c.Now == nil && (c.Record != nil || c.Replay != nil && !c.Fast):
		return nil, errors.New("pcap: Now: a clock is needed to record, and to replay at the recorded times")
	}
	p := &Port{cfg: c, rec: &recording{}}
	var err error
	if c.Replay != nil {
		if p.rec, err = read(c.Replay); err != nil {
			return nil, err
		}
	}
	p.played.Store(len(p.rec.frames) == 0)
	if c.Record != nil {
		if p.w, err = NewWriter(c.Record, WriterConfig{Name: c.Name, Snap: c.Snap, Count: c.Count}); err != nil {
			return nil, err
		}
	}
	size := max(pmd.DefaultBufSize, (pmd.Headroom+p.maxFrame()+63)&^63)
	if p.pool, err = pmd.NewPool("pcap:"+c.Name, c.Bufs, size); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Port) maxFrame() int { return p.cfg.MTU + ethHeader + vlanTag }

// Poll implements pmd.Queue.
func (p *Port) Poll(tx, rx []*pmd.Buf) (ntx, nrx int) {
	if p.closed {
		return 0, 0
	}
	var now plugins.Time
	if p.cfg.Now != nil {
		now = p.cfg.Now()
	}
	if len(tx) > 0 {
		ntx = p.transmit(tx, now)
	}
	if len(rx) > 0 && !p.played.Load() {
		nrx = p.play(rx, now)
	}
	return ntx, nrx
}

func (p *Port) transmit(tx []*pmd.Buf, now plugins.Time) int {
	if len(tx) > ring {
		tx = tx[:ring]
		p.stats.txFull.Add(1)
	}
	for _, b := range tx {
		n := b.Len()
		if n > p.maxFrame() || !p.record(b.Bytes(), now) {
			p.stats.txErrors.Add(1)
		} else {
			p.stats.txFrames.Add(1)
			p.stats.txBytes.Add(uint64(n))
		}
		if b.Pool() == p.pool {
			p.pool.Put(b)
		} else {
			b.Free()
		}
	}
	return len(tx)
}

// record writes a frame and reports whether that did not fail. After a failure nothing more is written.
func (p *Port) record(frame []byte, now plugins.Time) bool {
	if p.w == nil || p.w.Done() {
		return true
	}
	if p.werr == nil {
		p.werr = p.w.Write(p.cfg.Epoch+int64(now), Out, frame, len(frame))
	}
	return p.werr == nil
}

func (p *Port) play(rx []*pmd.Buf, now plugins.Time) (n int) {
	if !p.begun {
		p.begun, p.start = true, now
	}
	for ; n < len(rx) && p.next < len(p.rec.frames); p.next++ {
		f := &p.rec.frames[p.next]
		if !p.cfg.Fast && f.at > int64(now.Sub(p.start)) {
			break
		}
		if f.len > p.maxFrame() {
			p.stats.rxErrors.Add(1)
			continue
		}
		b := p.pool.Get()
		if b == nil {
			if p.cfg.Fast {
				break
			}
			p.stats.rxDropped.Add(1)
			continue
		}
		b.Append(p.rec.bytes(p.next))
		rx[n] = b
		n++
		p.stats.rxFrames.Add(1)
		p.stats.rxBytes.Add(uint64(f.len))
	}
	p.played.Store(p.next == len(p.rec.frames))
	return n
}

// Played reports whether the whole capture has been received. It may be called from any goroutine.
func (p *Port) Played() bool { return p.played.Load() }

// NextRelease is the time at which the next frame is received: 0 if that is now, plugins.Never after the last. Only the queue's
// owner calls it.
func (p *Port) NextRelease() plugins.Time {
	switch {
	case p.played.Load():
		return plugins.Never
	case p.cfg.Fast || !p.begun:
		return 0
	}
	return p.start + plugins.Time(p.rec.frames[p.next].at)
}

// TxRoom implements pmd.Queue.
func (p *Port) TxRoom() int { return ring }

// Pool implements pmd.Queue.
func (p *Port) Pool() *pmd.Pool { return p.pool }

// WakeFD implements pmd.Queue.
func (p *Port) WakeFD() int { return -1 }

// Info implements pmd.Port.
func (p *Port) Info() pmd.Info {
	return pmd.Info{Driver: "pcap", Name: p.cfg.Name, MAC: slices.Clone(p.cfg.MAC), MTU: p.cfg.MTU,
		Caps: pmd.Copies, Virtual: p.cfg.Virtual}
}

// NumQueues implements pmd.Port.
func (p *Port) NumQueues() int { return 1 }

// Queue implements pmd.Port.
func (p *Port) Queue(int) pmd.Queue { return p }

// LinkUp implements pmd.Port.
func (p *Port) LinkUp() bool { return true }

// Stats implements pmd.Port.
func (p *Port) Stats() pmd.Stats {
	s := &p.stats
	return pmd.Stats{
		RxFrames: s.rxFrames.Load(), RxBytes: s.rxBytes.Load(), TxFrames: s.txFrames.Load(), TxBytes: s.txBytes.Load(),
		RxDropped: s.rxDropped.Load(), RxErrors: s.rxErrors.Load(), TxErrors: s.txErrors.Load(), TxFull: s.txFull.Load(),
	}
}

// Close implements pmd.Port. Its error includes that of the first frame that could not be recorded.
func (p *Port) Close() error {
	if p.closed {
		return pmd.ErrClosed
	}
	p.closed = true
	err := p.werr
	if p.w != nil && err == nil {
		err = p.w.Finish(0)
	}
	return errors.Join(err, p.pool.CheckLeaks(), p.pool.Unmap())
}
