//go:build !dpdk

package dpdk

import (
	"context"

	"github.com/fastpath-tcp/fastpath/pmd"
)

// Available reports whether the program was built with DPDK.
const Available = false

// Open returns ErrNotBuilt.
func Open(context.Context, Config) (pmd.Port, error) { return nil, ErrNotBuilt }

// Shutdown does nothing.
func Shutdown() error { return nil }
