package main

import (
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins/plugtest"
)

func TestMain(m *testing.M) { plugtest.Main(m, module) }

func TestModule(t *testing.T) { plugtest.Run(t, module) }
