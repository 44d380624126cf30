package link

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors that a module process inherits.
const (
	HostFD   = 3 // events, host's cursors: can only be mapped for reading
	ModuleFD = 4 // commands, module's cursors
	BinaryFD = 5 // the module's own binary, which the host has hashed and executes through this descriptor
)

// Region is the host's view of the memory that it shares with one module process. The memory lives as long as somebody maps it.
type Region struct {
	Host, Module         []byte
	hostFile, moduleFile *os.File
}

// NewRegion makes the shared memory of a geometry: mapped, faulted in and sealed. A module cannot shrink or grow it
// (which would kill the host by SIGBUS), and cannot write the host's part.
func NewRegion(g Geometry) (_ *Region, err error) {
	hostSize, moduleSize, err := g.sizes()
	if err != nil {
		return nil, err
	}
	r := new(Region)
	defer func() {
		if err != nil {
			r.CloseFiles()
			_ = r.Unmap()
		}
	}()
	const size = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	// FUTURE_WRITE leaves the mapping that exists (ours) writable and refuses every later one.
	if r.hostFile, r.Host, err = sharedMemory("fastpath-events", hostSize, size|unix.F_SEAL_FUTURE_WRITE); err != nil {
		return nil, err
	}
	if r.moduleFile, r.Module, err = sharedMemory("fastpath-commands", moduleSize, size); err != nil {
		return nil, err
	}
	return r, nil
}

func sharedMemory(name string, size, seals int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	fail := func(op string, err error) (*os.File, []byte, error) {
		f.Close()
		return nil, nil, fmt.Errorf("shared memory of %d bytes: %s: %w", size, op, err)
	}
	// Allocate, not only size: a page that cannot be had must fail here and not as SIGBUS in a worker.
	if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		return fail("allocate", err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fail("map", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Munmap(mem)
		return fail("seal", err)
	}
	return f, mem, nil
}

// Files returns the descriptors to hand over, in the order of HostFD and ModuleFD.
func (r *Region) Files() []*os.File { return []*os.File{r.hostFile, r.moduleFile} }

// CloseFiles closes this process's descriptors; the mappings stay.
func (r *Region) CloseFiles() {
	for _, f := range []**os.File{&r.hostFile, &r.moduleFile} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}

// Unmap gives the memory back. Nothing may touch a segment of it afterwards.
func (r *Region) Unmap() error {
	var first error
	for _, m := range []*[]byte{&r.Host, &r.Module} {
		if *m != nil {
			if err := unix.Munmap(*m); err != nil && first == nil {
				first = err
			}
			*m = nil
		}
	}
	return first
}

// MapInherited maps the shared memory in a module process and closes the descriptors.
func MapInherited(g Geometry) (host, module []byte, err error) {
	hostSize, moduleSize, err := g.sizes()
	if err != nil {
		return nil, nil, err
	}
	host, err = unix.Mmap(HostFD, 0, hostSize, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map the events: %w", err)
	}
	module, err = unix.Mmap(ModuleFD, 0, moduleSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map the commands: %w", err)
	}
	for _, fd := range []int{HostFD, ModuleFD} {
		_ = unix.Close(fd)
	}
	return host, module, nil
}
