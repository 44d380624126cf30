package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
)

// versionInfo is the JSON of `fastpath version`.
type versionInfo struct {
	Version  string   `json:"version"`  // of the module; "(devel)" for a build from a checkout
	Revision string   `json:"revision"` // of the checkout, with "+dirty" if it was changed; empty if unknown
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Tags     []string `json:"tags"` // build tags: "dpdk" if the DPDK driver is built in
	Protocol int      `json:"control_protocol"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Tags: []string{}, Protocol: control.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		case "-tags":
			v.Tags = strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	if dirty && v.Revision != "" {
		v.Revision += "+dirty"
	}
	return v
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := readVersion()
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), v)
		}
		line := []string{"fastpath", v.Version}
		if v.Revision != "" {
			line = append(line, v.Revision)
		}
		line = append(line, v.Go, v.Platform)
		if len(v.Tags) > 0 {
			line = append(line, "tags="+strings.Join(v.Tags, ","))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(line, " "))
		return err
	}
	return cmd
}
