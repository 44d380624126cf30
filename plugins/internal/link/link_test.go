package link

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

func TestLayoutTellsKindsApart(t *testing.T) {
	seen := map[uint64]plugins.Kind{}
	for k := range plugins.NumKinds {
		h, err := Layout(k)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[h]; ok {
			t.Errorf("%v and %v have one layout hash", k, other)
		}
		seen[h] = k
	}
	if _, err := Layout(plugins.NumKinds); err == nil {
		t.Error("an unknown kind has a layout")
	}
}

// Every change of a record that the other side would misread changes the hash.
func TestLayoutSeesChanges(t *testing.T) {
	type base struct {
		A uint32
		B uint32
		C [2]uint64
	}
	type swapped struct {
		B uint32
		A uint32
		C [2]uint64
	}
	type renamed struct {
		A, X uint32
		C    [2]uint64
	}
	type retyped struct {
		A uint32
		B int32
		C [2]uint64
	}
	type longer struct {
		A, B uint32
		C    [3]uint64
	}
	type sameSize struct {
		A, B uint32
		C    [4]uint32
	}
	seen := map[uint64]string{}
	for _, typ := range []reflect.Type{reflect.TypeFor[base](), reflect.TypeFor[swapped](), reflect.TypeFor[renamed](), reflect.TypeFor[retyped](),
		reflect.TypeFor[longer](), reflect.TypeFor[sameSize]()} {
		h := layoutOf(typ)
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", typ.Name(), other)
		}
		seen[h] = typ.Name()
	}
}

// What the two sides write lies on different pairs of cache lines.
func TestBlocks(t *testing.T) {
	var h HostBlock
	var m ModuleBlock
	for name, off := range map[string]uintptr{
		"size of HostBlock": unsafe.Sizeof(h), "CmdHead": unsafe.Offsetof(h.CmdHead), "Bell": unsafe.Offsetof(h.Bell), "Turn": unsafe.Offsetof(h.Turn),
		"size of ModuleBlock": unsafe.Sizeof(m), "CmdTail": unsafe.Offsetof(m.CmdTail), "Deadline": unsafe.Offsetof(m.Deadline),
	} {
		if off%128 != 0 {
			t.Errorf("%s is %d, not a multiple of 128", name, off)
		}
	}
}

func TestRegionIsSealed(t *testing.T) {
	g := Geometry{Workers: 2, Events: 64, Commands: 32, Kinds: []plugins.Kind{plugins.Cong}}
	r, err := NewRegion(g)
	if err != nil {
		t.Fatal(err)
	}
	defer r.CloseFiles()
	defer func() {
		if err := r.Unmap(); err != nil {
			t.Error(err)
		}
	}()
	for i, f := range r.Files() {
		fd := int(f.Fd())
		if err := unix.Ftruncate(fd, 0); err == nil {
			t.Errorf("descriptor %d can be truncated", i)
		}
		if err := unix.Ftruncate(fd, 1<<30); err == nil {
			t.Errorf("descriptor %d can be grown", i)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			t.Errorf("descriptor %d can be sealed further", i)
		}
	}
	// A module has the same descriptor, and may open it anew; it cannot write the host's part in any way.
	hostFD := int(r.Files()[0].Fd())
	anew, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", hostFD), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer anew.Close()
	for name, fd := range map[string]int{"inherited": hostFD, "opened anew": int(anew.Fd())} {
		if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Errorf("%s: the host's part can be mapped for writing", name)
		}
		if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
			t.Errorf("%s: the host's part can be written", name)
		}
	}
	if err := unix.Fallocate(hostFD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err == nil {
		t.Error("the host's part can be punched")
	}
	ro, err := unix.Mmap(hostFD, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(ro) }()
	if err := unix.Mprotect(ro, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("a reader's mapping can be made writable")
	}
	r.Host[100] = 42 // ours still can
	if ro[100] != 42 {
		t.Error("the reader does not see what the host writes")
	}
}

// Each kind has a segment of its own for each worker, and no byte is two's.
func TestCarve(t *testing.T) {
	g := Geometry{Workers: 3, Events: 64, Commands: 32, Kinds: []plugins.Kind{plugins.Cong, plugins.Rtx, plugins.Pace}}
	r, err := NewRegion(g)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Unmap() }()
	defer r.CloseFiles()
	for w := range g.Workers {
		carve[cong.Sample, cong.Decision](t, r, g, plugins.Cong, w)
		carve[rtx.Event, rtx.Command](t, r, g, plugins.Rtx, w)
		carve[pace.Event, pace.Line](t, r, g, plugins.Pace, w)
	}
	only := g
	only.Kinds = []plugins.Kind{plugins.Pace}
	for name, err := range map[string]error{
		"worker":  second(Carve[cong.Sample, cong.Decision](plugins.Cong, g, r.Host, r.Module, 3)),
		"records": second(Carve[cong.Decision, cong.Decision](plugins.Cong, g, r.Host, r.Module, 0)),
		"short":   second(Carve[cong.Sample, cong.Decision](plugins.Cong, g, r.Host[:4096], r.Module, 0)),
		"kind":    second(Carve[cong.Sample, cong.Decision](plugins.Cong, only, r.Host, r.Module, 0)),
	} {
		if !errors.Is(err, ErrTooSmall) {
			t.Errorf("%s: %v", name, err)
		}
	}
	kinds := []plugins.Kind{plugins.Cong}
	for _, bad := range []Geometry{{}, {Workers: 1, Events: 3, Commands: 4, Kinds: kinds}, {Workers: 1, Events: 4, Commands: 1 << 30, Kinds: kinds},
		{Workers: -1, Events: 4, Commands: 4, Kinds: kinds}, {Workers: 1, Events: 4, Commands: 4}, {Workers: 1, Events: 4, Commands: 4, Kinds: []plugins.Kind{9}},
		{Workers: 1, Events: 4, Commands: 4, Kinds: []plugins.Kind{plugins.Rtx, plugins.Rtx}}} {
		if _, err := NewRegion(bad); err == nil {
			t.Errorf("geometry %+v is accepted", bad)
		}
	}
}

// carve adds one to each byte of a segment, which is fresh.
func carve[E, C any](t *testing.T, r *Region, g Geometry, k plugins.Kind, w int) {
	t.Helper()
	s, err := Carve[E, C](k, g, r.Host, r.Module, w)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Events) != g.Events || len(s.Commands) != g.Commands {
		t.Fatalf("%d events, %d commands", len(s.Events), len(s.Commands))
	}
	for name, mem := range map[string][]byte{"host": bytesOf(s.Host, 1), "module": bytesOf(s.Module, 1), "events": bytesOf(&s.Events[0], len(s.Events)),
		"commands": bytesOf(&s.Commands[0], len(s.Commands))} {
		for i := range mem {
			if mem[i]++; mem[i] != 1 {
				t.Fatalf("%v of worker %d: byte %d of %s was written by others", k, w, i, name)
			}
		}
	}
}

func bytesOf[T any](first *T, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(first)), n*int(unsafe.Sizeof(*first)))
}

func second[T any](_ T, err error) error { return err }

// The clock is CLOCK_MONOTONIC itself, so that both processes agree.
func TestClock(t *testing.T) {
	var before, after unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	now := int64(Now())
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	const slack = 100_000 // the two clocks were tied together with this precision, descheduling included
	if now < before.Nano()-slack || now > after.Nano()+slack {
		t.Errorf("Now is %d, CLOCK_MONOTONIC between %d and %d", now, before.Nano(), after.Nano())
	}
}
