//go:build packetdrill

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/test/script/posix"
)

// instance is a table's world. Calls of several threads take turns; the one that lets time pass wakes those that wait.
type instance struct {
	mu       sync.Mutex
	changed  *sync.Cond
	w        *posix.World
	waiting  int // calls that block
	returned int // of these have ended, and their threads have not asked for the time yet
	asked    int // and have
	sent     []posix.Sent
}

var (
	instMu    sync.Mutex
	instances = map[uintptr]*instance{}
	lastInst  uintptr
)

func find(h uintptr) *instance {
	instMu.Lock()
	defer instMu.Unlock()
	return instances[h]
}

// newInstance makes a world by the flags and returns its handle; 0 after an error, which it prints.
func newInstance(flags string) uintptr {
	cfg, err := parseFlags(flags)
	if err == nil {
		var w *posix.World
		if w, err = posix.New(cfg); err == nil {
			in := &instance{w: w}
			in.changed = sync.NewCond(&in.mu)
			instMu.Lock()
			defer instMu.Unlock()
			lastInst++
			instances[lastInst] = in
			return lastInst
		}
	}
	fmt.Fprintf(os.Stderr, "fastpath: %v\n", err)
	return 0
}

func parseFlags(flags string) (cfg posix.Config, err error) {
	local, gateway := "192.168.0.2/16", "192.168.0.1"
	for _, f := range strings.Split(flags, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(f), "=")
		num := 0
		if name == "mtu" || name == "rcvbuf" {
			if num, err = strconv.Atoi(value); err != nil || num <= 0 {
				return cfg, fmt.Errorf("--so_flags: %s=%s: want a number", name, value)
			}
		}
		switch name {
		case "":
		case "local":
			local = value
		case "gateway":
			gateway = value
		case "mtu":
			cfg.MTU = num
		case "rcvbuf":
			cfg.TCP.RecvBuffer = num
		case "cong":
			cfg.Cong = value
		default:
			return cfg, fmt.Errorf("--so_flags: unknown flag %q (there are local, gateway, mtu, cong, rcvbuf)", name)
		}
	}
	p, err := netip.ParsePrefix(local)
	if err != nil {
		return cfg, fmt.Errorf("--so_flags: local=%s: want ADDRESS/LENGTH", local)
	}
	cfg.Addrs = []netip.Prefix{p}
	if cfg.Gateway, err = netip.ParseAddr(gateway); err != nil {
		return cfg, fmt.Errorf("--so_flags: gateway=%s: want an address", gateway)
	}
	return cfg, nil
}

// result is a call's result as C gets it: a number, or the negative number of an error.
func result(r posix.Result) int64 {
	if r.Err == nil {
		return int64(r.Ret)
	}
	var n syscall.Errno
	if errors.As(r.Err, &n) {
		return -int64(n)
	}
	return -int64(syscall.EIO)
}

// call makes a call and waits for its end.
func call(h uintptr, make func(w *posix.World) posix.Call) int64 {
	in := find(h)
	if in == nil {
		return -int64(syscall.EBADF)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	p := in.w.Do(make(in.w))
	in.stirred()
	if !p.Done {
		in.waiting++
		for !p.Done {
			in.changed.Wait()
		}
		in.waiting--
		in.returned++
		in.changed.Broadcast()
	}
	return result(p.Result)
}

// stirred collects what the stack has sent and lets calls that wait look again.
func (in *instance) stirred() {
	in.sent = append(in.sent, in.w.Take()...)
	in.changed.Broadcast()
}

// step lets time pass until something is due, or until limit. If that ends a call of another thread, the thread gets a while to come back
// and ask for the time, which shall be that of the end.
func (in *instance) step(limit plugins.Time) bool {
	before := in.w.Ended()
	more := in.w.Step(limit)
	in.stirred()
	if n := in.w.Ended() - before; n > 0 && in.waiting > 0 {
		in.handOver(min(n, in.waiting))
	}
	return more
}

const handOverTime = 20 * time.Millisecond

func (in *instance) handOver(n int) {
	over := false
	t := time.AfterFunc(handOverTime, func() {
		in.mu.Lock()
		over = true
		in.changed.Broadcast()
		in.mu.Unlock()
	})
	for in.asked = 0; in.asked < n && !over; {
		in.changed.Wait()
	}
	t.Stop()
	in.returned = 0
}

// now is the time in µs, as gettimeofday tells it.
func (in *instance) now() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.returned > 0 {
		in.returned--
		in.asked++
		in.changed.Broadcast()
	}
	return int64(in.w.Now()) / 1000
}

func (in *instance) sleep(us int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for end := in.w.Now().Add(time.Duration(us) * time.Microsecond); in.w.Now() < end; {
		in.step(end)
	}
}

func (in *instance) inject(p []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.w.Inject(p)
	in.stirred()
}

// receive waits for the next packet of the stack; ok is false if none will come.
func (in *instance) receive() (s posix.Sent, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.sent) == 0 {
		at := in.w.Next()
		if at == plugins.Never {
			return s, false
		}
		in.step(at)
	}
	s, in.sent = in.sent[0], in.sent[1:]
	return s, true
}

func (in *instance) close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.w.Close()
}
