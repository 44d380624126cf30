package peertest

import (
	"runtime"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen.
const Patience = 10 * time.Second

// Until calls f until it reports true, for at most Patience.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !f(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}
