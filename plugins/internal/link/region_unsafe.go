package link

import (
	"fmt"
	"os"
	"slices"
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

// strides returns the bytes per worker of a kind in the host's and in the module's memory, in whole pages.
func (g Geometry) strides(kind plugins.Kind) (host, module int, err error) {
	event, command, err := recordSizes(kind)
	if err != nil {
		return 0, 0, err
	}
	page := os.Getpagesize()
	up := func(n uintptr) int { return (int(n) + page - 1) &^ (page - 1) }
	return up(unsafe.Sizeof(HostBlock{}) + uintptr(g.Events)*event),
		up(unsafe.Sizeof(ModuleBlock{}) + uintptr(g.Commands)*command), nil
}

// sizes returns the bytes of the host's and of the module's memory.
func (g Geometry) sizes() (host, module int, err error) {
	if err := g.check(); err != nil {
		return 0, 0, err
	}
	for _, k := range g.Kinds {
		h, m, err := g.strides(k)
		if err != nil {
			return 0, 0, err
		}
		host, module = host+h*g.Workers, module+m*g.Workers
	}
	return host, module, nil
}

// Carve returns the worker's segment of two mappings of the geometry. kind, one of the geometry's, tells the record types, which must be
// E and C.
func Carve[E, C any](kind plugins.Kind, g Geometry, host, module []byte, worker int) (Segment[E, C], error) {
	hostSize, moduleSize, err := g.sizes()
	if err != nil {
		return Segment[E, C]{}, err
	}
	event, command, err := recordSizes(kind)
	if err != nil {
		return Segment[E, C]{}, err
	}
	if worker < 0 || worker >= g.Workers || len(host) < hostSize || len(module) < moduleSize ||
		unsafe.Sizeof(*new(E)) != event || unsafe.Sizeof(*new(C)) != command || !slices.Contains(g.Kinds, kind) {
		return Segment[E, C]{}, ErrTooSmall
	}
	hostAt, moduleAt := 0, 0
	for _, k := range g.Kinds {
		hostStride, moduleStride, _ := g.strides(k)
		if k == kind {
			hostAt, moduleAt = hostAt+worker*hostStride, moduleAt+worker*moduleStride
			break
		}
		hostAt, moduleAt = hostAt+g.Workers*hostStride, moduleAt+g.Workers*moduleStride
	}
	h := unsafe.Pointer(&host[hostAt])
	m := unsafe.Pointer(&module[moduleAt])
	return Segment[E, C]{
		Host:     (*HostBlock)(h),
		Module:   (*ModuleBlock)(m),
		Events:   unsafe.Slice((*E)(unsafe.Add(h, unsafe.Sizeof(HostBlock{}))), g.Events),
		Commands: unsafe.Slice((*C)(unsafe.Add(m, unsafe.Sizeof(ModuleBlock{}))), g.Commands),
	}, nil
}
