package link

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// recordSizes returns the sizes of a kind's events and commands.
func recordSizes(kind plugins.Kind) (event, command uintptr, err error) {
	switch kind {
	case plugins.Rtx:
		return unsafe.Sizeof(rtx.Event{}), unsafe.Sizeof(rtx.Command{}), nil
	case plugins.Pace:
		return unsafe.Sizeof(pace.Event{}), unsafe.Sizeof(pace.Line{}), nil
	case plugins.Cong:
		return unsafe.Sizeof(cong.Sample{}), unsafe.Sizeof(cong.Decision{}), nil
	}
	return 0, 0, fmt.Errorf("no records for module %v", kind)
}

// strides returns the bytes per worker in the host's and in the module's memory, in whole pages.
func (g Geometry) strides(kind plugins.Kind) (host, module int, err error) {
	if err := g.check(); err != nil {
		return 0, 0, err
	}
	event, command, err := recordSizes(kind)
	if err != nil {
		return 0, 0, err
	}
	page := os.Getpagesize()
	up := func(n uintptr) int { return (int(n) + page - 1) &^ (page - 1) }
	return up(unsafe.Sizeof(HostBlock{}) + uintptr(g.Events)*event),
		up(unsafe.Sizeof(ModuleBlock{}) + uintptr(g.Commands)*command), nil
}

// Carve returns the worker's segment of two mappings of the geometry. kind tells the record types, which must be E and C.
func Carve[E, C any](kind plugins.Kind, g Geometry, host, module []byte, worker int) (Segment[E, C], error) {
	hostStride, moduleStride, err := g.strides(kind)
	if err != nil {
		return Segment[E, C]{}, err
	}
	event, command, _ := recordSizes(kind)
	if worker < 0 || worker >= g.Workers || len(host) < hostStride*g.Workers || len(module) < moduleStride*g.Workers ||
		unsafe.Sizeof(*new(E)) != event || unsafe.Sizeof(*new(C)) != command {
		return Segment[E, C]{}, ErrTooSmall
	}
	h := unsafe.Pointer(&host[worker*hostStride])
	m := unsafe.Pointer(&module[worker*moduleStride])
	return Segment[E, C]{
		Host:     (*HostBlock)(h),
		Module:   (*ModuleBlock)(m),
		Events:   unsafe.Slice((*E)(unsafe.Add(h, unsafe.Sizeof(HostBlock{}))), g.Events),
		Commands: unsafe.Slice((*C)(unsafe.Add(m, unsafe.Sizeof(ModuleBlock{}))), g.Commands),
	}, nil
}
