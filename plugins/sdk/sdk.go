// Package sdk makes a module's main function: it connects the module to the fastpath that started it, and runs it between
// shared-memory rings. A complete module is one pure function and
//
//	func main() { sdk.Serve(sdk.Module{Info: info, Cong: newModule}) }
//
// A binary may offer several modules; the daemon runs one of each kind together in a process if its configuration says so
// (modules.together). See plugins/example for one in a Go module of its own, with its test. Nothing else is to be imported: the names of the records' packages
// are here, too. The process never sees a socket, a packet, or another connection's data.
package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"

	"github.com/fastpath-tcp/fastpath/cong"
	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
	"github.com/fastpath-tcp/fastpath/plugins/pace"
	"github.com/fastpath-tcp/fastpath/plugins/rtx"
)

// Module is what a binary offers, or a part of it: a description, and the factory of the one kind that Info names.
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

// check checks modules that one binary offers.
func check(modules []Module) error {
	if len(modules) == 0 {
		return errors.New("sdk: there is no module to serve")
	}
	for i := range modules {
		m := &modules[i]
		if err := m.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(modules[:i], func(o Module) bool { return o.Info.Kind == m.Info.Kind && o.Info.Name == m.Info.Name }) {
			return fmt.Errorf("sdk: %v module %s is there twice", m.Info.Kind, m.Info.Name)
		}
	}
	return nil
}

// Serve serves modules to the fastpath that started this process, which chooses at most one of each kind, and returns when it has let go
// of them. What the program logs through log/slog appears in fastpath's log. Serve ends the process if it was not started by fastpath
// (status 1), if a module is unusable or there twice (status 2), or if fastpath is gone.
func Serve(modules ...Module) {
	if err := check(modules); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !Started() {
		fmt.Fprint(os.Stderr, usage(modules, ownSum()))
		os.Exit(1)
	}
	prepare(modules)
	go exitWithHost()
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  link.Handshake,
		VersionedPlugins: link.Plugins(&server{modules: modules}),
		GRPCServer:       plugin.DefaultGRPCServer,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
}

// Started reports whether fastpath has started this process as a module.
func Started() bool {
	return os.Getenv(link.Handshake.MagicCookieKey) == link.Handshake.MagicCookieValue
}

// ownSum is the SHA-256 of this program's file.
func ownSum() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Sprintf("(sha256sum of this file: %v)", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Sprintf("(sha256sum of this file: %v)", err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// usage is for those who start a module by hand. sum is the checksum without which fastpath runs no file.
func usage(modules []Module, sum string) string {
	var b strings.Builder
	for j := range modules {
		i := &modules[j].Info
		fmt.Fprintf(&b, "This is the fastpath module %v/%s, version %s. fastpath starts it; it does nothing on its own.\n"+
			"Copy it to fastpath's plugin directory (modules.plugin_dir) as fastpath-%v-%s, add this to fastpath's configuration and start fastpath:\n\n"+
			"[[module]]\nkind      = \"%v\"\nname      = %q\nplacement = \"process\"\nsha256    = \"%s\"\n\nThen: fastpath ctl swap %v %s\n",
			i.Kind, i.Name, i.Version, i.Kind, i.Name, i.Kind, i.Name, sum, i.Kind, i.Name)
		for _, p := range i.Params {
			fmt.Fprintf(&b, "  parameter %s (%s %s, default %s): %s\n", p.Name, p.Type, p.Unit, p.Default, p.Doc)
		}
	}
	return b.String()
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
