package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/pmdtest"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func TestMain(m *testing.M) { pmdtest.Main(m) }

// segment is a valid TCP segment with n bytes of payload.
func segment(t testing.TB, n int) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	tcp := &layers.TCP{SrcPort: 4000, DstPort: 80, Seq: 1, Ack: 1, ACK: true, Window: 1000}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4},
		ip, tcp, gopacket.Payload(bytes.Repeat([]byte{'x'}, n)))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// epoch is a time with all nine digits.
const epoch = 1_700_000_000_123_456_789

func TestWriter(t *testing.T) {
	var buf bytes.Buffer
	w, err := NewWriter(&buf, WriterConfig{Name: "eth7", Filter: "tcp", Snap: 100, Count: 5})
	if err != nil {
		t.Fatal(err)
	}
	var want [][]byte
	for i := range 5 {
		f := segment(t, i*17) // every padding
		want = append(want, f)
		if err := w.Write(epoch+int64(i), Direction(i%3), f, len(f)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(0, In, want[0], 60); !errors.Is(err, ErrCount) || !w.Done() || w.Count() != 5 {
		t.Errorf("a sixth frame: %v; done %v, count %d", err, w.Done(), w.Count())
	}
	if err := w.Finish(3); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&buf, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range want {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, f[:min(len(f), 100)]) || ci.Length != len(f) || ci.Timestamp.UnixNano() != epoch+int64(i) {
			t.Errorf("frame %d: %d of %d bytes at %d", i, len(data), ci.Length, ci.Timestamp.UnixNano())
		}
		if opts.Flags == nil || opts.Flags.ToUint32() != uint32(i%3) {
			t.Errorf("frame %d: flags %v", i, opts.Flags)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v", err)
	}
	i, err := r.Interface(0)
	if err != nil || i.Name != "eth7" || i.Filter != "tcp" || i.SnapLength != 100 || i.Statistics.PacketsDropped != 3 || i.Statistics.PacketsReceived != 8 {
		t.Errorf("interface %+v, %v", i, err)
	}
}

func TestWriterAllocatesNothing(t *testing.T) {
	w, err := NewWriter(io.Discard, WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	f := segment(t, 1000)
	if n := testing.AllocsPerRun(1000, func() { _ = w.Write(epoch, Out, f, len(f)) }); n != 0 {
		t.Errorf("Write allocates %v times", n)
	}
}

type broken struct{ room int }

func (b *broken) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriterErrors(t *testing.T) {
	if _, err := NewWriter(&broken{}, WriterConfig{}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("header: %v", err)
	}
	if _, err := NewWriter(io.Discard, WriterConfig{Snap: -1}); err == nil {
		t.Error("a negative snap length was accepted")
	}
	w, err := NewWriter(&broken{room: 1000}, WriterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		err = w.Write(0, In, make([]byte, 1500), 1500)
	}
	if err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Write: %v", err)
	}
}

// TestTshark wants tshark to read a capture without complaint.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	file := filepath.Join(t.TempDir(), "x.pcapng")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(f, WriterConfig{Name: "veth-x", Snap: 200})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 7 {
		s := segment(t, i*61)
		dir := Direction(1 + i%2)
		if err := w.Write(epoch+int64(i)*1001, dir, s, len(s)); err != nil {
			t.Fatal(err)
		}
		ns := int64(epoch + i*1001)
		fmt.Fprintf(&want, "%d.%09d\t%d\t%d\t%d\tveth-x\t4000\n", ns/1e9, ns%1e9, len(s), min(len(s), 200), dir)
	}
	if err := errors.Join(w.Finish(2), f.Close()); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(tshark, "-r", file, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len",
		"-e", "frame.packet_flags_direction", "-e", "frame.interface_name", "-e", "tcp.srcport")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("tshark: %v\n%s", err, &stderr)
	}
	got := strings.ReplaceAll(stdout.String(), "0x0000000", "") // some versions print the direction as a bit field
	if got != want.String() {
		t.Errorf("tshark reads:\n%s\nwant:\n%s", got, &want)
	}
	for line := range strings.Lines(stderr.String()) {
		if !strings.Contains(line, "Running as user") {
			t.Errorf("tshark complains: %s", line)
		}
	}
	out, err := exec.Command(tshark, "-r", file, "-Y", "_ws.malformed").Output()
	if err != nil || len(out) > 0 {
		t.Errorf("malformed frames: %s, %v", out, err)
	}
}

// clock is a virtual one.
type clock struct{ now plugins.Time }

func (c *clock) read() plugins.Time { return c.now }

// capture writes frames that are the given times apart, as pcap or pcapng.
func capture(t testing.TB, ng bool, frames [][]byte, gaps ...time.Duration) []byte {
	t.Helper()
	var buf bytes.Buffer
	var write func(gopacket.CaptureInfo, []byte) error
	flush := func() error { return nil }
	if ng {
		w, err := pcapgo.NewNgWriter(&buf, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		write, flush = w.WritePacket, w.Flush
	} else {
		w := pcapgo.NewWriterNanos(&buf)
		if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
			t.Fatal(err)
		}
		write = w.WritePacket
	}
	at := time.Unix(0, epoch)
	for i, f := range frames {
		if err := write(gopacket.CaptureInfo{Timestamp: at, Length: len(f), CaptureLength: len(f)}, f); err != nil {
			t.Fatal(err)
		}
		if i < len(gaps) {
			at = at.Add(gaps[i])
		}
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func open(t testing.TB, c Config) *Port {
	t.Helper()
	p, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closePort(t testing.TB, p *Port) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestReplayAtRecordedTimes(t *testing.T) {
	for _, ng := range []bool{false, true} {
		frames := [][]byte{segment(t, 0), segment(t, 1), segment(t, 1400), segment(t, 2)}
		data := capture(t, ng, frames, 1000, time.Second, 0)
		c := &clock{now: 77}
		p := open(t, Config{Replay: bytes.NewReader(data), Now: c.read, Virtual: true})
		rx := make([]*pmd.Buf, 8)
		if p.NextRelease() != 0 {
			t.Errorf("NextRelease before the first Poll is %d", p.NextRelease())
		}
		next := 0
		for _, s := range []struct {
			at    plugins.Time
			n     int
			after plugins.Time
		}{{77, 1, 1077}, {1076, 0, 1077}, {1077, 1, 1_000_001_077}, {1_000_001_076, 0, 1_000_001_077}, {1_000_001_077, 2, plugins.Never}} {
			c.now = s.at
			_, n := p.Poll(nil, rx)
			if n != s.n || p.NextRelease() != s.after {
				t.Errorf("ng %v, at %d: %d frames, next at %d; want %d, %d", ng, s.at, n, p.NextRelease(), s.n, s.after)
			}
			for _, b := range rx[:n] {
				if !bytes.Equal(b.Bytes(), frames[next]) {
					t.Errorf("frame %d differs", next)
				}
				next++
				b.Free()
			}
		}
		if !p.Played() {
			t.Error("not played to the end")
		}
		closePort(t, p)
	}
}

func TestReplayFast(t *testing.T) {
	var frames [][]byte
	for i := range 100 {
		frames = append(frames, segment(t, i))
	}
	p := open(t, Config{Replay: bytes.NewReader(capture(t, true, frames, time.Hour)), Fast: true, Bufs: 8})
	rx := make([]*pmd.Buf, 32)
	got := 0
	for !p.Played() {
		_, n := p.Poll(nil, rx)
		if n == 0 {
			t.Fatal("nothing received")
		}
		got += n
		pmd.FreeAll(rx[:n]) // frames wait while the pool of 8 is empty
	}
	if s := p.Stats(); got != 100 || s.RxFrames != 100 || s.RxDropped != 0 {
		t.Errorf("%d frames, stats %+v", got, s)
	}
	closePort(t, p)
}

func TestReplayDropsAndErrors(t *testing.T) {
	c := &clock{}
	frames := [][]byte{segment(t, 1), make([]byte, 1519), segment(t, 2), segment(t, 3)}
	p := open(t, Config{Replay: bytes.NewReader(capture(t, false, frames)), Now: c.read, Bufs: 2})
	rx := make([]*pmd.Buf, 8)
	_, n := p.Poll(nil, rx)
	if s := p.Stats(); n != 2 || s.RxErrors != 1 || s.RxDropped != 1 || !p.Played() {
		t.Errorf("%d frames, stats %+v", n, s)
	}
	pmd.FreeAll(rx[:n])
	closePort(t, p)
}

func TestRecord(t *testing.T) {
	c := &clock{now: 5}
	var out bytes.Buffer
	p := open(t, Config{Record: &out, Now: c.read, Epoch: epoch, Count: 2})
	send := func(size int) {
		b := p.Pool().Get()
		b.SetLen(size)
		for i := range b.Bytes() {
			b.Bytes()[i] = byte(i)
		}
		if n, _ := p.Poll([]*pmd.Buf{b}, nil); n != 1 {
			t.Error("not taken")
		}
	}
	send(60)
	c.now = 105
	send(1519) // too long for the MTU
	send(1514)
	send(61) // beyond the count
	if s := p.Stats(); s.TxFrames != 3 || s.TxBytes != 60+1514+61 || s.TxErrors != 1 {
		t.Errorf("stats %+v", s)
	}
	closePort(t, p)
	rec, err := read(&out)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.frames) != 2 || rec.frames[1] != (recorded{100, 60, 1514}) || rec.bytes(1)[1513] != byte(1513&0xff) {
		t.Errorf("recorded %+v", rec.frames)
	}
}

func TestRecordFailure(t *testing.T) {
	p := open(t, Config{Record: &broken{room: 300}, Now: (&clock{}).read})
	for range 100 {
		b := p.Pool().Get()
		b.SetLen(1514)
		p.Poll([]*pmd.Buf{b}, nil)
	}
	if p.Stats().TxErrors == 0 {
		t.Error("no error counted")
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Close: %v", err)
	}
}

func TestPollAllocatesNothing(t *testing.T) {
	frames := make([][]byte, 5000)
	for i := range frames {
		frames[i] = segment(t, 10)
	}
	p := open(t, Config{Replay: bytes.NewReader(capture(t, true, frames)), Fast: true, Record: io.Discard, Now: (&clock{}).read})
	p.Pool().Track(false)
	rx := make([]*pmd.Buf, 8)
	if n := testing.AllocsPerRun(500, func() {
		_, n := p.Poll(nil, rx)
		p.Poll(rx[:n], nil) // forwards
	}); n != 0 {
		t.Errorf("a turn allocates %v times", n)
	}
	closePort(t, p)
}

func TestOpenErrors(t *testing.T) {
	raw := capture(t, false, [][]byte{segment(t, 1)})
	other := bytes.Clone(raw)
	binary.LittleEndian.PutUint32(other[20:], uint32(layers.LinkTypeRaw))
	now := (&clock{}).read
	for _, tc := range []struct {
		want string
		c    Config
	}{
		{"Now:", Config{Record: io.Discard}},
		{"Now:", Config{Replay: bytes.NewReader(raw)}},
		{"MTU:", Config{MTU: 1}},
		{"MAC:", Config{MAC: []byte{1}}},
		{"reading the header", Config{Replay: strings.NewReader("no capture, but long enough to look at"), Now: now}},
		{"reading the header: EOF", Config{Replay: strings.NewReader(""), Now: now}},
		{"want Ethernet", Config{Replay: bytes.NewReader(other), Now: now}},
		{"reading frame 1", Config{Replay: bytes.NewReader(raw[:len(raw)-1]), Now: now}},
		{"snap length", Config{Record: io.Discard, Snap: -1, Now: now}},
		{"pool", Config{Bufs: -1}},
	} {
		if _, err := Open(tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want an error on %q, got: %v", tc.want, err)
		}
	}
}

func TestCloseFindsLeaks(t *testing.T) {
	p := open(t, Config{})
	p.Pool().Get()
	err := p.Close()
	pmd.Forgive(err)
	var leak *pmd.LeakError
	if !errors.As(err, &leak) || leak.Count != 1 {
		t.Errorf("Close: %v", err)
	}
	if err := p.Close(); !errors.Is(err, pmd.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

// FuzzReplay opens and plays whatever it is given.
func FuzzReplay(f *testing.F) {
	f.Add(capture(f, false, [][]byte{segment(f, 1), segment(f, 100)}, 10))
	f.Add(capture(f, true, [][]byte{segment(f, 1), segment(f, 100)}, 10))
	var own bytes.Buffer
	w, err := NewWriter(&own, WriterConfig{Name: "x"})
	if err != nil {
		f.Fatal(err)
	}
	_ = w.Write(epoch, In, make([]byte, 61), 61)
	_ = w.Finish(1)
	f.Add(own.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Open(Config{Replay: bytes.NewReader(data), Fast: true, Bufs: 4})
		if err != nil {
			return
		}
		var rx [2]*pmd.Buf
		for !p.Played() {
			_, n := p.Poll(nil, rx[:])
			pmd.FreeAll(rx[:n])
		}
		closePort(t, p)
	})
}
