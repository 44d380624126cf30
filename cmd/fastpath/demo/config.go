package demo

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/fastpath-tcp/fastpath/conf"
)

// names of the demo's interfaces, each alone in its namespace.
const (
	serverIf = "fpdemo0"
	clientIf = "fpclient0"
)

// configure returns the daemon's configuration and the file to start it with: the one that was given, or, if the driver or the size
// is another, a copy of it in the output directory.
func configure(o Options) (*conf.Config, string, error) {
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return nil, "", err
	}
	path := o.Config
	if o.Driver != "dpdk" || o.Size != DefaultSize {
		var m map[string]any
		if err := toml.Unmarshal(text, &m); err != nil {
			return nil, "", fmt.Errorf("%s: %w", o.Config, err)
		}
		if err := adapt(m, o); err != nil {
			return nil, "", fmt.Errorf("%s: %w", o.Config, err)
		}
		if text, err = toml.Marshal(m); err != nil {
			return nil, "", err
		}
		path = filepath.Join(o.Out, "demo.toml")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, "", err
		}
	}
	c, err := conf.Load(path)
	if err != nil {
		return nil, "", err
	}
	if len(c.Apps) == 0 || len(c.Ports) == 0 || len(c.Ports[0].Addresses) == 0 {
		return nil, "", fmt.Errorf("%s: the demo needs a port with an address, and an HTTP application", path)
	}
	return c, path, nil
}

// adapt changes the port's driver, and the rate so that the download lasts long enough.
func adapt(m map[string]any, o Options) error {
	port, err := first(m, "port")
	if err != nil {
		return err
	}
	app, err := first(m, "app")
	if err != nil {
		return err
	}
	switch o.Driver {
	case "dpdk":
	case "afpacket":
		delete(port, "vdev")
		delete(m, "dpdk")
		port["interface"] = serverIf
	case "tap":
		delete(port, "vdev")
		delete(m, "dpdk")
		port["interface"] = serverIf
	default:
		return fmt.Errorf("unknown driver %q (want dpdk, afpacket or tap)", o.Driver)
	}
	port["driver"] = o.Driver
	app["rate"] = fmt.Sprintf("%dkbit/s", max(int64(o.Size)*8/1000/int64(least.Seconds()), 1))
	return nil
}

// first returns the first table of an array of tables.
func first(m map[string]any, key string) (map[string]any, error) {
	if a, ok := m[key].([]any); ok && len(a) > 0 {
		if t, ok := a[0].(map[string]any); ok {
			return t, nil
		}
	}
	return nil, fmt.Errorf("there is no [[%s]]", key)
}
