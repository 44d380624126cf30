package tcp

import (
	"testing"
	"unsafe"
)

// An idle connection's memory is part of what we promise. 888 bytes and the allocator's own 8 fill its size class of 896.
func TestConnSize(t *testing.T) {
	if s := unsafe.Sizeof(Conn{}); s > 888 {
		t.Errorf("Conn is %d bytes, want at most 888", s)
	}
}
