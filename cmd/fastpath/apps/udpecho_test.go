package apps

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/conf"
)

// Datagrams come back, of every size, to whoever sent them, until the end.
func TestUDPEcho(t *testing.T) {
	a, err := NewPacket(conf.App{Kind: conf.AppUDPEcho}, discardLog())
	if err != nil {
		t.Fatal(err)
	}
	cs, err := Kernel{}.ListenPacket(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	addr := cs[0].LocalAddr().(*net.UDPAddr)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.ServePackets(cs); err != nil {
			t.Errorf("ServePackets: %v", err)
		}
	})
	got := make([]byte, 65535)
	for range 2 {
		c, err := net.DialUDP("udp", nil, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		for _, size := range []int{1, 0, 1500, 60000} {
			want := bytes.Repeat([]byte{byte(size)}, size)
			if _, err := c.Write(want); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(got); err != nil || !bytes.Equal(got[:n], want) {
				t.Errorf("%d bytes: %d came back, %v", size, n, err)
			}
		}
	}
	if err := a.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := a.Shutdown(context.Background()); err != nil { // again
		t.Error(err)
	}
}

// Two echoes that a forged source brings together do not answer each other for ever.
func TestUDPEchoLoop(t *testing.T) {
	for port, itself := range map[uint16]bool{7: true, 19: true, 5000: true, 0: true, 5001: false, 53: false} {
		if got := answersItself(port, 5000); got != itself {
			t.Errorf("port %d: %v", port, got)
		}
	}
}
