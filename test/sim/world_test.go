package sim

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// transfer sends n bytes from src to dst and checks that they arrive exactly, with the end of the stream.
func transfer(t *testing.T, w *World, src, dst *tcp.Conn, n int, limit time.Duration) time.Duration {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{1})
	want, got := sha256.New(), sha256.New()
	block := make([]byte, 64<<10)
	buf := make([]byte, 64<<10)
	var pend []byte
	sent, rcvd, eof := 0, 0, false
	start := w.Clock.Now()
	err := w.Run(limit, func() bool {
		for sent < n || len(pend) > 0 {
			if len(pend) == 0 {
				pend = block[:min(len(block), n-sent)]
				rng.Read(pend)
				want.Write(pend)
				sent += len(pend)
			}
			k, err := src.TryWrite(pend)
			pend = pend[k:]
			if err == tcp.ErrWouldBlock {
				break
			}
			if err != nil {
				t.Fatalf("write: %v", err)
			}
		}
		if sent == n && len(pend) == 0 {
			src.CloseWrite()
		}
		for {
			k, err := dst.TryRead(buf)
			got.Write(buf[:k])
			rcvd += k
			if err == io.EOF {
				eof = true
				break
			}
			if err == tcp.ErrWouldBlock {
				break
			}
			if err != nil {
				t.Fatalf("read after %d bytes: %v", rcvd, err)
			}
		}
		return eof
	})
	if err != nil {
		t.Fatalf("%v: sent %d, received %d of %d", err, sent, rcvd, n)
	}
	if rcvd != n || !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Fatalf("received %d bytes of %d, hash equal: %v", rcvd, n, bytes.Equal(want.Sum(nil), got.Sum(nil)))
	}
	return w.Clock.Now().Sub(start)
}

func TestTransfer(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name string
		path memlink.Path // both ways
		size int
	}{
		{"clean", memlink.Path{}, 20 << 20},
		{"100 Mbit/s 20 ms", memlink.Path{Rate: 100e6, Delay: 10 * ms, QueueBytes: 500e3}, 10 << 20},
		{"1 % loss", memlink.Path{Rate: 100e6, Delay: 5 * ms, QueueBytes: 500e3, Loss: memlink.Loss{Random: memlink.Percent}}, 5 << 20},
		{"5 % loss, reordering, duplication", memlink.Path{Rate: 100e6, Delay: 5 * ms, QueueBytes: 500e3, Loss: memlink.Loss{Random: 5 * memlink.Percent}, Reorder: 3 * memlink.Percent, ReorderDelay: 2 * ms, Duplicate: 2 * memlink.Percent}, 1 << 20},
		{"corruption", memlink.Path{Delay: 1 * ms, Corrupt: memlink.Percent, CorruptBits: 15}, 5 << 20},
	} {
		for _, cc := range []string{"reno", "cubic", "bbr", "bbr3", "cdg"} {
			t.Run(c.name+"/"+cc, func(t *testing.T) {
				var sc stack.Config
				sc.Modules[plugins.Cong].Name = cc
				w, err := NewWorld(WorldConfig{Link: memlink.Config{AtoB: c.path, BtoA: c.path}, A: sc, B: sc, Seed: 7})
				if err != nil {
					t.Fatal(err)
				}
				a, b, err := w.Connect(80)
				if err != nil {
					t.Fatal(err)
				}
				d := transfer(t, w, a, b, c.size, 10*time.Minute)
				t.Logf("%v, %.1f Mbit/s, %d rounds", d, float64(c.size)*8/d.Seconds()/1e6, w.Rounds)
				transfer(t, w, b, a, c.size/10, 10*time.Minute)
				a.Close()
				b.Close()
				w.Idle(2 * time.Minute)
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
