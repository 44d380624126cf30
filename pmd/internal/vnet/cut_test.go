package vnet

import (
	"bytes"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// chain puts a frame into buffers, of which the first holds first bytes.
func chain(t testing.TB, pool *pmd.Pool, frame []byte, first int) *pmd.Buf {
	t.Helper()
	size := len(pool.At(0).Mem())
	first = min(first, len(frame), size-pmd.Headroom)
	parts := 1 + (len(frame)-first+size-1)/size
	b, got := pool.Chain(parts)
	if got < parts {
		t.Fatalf("%d of %d buffers", got, parts)
	}
	b.Append(frame[:first])
	frame = frame[first:]
	for m := b.More; m != nil; m = m.More {
		k := min(size, len(frame))
		m.Append(frame[:k])
		frame = frame[k:]
	}
	return b
}

// TestCut compares what Cutter makes, of frames in one buffer and in several, with what another parser says is right.
func TestCut(t *testing.T) {
	pool, err := pmd.NewPool("cut", 64, pmd.DefaultBufSize)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Unmap()
	out := make([]byte, 2000)
	for name, s := range map[string]super{
		"IPv4":   {payload: 10000, size: 1448},
		"IPv6":   {payload: 9000, size: 1428, v6: true},
		"VLAN":   {payload: 5000, size: 1448, vlan: true},
		"odd":    {payload: 1001, size: 333},
		"one":    {payload: 100, size: 1448},
		"exact":  {payload: 2896, size: 1448},
		"64 KiB": {payload: 65535 - 52, size: 1448},
		"flags":  {payload: 3000, size: 1000, flags: func(h *layers.TCP) { h.FIN, h.CWR, h.ECE = true, true, true }},
	} {
		s.unfinished = true
		h, whole := s.build(t)
		l4 := int(h.CsumStart)
		want := gopacket.NewPacket(whole, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeTCP).(*layers.TCP)
		head := l4 + len(want.Contents)
		for _, first := range []int{head, head + 1, len(whole)} {
			b := chain(t, pool, whole, first)
			b.SegSize, b.L2Len, b.L4Len = s.size, 14, uint8(len(want.Contents))
			if s.vlan {
				b.L2Len = 18
			}
			b.L3Len = uint8(l4) - b.L2Len
			if b.Flags = pmd.TxTCPCsum; !s.v6 {
				b.Flags |= pmd.TxIPCsum
			}
			frames, bytesOut := b.Wire()
			var c Cutter
			if err := c.Start(b); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got []byte
			for i := 0; c.Pending(); i++ {
				f := out[:c.Len()]
				c.Next(f)
				frames--
				bytesOut -= len(f)
				p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
				if e := p.ErrorLayer(); e != nil {
					t.Fatalf("%s: frame %d: %v", name, i, e.Error())
				}
				g := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
				if err := g.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
					t.Fatal(err)
				}
				if err, bad := p.VerifyChecksums(); err != nil || len(bad) != 0 {
					t.Errorf("%s: frame %d: checksums %v, %v", name, i, bad, err)
				}
				at, last := len(got), !c.Pending()
				if g.Seq != want.Seq+uint32(at) || g.Ack != want.Ack || g.Window != want.Window || g.ECE != want.ECE ||
					g.PSH != (want.PSH && last) || g.FIN != (want.FIN && last) || g.CWR != (want.CWR && i == 0) {
					t.Errorf("%s: frame %d: header %+v", name, i, g)
				}
				if ip, ok := p.NetworkLayer().(*layers.IPv4); ok && ip.Id != 0xfffe+uint16(i) {
					t.Errorf("%s: frame %d: identification %d", name, i, ip.Id)
				}
				got = append(got, g.Payload...)
			}
			if !bytes.Equal(got, payload(s.payload)) || frames != 0 || bytesOut != 0 {
				t.Errorf("%s: the payload changed, or Wire is off by %d frames and %d bytes", name, frames, bytesOut)
			}
			pool.Put(b)
		}
	}
	if err := pool.CheckLeaks(); err != nil {
		t.Error(err)
	}
}

// TestComplete wants the checksums that a sender would have computed.
func TestComplete(t *testing.T) {
	pool := newPool(t)
	for _, v6 := range []bool{false, true} {
		s := super{payload: 501, size: 1448, v6: v6}
		_, good := s.build(t)
		s.unfinished = true
		h, f := s.build(t)
		b := pool.Get()
		b.Append(f)
		b.L2Len, b.L3Len, b.Flags = 14, uint8(h.CsumStart-14), pmd.TxTCPCsum
		if !v6 {
			b.Flags |= pmd.TxIPCsum
			b.Bytes()[24], b.Bytes()[25] = 1, 2
		}
		if !Complete(b.Bytes(), b) || !bytes.Equal(b.Bytes(), good) {
			t.Errorf("IPv6 %v: got\n% x, want\n% x", v6, b.Bytes()[:60], good[:60])
		}
		for _, l := range []struct{ l2, l3 uint8 }{{14, 0}, {14, 200}, {0, 0}} {
			b.SetLen(200)
			b.L2Len, b.L3Len = l.l2, l.l3
			if Complete(b.Bytes(), b) {
				t.Errorf("lengths %d and %d were accepted", l.l2, l.l3)
			}
		}
		pool.Put(b)
	}
}

// FuzzCut wants any frame with any lengths refused, or cut into frames that make up its payload.
func FuzzCut(f *testing.F) {
	for _, s := range []super{{payload: 3000, size: 1448}, {payload: 700, size: 100, v6: true}, {payload: 50, size: 7, vlan: true}} {
		s.unfinished = true
		h, frame := s.build(f)
		l2 := uint8(14)
		if s.vlan {
			l2 = 18
		}
		f.Add(frame, l2, uint8(h.CsumStart)-l2, uint8(32), s.size, uint16(len(frame)/2))
	}
	pool, err := pmd.NewPool("cut", 64, pmd.DefaultBufSize)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { pool.Unmap() })
	f.Fuzz(func(t *testing.T, frame []byte, l2, l3, l4 uint8, size, first uint16) {
		if len(frame) > MaxFrame {
			return
		}
		b := chain(t, pool, frame, int(first))
		defer pool.Put(b)
		b.L2Len, b.L3Len, b.L4Len, b.SegSize, b.Flags = l2, l3, l4, size, pmd.TxIPCsum|pmd.TxTCPCsum
		var c Cutter
		if c.Start(b) != nil {
			if c.Pending() {
				t.Fatal("pending after an error")
			}
			return
		}
		head := b.HeaderLen()
		out := make([]byte, head+int(size))
		var got []byte
		for c.Pending() {
			n := c.Len()
			if n <= head || n > len(out) {
				t.Fatalf("a frame of %d bytes, headers %d, segment size %d", n, head, size)
			}
			c.Next(out[:n])
			got = append(got, out[head:n]...)
		}
		if !bytes.Equal(got, frame[head:]) {
			t.Fatal("the payload changed")
		}
	})
}
