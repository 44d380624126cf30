package vnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

func TestHeaderRoundTrip(t *testing.T) {
	want := Header{Flags: NeedsCsum, GSOType: GSOTCPv4 | GSOECN, HdrLen: 66, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}
	p := make([]byte, HeaderLen)
	want.Put(p)
	if diff := cmp.Diff(want, Parse(p)); diff != "" {
		t.Error(diff)
	}
}

// super is a super-frame under test.
type super struct {
	v6, vlan, unfinished bool
	payload              int
	size                 uint16
	flags                func(*layers.TCP)
}

func payload(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8)
	}
	return p
}

// build makes the super-frame, with an unfinished checksum if s says so, and its header.
func (s super) build(t testing.TB) (Header, []byte) {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 0xfffffe00, Ack: 7, ACK: true, PSH: true, Window: 500,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}}
	if s.flags != nil {
		s.flags(tcp)
	}
	var ip gopacket.SerializableLayer
	v4 := &layers.IPv4{Version: 4, TTL: 64, Id: 0xfffe, Protocol: layers.IPProtocolTCP, Flags: layers.IPv4DontFragment,
		SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	v6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
	h := Header{GSOType: GSOTCPv4, GSOSize: s.size, Flags: DataValid}
	var net3 gopacket.NetworkLayer = v4
	ip = v4
	if s.v6 {
		h.GSOType, ip, net3, eth.EthernetType = GSOTCPv6, v6, v6, layers.EthernetTypeIPv6
	}
	if err := tcp.SetNetworkLayerForChecksum(net3); err != nil {
		t.Fatal(err)
	}
	ls := []gopacket.SerializableLayer{eth}
	if s.vlan {
		ls = append(ls, &layers.Dot1Q{VLANIdentifier: 42, Type: eth.EthernetType})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	buf := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, o, append(ls, ip, tcp, gopacket.Payload(payload(s.payload)))...); err != nil {
		t.Fatal(err)
	}
	f := buf.Bytes()
	if s.unfinished {
		l3 := 14
		if s.vlan {
			l3 += 4
		}
		l4 := l3 + 20
		if s.v6 {
			l4 = l3 + 40
		}
		h.Flags, h.CsumStart, h.CsumOffset = NeedsCsum, uint16(l4), 16
		binary.BigEndian.PutUint16(f[l4+16:], pseudo(f, l3, l4))
	}
	return h, f
}

// pseudo is the sum of the pseudo-header of a TCP segment.
func pseudo(f []byte, l3, l4 int) uint16 {
	p := append([]byte{}, f[l4-8:l4]...) // IPv4 addresses
	if l4-l3 == 40 {
		p = append([]byte{}, f[l3+8:l4]...)
	}
	p = binary.BigEndian.AppendUint16(append(p, 0, 6), uint16(len(f)-l4))
	return sum(p)
}

func newPool(t testing.TB) *pmd.Pool {
	t.Helper()
	p, err := pmd.NewPool("vnet", 4, pmd.DefaultBufSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Unmap() })
	return p
}

const room = pmd.DefaultBufSize - pmd.Headroom

func TestSplit(t *testing.T) {
	for name, s := range map[string]super{
		"IPv4":            {payload: 10000, size: 1448},
		"IPv4 unfinished": {payload: 10000, size: 1448, unfinished: true},
		"IPv6":            {payload: 9000, size: 1428, v6: true},
		"IPv6 unfinished": {payload: 9000, size: 1428, v6: true, unfinished: true},
		"VLAN":            {payload: 5000, size: 1448, vlan: true, unfinished: true},
		"odd":             {payload: 1001, size: 333, unfinished: true},
		"one":             {payload: 100, size: 1448, unfinished: true},
		"exact":           {payload: 2896, size: 1448},
		"64 KiB":          {payload: 65535 - 52, size: 1448, unfinished: true},
		"flags":           {payload: 3000, size: 1000, unfinished: true, flags: func(h *layers.TCP) { h.FIN, h.CWR, h.ECE = true, true, true }},
	} {
		t.Run(name, func(t *testing.T) { checkSplit(t, s) })
	}
}

// checkSplit takes the frames apart with another parser and compares them with the whole.
func checkSplit(t *testing.T, s super) {
	h, whole := s.build(t)
	before := bytes.Clone(whole)
	want := gopacket.NewPacket(whole, layers.LayerTypeEthernet, gopacket.Default)
	tcp := want.Layer(layers.LayerTypeTCP).(*layers.TCP)
	var sp Splitter
	if err := sp.Start(h, whole, room); err != nil {
		t.Fatal(err)
	}
	pool := newPool(t)
	var got []byte
	n := (s.payload + int(s.size) - 1) / int(s.size)
	for i := range n {
		if !sp.Pending() {
			t.Fatalf("ended after %d of %d frames", i, n)
		}
		b := pool.Get()
		sp.Next(b)
		f := b.Bytes()
		wantFlags := pmd.RxCsumGood
		if s.unfinished {
			wantFlags = pmd.RxPartial
		}
		if b.Flags != wantFlags {
			t.Errorf("frame %d: flags %b, want %b", i, b.Flags, wantFlags)
		}
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Fatalf("frame %d: %v", i, e.Error())
		}
		g := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		first, last := i == 0, i == n-1
		if g.Seq != tcp.Seq+uint32(len(got)) || g.Ack != tcp.Ack || g.Window != tcp.Window || g.ECE != tcp.ECE ||
			g.PSH != (tcp.PSH && last) || g.FIN != (tcp.FIN && last) || g.CWR != (tcp.CWR && first) {
			t.Errorf("frame %d of %d: header %+v", i, n, g)
		}
		if ip, ok := p.NetworkLayer().(*layers.IPv4); ok {
			if ip.Id != 0xfffe+uint16(i) || sum(ip.Contents) != 0xffff || int(ip.Length) != 20+len(g.Contents)+len(g.Payload) {
				t.Errorf("frame %d: IPv4 header %+v", i, ip)
			}
		}
		if s.unfinished {
			l3 := len(f) - len(p.NetworkLayer().LayerContents()) - len(p.NetworkLayer().LayerPayload())
			l4 := len(f) - len(g.Contents) - len(g.Payload)
			if want := pseudo(f, l3, l4); g.Checksum != want {
				t.Errorf("frame %d: the pseudo-header's sum is %#x, want %#x", i, g.Checksum, want)
			}
		}
		got = append(got, g.Payload...)
		pool.Put(b)
	}
	if sp.Pending() {
		t.Error("more frames than the payload needs")
	}
	if !bytes.Equal(got, payload(s.payload)) || !bytes.Equal(whole, before) {
		t.Error("the payload or the super-frame changed")
	}
}

func TestSplitRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(h *Header, f *[]byte)
		want   error
	}{
		"no checksum":    {func(h *Header, _ *[]byte) { h.Flags = 0 }, ErrNoCsum},
		"not GSO":        {func(h *Header, _ *[]byte) { h.GSOType = GSONone }, ErrNotTCP},
		"UDP":            {func(_ *Header, f *[]byte) { (*f)[23] = 17 }, ErrNotTCP},
		"wrong family":   {func(h *Header, _ *[]byte) { h.GSOType = GSOTCPv6 }, ErrNotTCP},
		"size 0":         {func(h *Header, _ *[]byte) { h.GSOSize = 0 }, ErrSize},
		"size too large": {func(h *Header, _ *[]byte) { h.GSOSize = 2000 }, ErrSize},
		"truncated":      {func(_ *Header, f *[]byte) { *f = (*f)[:1000] }, ErrShort},
		"headers only":   {func(_ *Header, f *[]byte) { *f = (*f)[:66]; (*f)[16], (*f)[17] = 0, 52 }, ErrShort},
		"short offset":   {func(_ *Header, f *[]byte) { (*f)[46] = 0x40 }, ErrShort},
		"empty":          {func(_ *Header, f *[]byte) { *f = nil }, ErrNotTCP},
	} {
		t.Run(name, func(t *testing.T) {
			h, f := super{payload: 5000, size: 1448}.build(t)
			tc.change(&h, &f)
			var s Splitter
			if err := s.Start(h, f, room); !errors.Is(err, tc.want) || s.Pending() {
				t.Errorf("Start returned %v, want %v; pending %v", err, tc.want, s.Pending())
			}
		})
	}
}

func TestRxFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		s      super
		change func(h *Header, f []byte)
		want   uint16
	}{
		"unfinished":      {super{payload: 1, unfinished: true}, nil, pmd.RxPartial},
		"verified":        {super{payload: 1}, nil, pmd.RxCsumGood},
		"IPv6":            {super{payload: 1, v6: true}, nil, pmd.RxCsumGood},
		"VLAN":            {super{payload: 1, vlan: true}, nil, pmd.RxCsumGood},
		"nothing":         {super{payload: 1}, func(h *Header, _ []byte) { h.Flags = 0 }, 0},
		"bad IPv4 header": {super{payload: 1}, func(_ *Header, f []byte) { f[22]++ }, 0},
		"bad, unfinished": {super{payload: 1, unfinished: true}, func(_ *Header, f []byte) { f[22]++ }, 0},
		"ARP":             {super{payload: 1}, func(_ *Header, f []byte) { f[13] = 6 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, f := tc.s.build(t)
			if tc.change != nil {
				tc.change(&h, f)
			}
			if got := RxFlags(h, f); got != tc.want {
				t.Errorf("flags %b, want %b", got, tc.want)
			}
		})
	}
}

func TestTransmit(t *testing.T) {
	_, f := super{payload: 100, unfinished: true}.build(t)
	good := bytes.Clone(f)
	f[24], f[25] = 0xaa, 0xbb // the IPv4 checksum is to be completed
	pool := newPool(t)
	b := pool.Get()
	defer pool.Put(b)
	b.Append(f)
	b.Flags, b.L2Len, b.L3Len = pmd.TxIPCsum|pmd.TxTCPCsum, 14, 20
	hdr := make([]byte, HeaderLen)
	if !Transmit(hdr, b.Bytes(), b) {
		t.Fatal("refused")
	}
	if !bytes.Equal(b.Bytes(), good) {
		t.Errorf("got  %x\nwant %x", b.Bytes(), good)
	}
	want := Header{Flags: NeedsCsum, HdrLen: uint16(len(f)), CsumStart: 34, CsumOffset: 16}
	if diff := cmp.Diff(want, Parse(hdr)); diff != "" {
		t.Error(diff)
	}
	for _, l := range []struct{ l2, l3 uint8 }{{14, 0}, {14, 200}, {200, 20}, {0, 0}} {
		b.L2Len, b.L3Len = l.l2, l.l3
		if Transmit(hdr, b.Bytes(), b) {
			t.Errorf("lengths %d and %d were accepted for a frame of %d", l.l2, l.l3, b.Len())
		}
	}
}

// FuzzSplit wants any frame refused or cut into frames that fit, whose payloads make up the whole's.
func FuzzSplit(f *testing.F) {
	for _, s := range []super{{payload: 3000, size: 1448}, {payload: 700, size: 100, v6: true, unfinished: true}, {payload: 50, size: 7, vlan: true}} {
		h, frame := s.build(f)
		hdr := make([]byte, HeaderLen)
		h.Put(hdr)
		f.Add(append(hdr, frame...))
	}
	pool := newPool(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < HeaderLen || len(in) > HeaderLen+MaxFrame {
			return
		}
		h, frame := Parse(in), in[HeaderLen:]
		_ = RxFlags(h, frame)
		var s Splitter
		if s.Start(h, frame, room) != nil {
			if s.Pending() {
				t.Fatal("pending after an error")
			}
			return
		}
		head := s.head
		var got []byte
		for s.Pending() {
			b := pool.Get()
			s.Next(b)
			if b.Len() <= head || b.Len() > room || b.Len() > head+int(h.GSOSize) {
				t.Fatalf("a frame of %d bytes, headers %d, segment size %d", b.Len(), head, h.GSOSize)
			}
			got = append(got, b.Bytes()[head:]...)
			pool.Put(b)
		}
		if !bytes.Equal(got, frame[head:]) {
			t.Fatal("the payload changed")
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	h, f := super{payload: 45 * 1448, size: 1448, unfinished: true}.build(b)
	pool := newPool(b)
	b.SetBytes(int64(len(f)))
	b.ReportAllocs()
	for b.Loop() {
		var s Splitter
		if err := s.Start(h, f, room); err != nil {
			b.Fatal(err)
		}
		for s.Pending() {
			x := pool.Get()
			s.Next(x)
			pool.Put(x)
		}
	}
}
