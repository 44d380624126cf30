package dhcp

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"

	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// Config describes a client that drives a stack.
type Config struct {
	Stack    *stack.Stack // made with Config.Dynamic
	HostName string       // optional: servers may enter it into DNS
	Log      *slog.Logger // default: none
	// Changed, if set, is called after a lease has been taken up, and with nil after it was lost.
	Changed func(*Lease)
}

// Run asks for an address, keeps it, and gives it back when ctx ends. It returns nil then, or the error of a stack that was closed.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	info := cfg.Stack.Port().Info()
	r := &runner{Config: cfg, log: cfg.Log.With("port", info.Name)}
	var err error
	if r.conn, err = sock.ListenUDP(cfg.Stack, "udp4", netip.AddrPortFrom(netip.IPv4Unspecified(), ClientPort)); err != nil {
		return err
	}
	defer r.conn.Close()
	// Reading wakes when ctx ends: see wait.
	defer context.AfterFunc(ctx, func() { r.conn.SetReadDeadline(past) })() //nolint:errcheck // of a socket that is closed already
	r.client = NewClient(ClientConfig{
		MAC: info.MAC, HostName: cfg.HostName, MTU: info.MTU, Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}, cfg.Stack.Clock().Now())
	return r.loop(ctx)
}

type runner struct {
	Config
	log    *slog.Logger
	conn   *sock.UDPConn
	client *Client
	bound  *stack.Binding
}

func (r *runner) loop(ctx context.Context) error {
	buf := make([]byte, 65536)
	for {
		if err := r.act(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		n, err := r.wait(ctx, buf)
		now := r.Stack.Clock().Now()
		switch {
		case ctx.Err() != nil:
			r.client.Stop()
			return r.act(context.WithoutCancel(ctx))
		case err == nil:
			if err := r.client.Input(now, buf[:n]); err != nil {
				r.log.Debug("message ignored", "err", err)
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.client.Timer(now)
		case errors.Is(err, net.ErrClosed):
			return err
		}
	}
}

// act does what the client wants.
func (r *runner) act(ctx context.Context) error {
	for {
		a, ok := r.client.Next()
		if !ok {
			return nil
		}
		switch {
		case a.Send != nil:
			if _, err := r.conn.WriteToUDPAddrPort(a.Send.Data, netip.AddrPortFrom(a.Send.Dst, ServerPort)); err != nil {
				r.log.Warn("DHCP message not sent", "to", a.Send.Dst, "err", err)
			} else if err := r.conn.Flush(); err != nil { // with the address that we still have
				return err
			}
		case a.Check.IsValid():
			conflict, err := r.Stack.InUse(ctx, a.Check)
			if err != nil {
				return err
			}
			if conflict {
				r.log.Warn("another host has the address that the server offers", "address", a.Check)
			}
			r.client.Checked(r.Stack.Clock().Now(), conflict)
		case a.Bind != nil:
			r.bind(a.Bind)
		case a.Lost != nil:
			r.lost()
		}
	}
}

func (r *runner) bind(l *Lease) {
	to := &stack.Binding{Addr: l.Addr, DNS: l.DNS}
	for _, x := range l.Routes {
		to.Routes = append(to.Routes, stack.Route{Prefix: x.To, Gateway: x.Via})
	}
	err := r.Stack.Readdress(r.bound, to)
	if err != nil && len(to.Routes) > 0 { // a router outside of the network is no reason to be without the address
		r.log.Warn("the routes of the lease are not used", "err", err)
		to.Routes = nil
		err = r.Stack.Readdress(r.bound, to)
	}
	if err != nil {
		r.log.Error("the lease is not used", "address", l.Addr, "err", err)
		return
	}
	if r.bound == nil || r.bound.Addr != to.Addr {
		r.log.Info("DHCP lease", "address", l.Addr, "server", l.Server, "routes", l.Routes, "dns", l.DNS)
	}
	r.bound = to
	if r.Changed != nil {
		r.Changed(l)
	}
}

func (r *runner) lost() {
	if r.bound == nil {
		return
	}
	r.log.Info("DHCP lease ended", "address", r.bound.Addr)
	if err := r.Stack.Readdress(r.bound, nil); err != nil {
		r.log.Error("the address stays", "err", err)
		return
	}
	r.bound = nil
	if r.Changed != nil {
		r.Changed(nil)
	}
}
