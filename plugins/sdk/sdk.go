// Package sdk makes a module's main function: it connects the module to the fastpath that started it, and runs it between
// shared-memory rings. A complete module is one pure function and
//
//	func main() { sdk.Serve(sdk.Module{Info: info, Cong: newModule}) }
//
// See plugins/example for one in a Go module of its own, with its test. Nothing else is to be imported: the names of the records' packages
// are here, too. The process never sees a socket, a packet, or another connection's data.
package sdk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Module is what a binary offers: a description, and the factory of the one kind that Info names.
type Module struct {
	Info plugins.Info
	Rtx  rtx.New
	Pace pace.New
	Cong cong.New
}

// Check reports what is wrong with m: a missing name or version, or factories that do not match Info.Kind.
func (m *Module) Check() error {
	if m.Info.Name == "" || m.Info.Version == "" {
		return errors.New("sdk: Info needs a name and a version")
	}
	have := [plugins.NumKinds]bool{plugins.Rtx: m.Rtx != nil, plugins.Pace: m.Pace != nil, plugins.Cong: m.Cong != nil}
	for k, h := range have {
		if want := plugins.Kind(k) == m.Info.Kind; h != want {
			return fmt.Errorf("sdk: %v module %s: factory for kind %v: have %v, want %v", m.Info.Kind, m.Info.Name, plugins.Kind(k), h, want)
		}
	}
	return nil
}

// Serve serves m to the fastpath that started this process, and returns when it has let go of it. What the program logs
// through log/slog appears in fastpath's log. Serve ends the process if it was not started by fastpath (status 1), if m is
// unusable (status 2), or if fastpath is gone.
func Serve(m Module) {
	if err := m.Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !Started() {
		usage(&m)
		os.Exit(1)
	}
	prepare(m.Info)
	go exitWithHost()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  link.Handshake,
		VersionedPlugins: link.Plugins(&server{module: m}),
		GRPCServer:       plugin.DefaultGRPCServer,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
}

// Started reports whether fastpath has started this process as a module.
func Started() bool {
	return os.Getenv(link.Handshake.MagicCookieKey) == link.Handshake.MagicCookieValue
}

// usage is for those who start a module by hand.
func usage(m *Module) {
	i := &m.Info
	fmt.Fprintf(os.Stderr, "This is the fastpath module %v/%s, version %s. fastpath starts it; it does nothing on its own.\n"+
		"Copy it to fastpath's plugin directory as fastpath-%v-%s, then: fastpath ctl swap %v %s\n",
		i.Kind, i.Name, i.Version, i.Kind, i.Name, i.Kind, i.Name)
	for _, p := range i.Params {
		fmt.Fprintf(os.Stderr, "  parameter %s (%s %s, default %s): %s\n", p.Name, p.Type, p.Unit, p.Default, p.Doc)
	}
}

// logToHost makes log/slog write the lines that go-plugin's host understands. os.Stderr is taken now: go-plugin replaces it.
func logToHost() {
	names := map[string]string{slog.TimeKey: "@timestamp", slog.LevelKey: "@level", slog.MessageKey: "@message"}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if n, ok := names[a.Key]; ok && len(groups) == 0 {
				a.Key = n
				if n == "@timestamp" {
					a.Value = slog.StringValue(a.Value.Time().Format(hclog.TimeFormatJSON))
				}
			}
			return a
		},
	})))
}
