package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
	"github.com/fastpath-tcp/fastpath/stack/sock"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

const port = 80

// traffic is a number of clients of one stack that send to the other, over a bad link.
type traffic struct {
	a, b  *stack.Stack
	arena *mem.Arena
	ln    *sock.Listener
	stop  atomic.Bool
	seed  uint64

	bytes, transfers atomic.Uint64
	mu               sync.Mutex
	gaps             []time.Duration // the longest of each transfer
	errs             []error
}

func newTraffic(t *testing.T, seed uint64) *traffic {
	t.Helper()
	bad := memlink.Path{Rate: 300e6, QueueBytes: 2 << 20, Delay: 2 * time.Millisecond, Jitter: time.Millisecond, Loss: memlink.Loss{Random: memlink.Percent},
		Duplicate: memlink.Percent / 10, Reorder: memlink.Percent / 2, ReorderDelay: 3 * time.Millisecond, Corrupt: memlink.Percent / 10, CorruptFrom: 34}
	pa, pb, err := memlink.New(memlink.Config{AtoB: bad, BtoA: bad, Seed: seed, Now: stack.Monotonic{}.Now, Bufs: 32768})
	if err != nil {
		t.Fatal(err)
	}
	budget, err := mem.NewBudget(mem.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	tr := &traffic{arena: mem.NewArena(budget), seed: seed}
	cfg := stack.Config{Port: pa, Arena: tr.arena, Workers: make([]stack.WorkerConfig, 2), Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")},
		TCP: tcp.Config{RecvBuffer: 256 << 10, SendBuffer: 256 << 10}}
	if tr.a, err = stack.New(cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Port, cfg.Workers, cfg.Addrs = pb, nil, []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}
	if tr.b, err = stack.New(cfg); err != nil {
		t.Fatal(err)
	}
	if tr.ln, err = sock.Listen(tr.b, "tcp", fmt.Sprintf("10.0.0.2:%d", port)); err != nil {
		t.Fatal(err)
	}
	return tr
}

func (tr *traffic) fail(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.errs = append(tr.errs, fmt.Errorf(format, args...))
}

// serve takes connections until the listener is closed.
func (tr *traffic) serve(wg *sync.WaitGroup) {
	for {
		c, err := tr.ln.Accept()
		if err != nil {
			return
		}
		wg.Go(func() { tr.receive(c) })
	}
}

// receive reads a length and so many bytes, and answers with their hash.
func (tr *traffic) receive(c net.Conn) {
	defer c.Close()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		tr.fail("receiver: %w", err)
		return
	}
	h := sha256.New()
	var worst time.Duration
	last := time.Now()
	buf := make([]byte, 64<<10)
	for left := binary.BigEndian.Uint64(head[:]); left > 0; {
		n, err := c.Read(buf[:min(left, uint64(len(buf)))])
		now := time.Now()
		worst, last = max(worst, now.Sub(last)), now
		h.Write(buf[:n])
		left -= uint64(n)
		tr.bytes.Add(uint64(n))
		if err != nil && left > 0 {
			tr.fail("receiver, %d bytes before the end: %w", left, err)
			return
		}
	}
	tr.mu.Lock()
	tr.gaps = append(tr.gaps, worst)
	tr.mu.Unlock()
	if _, err := c.Write(h.Sum(nil)); err != nil {
		tr.fail("answer: %w", err)
	}
}

// stuck is how long a transfer may take altogether: beyond it, it does not end.
const stuck = 4 * time.Minute

// client makes one transfer after the other until stop. Its data and their sizes follow from the seed.
func (tr *traffic) client(id uint64) {
	dial := &sock.Dialer{Stack: tr.a}
	rng := rand.New(rand.NewPCG(tr.seed, id))
	for !tr.stop.Load() {
		if err := tr.transfer(dial, rng); err != nil {
			tr.fail("client %d: %w", id, err)
			return
		}
		tr.transfers.Add(1)
	}
}

func (tr *traffic) transfer(dial *sock.Dialer, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), stuck)
	defer cancel()
	c, err := dial.DialContext(ctx, "tcp", fmt.Sprintf("10.0.0.2:%d", port))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(stuck)); err != nil {
		return err
	}
	size := 1 + rng.Uint64N(64<<10)
	if rng.IntN(2) == 0 {
		size = 1<<20 + rng.Uint64N(3<<20)
	}
	h := sha256.New()
	src := rand.NewChaCha8([32]byte{0: byte(rng.Uint32()), 1: byte(rng.Uint32()), 2: byte(rng.Uint32()), 3: byte(rng.Uint32())})
	if _, err := c.Write(binary.BigEndian.AppendUint64(nil, size)); err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for left := size; left > 0; {
		n := min(left, uint64(len(buf)))
		src.Read(buf[:n]) // it never fails
		h.Write(buf[:n])
		if _, err := c.Write(buf[:n]); err != nil {
			return fmt.Errorf("%d of %d bytes before the end: %w", left, size, err)
		}
		left -= n
	}
	got, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, h.Sum(nil)) {
		return errors.New("the receiver's hash is another one")
	}
	return nil
}
