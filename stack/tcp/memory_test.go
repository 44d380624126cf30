package tcp_test

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/mem"
)

func smallBudget(t *testing.T, high int64) *mem.Budget {
	t.Helper()
	b, err := mem.NewBudget(mem.Limits{Low: high / 2, Pressure: high * 3 / 4, High: high})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func stackConfig(b *mem.Budget) stack.Config { return stack.Config{Budget: b} }
