// Package pcap writes captures as pcapng and plays captures back: Writer for live captures, and Port, a port whose received frames
// come from a pcap or pcapng file and whose transmitted frames go to one.
package pcap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Direction is which way a frame went.
type Direction uint8

// Directions, as in the flags of a pcapng packet block.
const (
	Unknown Direction = iota
	In
	Out
)

// ErrCount is what Writer.Write returns when its count of frames has been written.
var ErrCount = errors.New("pcap: the capture is complete")

// DefaultSnap is the snap length of tcpdump and Wireshark.
const DefaultSnap = 262144

// WriterConfig describes a capture.
type WriterConfig struct {
	Name   string // of the interface
	Filter string // that the frames passed, for the reader's information
	Snap   int    // longest part of a frame that is kept; 0 is DefaultSnap
	Count  uint64 // frames after which the capture is complete; 0 is no limit
}

// Writer writes Ethernet frames as pcapng, with timestamps in nanoseconds. It is not safe for concurrent use. Write allocates
// nothing.
type Writer struct {
	w     *bufio.Writer
	ng    *pcapgo.NgWriter
	snap  int
	limit uint64
	count uint64
	last  int64
	head  [28]byte
	tail  [20]byte
}

// NewWriter writes the headers of a section and of an interface.
func NewWriter(w io.Writer, c WriterConfig) (*Writer, error) {
	if c.Snap == 0 {
		c.Snap = DefaultSnap
	}
	if c.Snap < 0 || c.Snap > DefaultSnap {
		return nil, fmt.Errorf("pcap: snap length %d is not in 1 … %d", c.Snap, DefaultSnap)
	}
	bw := bufio.NewWriterSize(w, 1<<16)
	ng, err := pcapgo.NewNgWriterInterface(bw, pcapgo.NgInterface{
		Name:                c.Name,
		Filter:              c.Filter,
		LinkType:            layers.LinkTypeEthernet,
		SnapLength:          uint32(c.Snap),
		TimestampResolution: 9,
	}, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "fastpath"}})
	if err == nil {
		err = ng.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("pcap: writing the header: %w", err)
	}
	return &Writer{w: bw, ng: ng, snap: c.Snap, limit: c.Count}, nil
}

// Write writes one frame of length bytes, of which data are the first. t is Unix time in nanoseconds. It returns ErrCount if the
// capture is complete.
func (w *Writer) Write(t int64, dir Direction, data []byte, length int) error {
	if w.limit > 0 && w.count == w.limit {
		return ErrCount
	}
	if len(data) > w.snap {
		data = data[:w.snap]
	}
	// An Enhanced Packet Block (draft-ietf-opsawg-pcapng, 4.3) with the option epb_flags. pcapgo writes these too, but allocates.
	pad := -len(data) & 3
	total := uint32(len(w.head) + len(data) + pad + 16)
	le := binary.LittleEndian
	le.PutUint32(w.head[0:], 6)
	le.PutUint32(w.head[4:], total)
	le.PutUint32(w.head[8:], 0) // interface
	le.PutUint32(w.head[12:], uint32(uint64(t)>>32))
	le.PutUint32(w.head[16:], uint32(t))
	le.PutUint32(w.head[20:], uint32(len(data)))
	le.PutUint32(w.head[24:], uint32(max(length, len(data))))
	tail := w.tail[4-pad:]
	le.PutUint32(w.tail[0:], 0) // padding
	le.PutUint16(w.tail[4:], 2) // epb_flags
	le.PutUint16(w.tail[6:], 4)
	le.PutUint32(w.tail[8:], uint32(dir))
	le.PutUint32(w.tail[12:], 0) // end of options
	le.PutUint32(w.tail[16:], total)
	for _, part := range [...][]byte{w.head[:], data, tail} {
		if _, err := w.w.Write(part); err != nil {
			return fmt.Errorf("pcap: writing a frame: %w", err)
		}
	}
	w.count++
	w.last = max(w.last, t)
	return nil
}

// Count is the number of frames written.
func (w *Writer) Count() uint64 { return w.count }

// Done reports whether the count of frames has been written.
func (w *Writer) Done() bool { return w.limit > 0 && w.count == w.limit }

// Flush hands what is buffered to the underlying writer.
func (w *Writer) Flush() error {
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("pcap: flushing: %w", err)
	}
	return nil
}

// Finish ends the capture with the interface's statistics, in which dropped is the number of frames that passed the filter but
// were not written, and flushes it. It does not close the underlying writer.
func (w *Writer) Finish(dropped uint64) error {
	err := w.ng.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate:      time.Unix(0, w.last),
		PacketsReceived: w.count + dropped,
		PacketsDropped:  dropped,
	})
	if err == nil {
		err = w.ng.Flush()
	}
	if err != nil {
		return fmt.Errorf("pcap: writing statistics: %w", err)
	}
	return w.Flush()
}
