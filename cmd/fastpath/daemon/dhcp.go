package daemon

import (
	"context"
	"os"

	"github.com/fastpath-tcp/fastpath/stack/dhcp"
)

// startDHCP starts the clients of the ports that want their address from a server. It does not wait for one. When the daemon stops they
// give the addresses back.
func (d *Daemon) startDHCP(context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		d.log.Warn("DHCP servers do not learn a name of this host", "err", err)
	}
	for _, p := range d.ports {
		if !p.conf.DHCP {
			continue
		}
		log := portLog(d.log, p.conf.Name)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := dhcp.Run(ctx, dhcp.Config{Stack: p.stack, HostName: host, Log: log}); err != nil {
				log.Error("DHCP", "err", err)
			}
		}()
		d.onStop(func() error {
			cancel()
			<-ended
			return nil
		})
	}
	return nil
}
