package sock

import (
	"testing"
	"unsafe"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// An idle connection's memory is part of what we promise. 64 bytes are a size class of the allocator; the next ones are 80 and 96.
func TestConnSize(t *testing.T) {
	if s := unsafe.Sizeof(Conn{}); s > 64 {
		t.Errorf("Conn is %d bytes, want at most 64", s)
	}
}

// Connections that begin alike share their settings.
func TestSharedTuning(t *testing.T) {
	setup := func(o *Options) *tcp.Tuning {
		s, err := o.setup(nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.Tuning
	}
	o := &Options{UserTimeout: 1}
	first := setup(o)
	if second := setup(&Options{UserTimeout: 1}); second != first {
		t.Error("equal settings are kept twice")
	}
	o.UserTimeout = 2
	if third := setup(o); third == first || first.UserTimeout != 1 || third.UserTimeout != 2 {
		t.Errorf("%v, then %v", first, third)
	}
	if setup(&Options{}) != nil {
		t.Error("settings of a connection without any")
	}
}
