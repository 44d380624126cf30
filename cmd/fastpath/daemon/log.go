package daemon

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"github.com/fastpath-tcp/fastpath/conf"
)

// Logger makes the logger that c describes.
func Logger(c conf.Log, w io.Writer) *slog.Logger {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[c.Level]
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// portLog is the log of what serves one port. That knows only its device, and calls the port by that: here it has its configured name.
func portLog(log *slog.Logger, name string) *slog.Logger {
	return slog.New(portHandler{log.With(portKey, name).Handler()})
}

const portKey = "port"

// portHandler leaves out the names that others give the port.
type portHandler struct{ slog.Handler }

func (h portHandler) Handle(ctx context.Context, r slog.Record) error {
	var attrs []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	n := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	n.AddAttrs(withoutPort(attrs)...)
	return h.Handler.Handle(ctx, n)
}

func (h portHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return portHandler{h.Handler.WithAttrs(withoutPort(slices.Clone(attrs)))}
}

func (h portHandler) WithGroup(name string) slog.Handler {
	return h.Handler.WithGroup(name) // what is called port in a group is something else
}

func withoutPort(attrs []slog.Attr) []slog.Attr {
	return slices.DeleteFunc(attrs, func(a slog.Attr) bool { return a.Key == portKey })
}
