package pcap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// recording is a capture in memory.
type recording struct {
	frames []recorded
	data   []byte
}

type recorded struct {
	at       int64 // ns since the first frame
	off, len int
}

func (r *recording) bytes(i int) []byte { f := r.frames[i]; return r.data[f.off : f.off+f.len] }

// MaxReplay is the most that a capture to be replayed may hold, in bytes of frames.
const MaxReplay = 1 << 30

// read reads a pcap or pcapng capture of Ethernet frames, gzipped or not (pcap only).
func read(r io.Reader) (*recording, error) {
	br := bufio.NewReaderSize(r, 1<<16)
	magic, err := br.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("pcap: reading the header: %w", err)
	}
	var src interface {
		gopacket.ZeroCopyPacketDataSource
		LinkType() layers.LinkType
	}
	if bytes.Equal(magic, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		src, err = pcapgo.NewNgReader(br, pcapgo.NgReaderOptions{ErrorOnMismatchingLinkType: true})
	} else {
		src, err = pcapgo.NewReader(br)
	}
	if err != nil {
		return nil, fmt.Errorf("pcap: reading the header: %w", err)
	}
	if t := src.LinkType(); t != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("pcap: link type %v, want Ethernet", t)
	}
	var rec recording
	var first int64
	for {
		data, ci, err := src.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			return &rec, nil
		}
		if err != nil {
			return nil, fmt.Errorf("pcap: reading frame %d: %w", len(rec.frames)+1, err)
		}
		if len(data) > math.MaxUint16 || len(rec.data)+len(data) > MaxReplay {
			return nil, fmt.Errorf("pcap: frame %d: %d bytes after %d are too many", len(rec.frames)+1, len(data), len(rec.data))
		}
		t := ci.Timestamp.UnixNano()
		if len(rec.frames) == 0 {
			first = t
		}
		rec.frames = append(rec.frames, recorded{max(t-first, 0), len(rec.data), len(data)})
		rec.data = append(rec.data, data...)
	}
}
