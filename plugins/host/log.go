package host

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// pluginLogger passes what go-plugin and the module process log on to log/slog. go-plugin's own remarks are for debugging; the
// module's lines keep their level.
func pluginLogger(l *slog.Logger, name string) hclog.Logger {
	il := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Level: hclog.Trace, Output: io.Discard})
	il.RegisterSink(sink{l, name})
	return il
}

type sink struct {
	log  *slog.Logger
	name string
}

var levels = map[hclog.Level]slog.Level{
	hclog.Trace: slog.LevelDebug, hclog.Debug: slog.LevelDebug, hclog.Info: slog.LevelInfo,
	hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelError,
}

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	lv := levels[level]
	if name == s.name { // go-plugin itself; a module's lines come from a logger below
		lv = slog.LevelDebug
	}
	if !s.log.Enabled(context.Background(), lv) {
		return
	}
	s.log.Log(context.Background(), lv, msg, args...)
}
