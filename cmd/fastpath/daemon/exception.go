package daemon

import (
	"net"
	"slices"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/control"
	"github.com/fastpath-tcp/fastpath/pmd/tap"
	"github.com/fastpath-tcp/fastpath/stack"
)

// openException makes the TAP device over which the kernel shares a port; nil if there is to be none. The device has the port's Ethernet
// address. Until a stack has taken it, stopping closes it.
func (d *Daemon) openException(p *port) (*stack.Exception, error) {
	c := p.conf
	if c.Exception == "" {
		return nil, nil
	}
	info := p.trace.Info()
	t, err := tap.Open(tap.Config{
		Name: c.Exception, MTU: info.MTU, HostMAC: slices.Clone(net.HardwareAddr(info.MAC)), HostAddrs: c.ExceptionAddresses,
		NoOffloads: true, NoTxCsum: true, PoolSize: exceptionBuffers,
	})
	if err != nil {
		return nil, err
	}
	d.onStop(func() error {
		if p.stack != nil {
			return nil // closed with its stack
		}
		return t.Close()
	})
	d.log.Info("exception path", "port", c.Name, "device", c.Exception, "addresses", c.ExceptionAddresses, "rate", c.ExceptionRate)
	return &stack.Exception{Port: t, Rate: c.ExceptionRate, Unclaimed: c.ExceptionUnclaimed}, nil
}

// exceptionBuffers is the number of buffers for frames from the kernel.
const exceptionBuffers = 512

// countException adds the counters of a port's exception path.
func countException(r *control.StatReply, p *port) {
	s, ok := p.stack.ExceptionStats()
	if !ok {
		return
	}
	for _, c := range []struct {
		name  string
		value uint64
	}{
		{"to_kernel", s.ToKernel}, {"to_kernel_bytes", s.ToKernelBytes}, {"from_kernel", s.FromKernel}, {"from_kernel_bytes", s.FromKernelBytes},
		{"limited", s.Limited}, {"full", s.Full}, {"errors", s.Errors},
	} {
		r.Counters["exception_"+c.name] += c.value
	}
}
