package afpacket

import (
	"fmt"
	"testing"

	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/internal/peertest"
	"github.com/fastpath-tcp/fastpath/test/netns"
)

// BenchmarkForward measures one frame from a port through veth to another port, both polled by one goroutine in batches of 32.
func BenchmarkForward(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			pa, pb := joined(b, Config{}, 0)
			defer peertest.Close(b, pa, pb)
			from, to := pa.Queue(0), pb.Queue(0)
			tx, rx := make([]*pmd.Buf, 32), make([]*pmd.Buf, 64)
			head := append(append(append([]byte{}, pb.Info().MAC...), pa.Info().MAC...), 0x88, 0xb5)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			got := 0
			for sent := 0; sent < b.N; {
				n := min(len(tx), b.N-sent, from.TxRoom())
				for i := range n {
					tx[i] = from.Pool().Get()
					tx[i].SetLen(size)
					copy(tx[i].Bytes(), head)
				}
				from.Poll(tx[:n], nil)
				sent += n
				_, k := to.Poll(nil, rx)
				for _, f := range rx[:k] {
					to.Pool().Put(f)
				}
				got += k
			}
			b.StopTimer()
			b.ReportMetric(float64(got)/float64(b.N)*100, "%received")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}

// BenchmarkIdle measures a Poll that finds nothing.
func BenchmarkIdle(b *testing.B) {
	pa, pb := joined(b, Config{}, 0)
	defer peertest.Close(b, pa, pb)
	rx := make([]*pmd.Buf, 64)
	for b.Loop() {
		pa.Queue(0).Poll(nil, rx)
	}
}

// BenchmarkKernelTCP carries 256 MB from one kernel to another through two ports and a forwarding goroutine per iteration.
func BenchmarkKernelTCP(b *testing.B) {
	const size = 256 << 20
	for name, o := range map[string]offloads{"offloads off": {}, "offloads on": {true, true}} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b, o, Config{RingFrames: 4096, PoolSize: 8192}, true)
			b.SetBytes(size)
			for b.Loop() {
				peertest.Bulk(b, x.client, x.server, "10.9.0.2", size)
			}
			b.ReportMetric(float64(x.a.Stats().RxDropped+x.b.Stats().RxDropped)/float64(b.N), "drops/op")
		})
	}
}

// BenchmarkKernelVeth is the same transfer between two kernels without us.
func BenchmarkKernelVeth(b *testing.B) {
	const size = 256 << 20
	for name, on := range map[string]bool{"offloads off": false, "offloads on": true} {
		b.Run(name, func(b *testing.B) {
			x := &bench{client: peertest.NS(b), server: peertest.NS(b)}
			peertest.Veth(b, netns.End{NS: x.client, Name: "eth0", Addrs: mustPrefix("10.9.0.1/24"), Offloads: on},
				netns.End{NS: x.server, Name: "eth0", Addrs: mustPrefix("10.9.0.2/24"), Offloads: on}, 0)
			b.SetBytes(size)
			for b.Loop() {
				peertest.Bulk(b, x.client, x.server, "10.9.0.2", size)
			}
		})
	}
}
