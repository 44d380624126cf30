package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/conf"
)

// callTimeout bounds a request that is not a stream. A swap waits for every worker.
const callTimeout = 30 * time.Second

// ctl is what the subcommands of `fastpath ctl` share.
type ctl struct{ socket string }

func newCtl() *cobra.Command {
	c := &ctl{}
	cmd := &cobra.Command{
		Use:   "ctl",
		Short: "Look into a running daemon and control it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&c.socket, "socket", conf.DefaultSocket, "path of the daemon's control socket")
	cmd.AddCommand(c.ss(), c.modules(), c.swap(), c.set(), c.stat(), c.events(), c.capture(), c.plot(), c.filter(), c.info())
	return cmd
}

// simple makes a command that sends one request and prints its reply of type R, as text or as JSON.
func simple[R any](c *ctl, cmd *cobra.Command, op string, args func(argv []string) (any, error), text func(io.Writer, *R) error) *cobra.Command {
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		var a any
		if args != nil {
			var err error
			if a, err = args(argv); err != nil {
				return err
			}
		}
		var reply R
		if err := c.call(cmd.Context(), op, a, &reply); err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), &reply)
		}
		return text(cmd.OutOrStdout(), &reply)
	}
	return cmd
}

func (c *ctl) call(ctx context.Context, op string, args, reply any) error {
	limit := callTimeout
	if r, ok := args.(control.SwapRequest); ok {
		limit += time.Duration(r.ShadowNS) + time.Duration(r.TrialNS)*5/4 // with what is measured before
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client, err := control.Dial(ctx, c.socket)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Call(ctx, op, args, reply)
}

// stream is call for a streaming operation. It ends when the daemon ends it, or ctx does.
func (c *ctl) stream(ctx context.Context, op string, args any, item func(json.RawMessage) error, reply any) error {
	client, err := control.Dial(ctx, c.socket)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Stream(ctx, op, args, item, reply)
}

func (c *ctl) ss() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ss",
		Short: "Show connections, in the format of ss -tin",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	states := f.StringSlice("state", nil, "only these states: ESTAB, LISTEN, TIME-WAIT, … (default: all but LISTEN and TIME-WAIT)")
	local := f.String("local", "", "only this local address or network, with :PORT or only :PORT")
	peer := f.String("peer", "", "only this peer address or network, with :PORT or only :PORT")
	limit := f.Int("limit", control.DefaultLimit, "show at most so many connections")
	udp := f.BoolP("udp", "u", false, "show UDP sockets")
	return simple(c, cmd, control.OpSS, func([]string) (any, error) {
		r := control.SSRequest{Limit: *limit, UDP: *udp}
		for _, s := range *states {
			r.States = append(r.States, strings.ToUpper(s))
		}
		var err error
		if r.Local, r.LocalPort, err = parseSelector(*local); err != nil {
			return nil, fmt.Errorf("--local: %w", err)
		}
		if r.Peer, r.PeerPort, err = parseSelector(*peer); err != nil {
			return nil, fmt.Errorf("--peer: %w", err)
		}
		return r, nil
	}, control.WriteSS)
}

// parseSelector reads "10.7.0.0/24", "10.7.0.1", "10.7.0.1:80" or ":80".
func parseSelector(s string) (p netip.Prefix, port uint16, err error) {
	if s == "" {
		return p, 0, nil
	}
	if strings.HasPrefix(s, ":") {
		ap, err := netip.ParseAddrPort("0.0.0.0" + s)
		if err != nil {
			return p, 0, fmt.Errorf("%q is not a port", s)
		}
		return p, ap.Port(), nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return netip.PrefixFrom(ap.Addr(), ap.Addr().BitLen()), ap.Port(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), 0, nil
	}
	if p, err = netip.ParsePrefix(s); err != nil {
		return p, 0, fmt.Errorf("%q is not an address, network, address:port or :port", s)
	}
	return p, 0, nil
}

func (c *ctl) modules() *cobra.Command {
	cmd := &cobra.Command{Use: "modules", Short: "Show the modules: version, placement, state, flows, restarts", Args: cobra.NoArgs}
	verbose := cmd.Flags().BoolP("verbose", "v", false, "show files, counters, and parameters with type, unit, default and meaning, too")
	return simple(c, cmd, control.OpModules, nil, func(w io.Writer, r *control.ModulesReply) error {
		if *verbose {
			return control.WriteModulesVerbose(w, r)
		}
		return control.WriteModules(w, r)
	})
}

func (c *ctl) swap() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "swap KIND NAME",
		Short: "Hand flows to another module, while they carry traffic",
		Long: `Hand flows to another module, while they carry traffic: all of them, or those that the flags select.

A selection holds for flows that open later, too, until a swap of all flows, or of all new ones, ends it. Where several hold for a
flow, the youngest decides. Flows that were handed over earlier and are not selected stay where they are.

With --to the module goes on, in place, with the code of a file: the daemon runs a copy of what has the file's SHA-256 as you see it
now, or the one that you give, checks it, and hands it the module's flows. Restarts run that copy; the configuration is not changed.
--dry-run starts and checks the new code only, --shadow first shows it all events, and --trial goes back to the old code.`,
		Example: `  fastpath ctl swap cong cdg
  fastpath ctl swap cong cdg --percent 10 --dry-run
  fastpath ctl swap cong cdg --trial 10s --max-rtt-increase 50% --max-goodput-drop 20%
  fastpath ctl swap cong cdg --shadow 5s --dry-run
  fastpath ctl swap cong cdg --new --peer 10.8.0.0/16 --local :443
  fastpath ctl swap cong mine --to ./fastpath-cong-mine --shadow 5s --trial 10s --max-goodput-drop 20%`,
		Args: cobra.ExactArgs(2),
	}
	f := cmd.Flags()
	newOnly := f.Bool("new", false, "only flows that open from now on")
	percent := f.Int("percent", 100, "only so many of a hundred flows, chosen by a hash of addresses and ports")
	local := f.String("local", "", "only this local address or network, with :PORT or only :PORT")
	peer := f.String("peer", "", "only this peer address or network, with :PORT or only :PORT")
	trial := f.Duration("trial", 0, "watch the flows for so long, and go back if the module fails or a bound is broken")
	maxRTT := f.String("max-rtt-increase", "", "bound of the trial: the round-trip time of the flows may rise by so much, such as 50%")
	maxDrop := f.String("max-goodput-drop", "", "bound of the trial: the goodput of the flows may fall by so much, such as 20%")
	shadow := f.Duration("shadow", 0, "first show for so long the events of all flows to the module, and what it would have decided (cong and pace)")
	dry := f.Bool("dry-run", false, "change nothing: only say how many flows would change")
	to := f.String("to", "", "upgrade the module in place: go on with the code of this file")
	sum := f.String("sha256", "", "with --to: the checksum that the file must have, in hexadecimal (default: that of the file now)")
	return simple(c, cmd, control.OpSwap, func(argv []string) (any, error) {
		if *percent < 1 || *percent > 100 {
			return nil, fmt.Errorf("--percent: %d is not within 1…100", *percent)
		}
		r := control.SwapRequest{Kind: argv[0], Name: argv[1], NewOnly: *newOnly, Percent: *percent % 100, DryRun: *dry, TrialNS: int64(*trial), ShadowNS: int64(*shadow)}
		var err error
		if r.To, r.ToSHA256, err = upgradeFile(*to, *sum); err != nil {
			return nil, err
		}
		if r.MaxRTTIncreasePercent, err = parsePercent(*maxRTT); err != nil {
			return nil, fmt.Errorf("--max-rtt-increase: %w", err)
		}
		if r.MaxGoodputDropPercent, err = parsePercent(*maxDrop); err != nil {
			return nil, fmt.Errorf("--max-goodput-drop: %w", err)
		}
		if r.Local, r.LocalPort, err = parseSelector(*local); err != nil {
			return nil, fmt.Errorf("--local: %w", err)
		}
		if r.Peer, r.PeerPort, err = parseSelector(*peer); err != nil {
			return nil, fmt.Errorf("--peer: %w", err)
		}
		return r, nil
	}, control.WriteSwap)
}

// upgradeFile returns the absolute path of the file of --to, and its checksum unless that is given.
func upgradeFile(file, sum string) (path, sha string, err error) {
	if file == "" {
		if sum != "" {
			return "", "", errors.New("--sha256 is for --to")
		}
		return "", "", nil
	}
	if path, err = filepath.Abs(file); err != nil {
		return "", "", fmt.Errorf("--to: %w", err)
	}
	if sum == "" {
		f, err := os.Open(path)
		if err != nil {
			return "", "", fmt.Errorf("--to: %w", err)
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return "", "", fmt.Errorf("--to: %w", err)
		}
		sum = hex.EncodeToString(h.Sum(nil))
	}
	return path, strings.ToLower(sum), nil
}

func (c *ctl) set() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set KIND NAME PARAMETER=VALUE...",
		Short: "Change parameters of a module, while it carries traffic",
		Long: `Change parameters of a module, while it carries traffic: a fresh instance of the same code takes its flows over. If the module refuses
a value, nothing has changed. PARAMETER= restores the default. "fastpath ctl modules -v" shows the parameters. The configuration is not
changed.`,
		Example: `  fastpath ctl set cong cdg backoff_beta=800`,
		Args:    cobra.MinimumNArgs(3),
	}
	return simple(c, cmd, control.OpSet, func(argv []string) (any, error) {
		r := control.SetRequest{Kind: argv[0], Name: argv[1], Params: map[string]string{}}
		for _, a := range argv[2:] {
			k, v, ok := strings.Cut(a, "=")
			if !ok || k == "" {
				return nil, fmt.Errorf("%q is not PARAMETER=VALUE", a)
			}
			r.Params[k] = v
		}
		return r, nil
	}, control.WriteSet)
}

// parsePercent reads "50%" or "50"; nothing is 0.
func parsePercent(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is no percentage above 0", s)
	}
	return n, nil
}

func (c *ctl) stat() *cobra.Command {
	cmd := &cobra.Command{Use: "stat", Short: "Show memory, ports, workers with their turn times, and counters", Args: cobra.NoArgs}
	all := cmd.Flags().Bool("all", false, "show counters that are zero, too")
	return simple(c, cmd, control.OpStat, nil, func(w io.Writer, r *control.StatReply) error { return control.WriteStat(w, r, *all) })
}

func (c *ctl) info() *cobra.Command {
	cmd := &cobra.Command{Use: "info", Short: "Show the daemon's version, process, configuration and ports with their links", Args: cobra.NoArgs}
	return simple(c, cmd, control.OpInfo, nil, func(w io.Writer, r *control.Info) error {
		fmt.Fprintf(w, "fastpath %s, pid %d, configuration %s, since %s\n", r.Version, r.PID, r.Config,
			time.Unix(0, r.StartUnixNS).UTC().Format(time.RFC3339))
		return control.WritePorts(w, r.Ports)
	})
}

func (c *ctl) events() *cobra.Command {
	cmd := &cobra.Command{Use: "events", Short: "Show what happened: swaps, crashes, restarts, memory pressure", Args: cobra.NoArgs}
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object per line")
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with new events until interrupted")
	last := cmd.Flags().IntP("last", "n", 0, "show only so many old events (default: all that are kept)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		return c.stream(cmd.Context(), control.OpEvents, control.EventsRequest{Follow: *follow, Last: *last}, func(item json.RawMessage) error {
			if *asJSON {
				_, err := fmt.Fprintf(out, "%s\n", item)
				return err
			}
			var e control.Event
			if err := json.Unmarshal(item, &e); err != nil {
				return err
			}
			return control.WriteEvent(out, &e)
		}, nil)
	}
	return cmd
}
