package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/fastpath-tcp/fastpath/conf"
	"github.com/fastpath-tcp/fastpath/pmd"
	"github.com/fastpath-tcp/fastpath/pmd/vlan"
)

// vlanPorts are ports of a device with VLANs that wait for their turn, by name.
type vlanPorts map[string]pmd.Port

// close closes those that no stack will have.
func (v vlanPorts) close() error {
	var errs []error
	for _, p := range v {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// openDevice opens a port of its own, or the device with all its VLANs when the first of them is asked for.
func (d *Daemon) openDevice(ctx context.Context, c *conf.Port, links map[string]pmd.Port, vlans vlanPorts) (pmd.Port, error) {
	if p, ok := vlans[c.Name]; ok {
		delete(vlans, c.Name)
		return p, nil
	}
	root := c
	var ids []vlan.Config
	for i := range d.conf.Ports {
		o := &d.conf.Ports[i]
		if o.Name == c.Parent {
			root = o
		}
		if o.Parent == c.Name || c.Parent != "" && o.Parent == c.Parent {
			ids = append(ids, vlan.Config{Name: o.Name, ID: uint16(o.VLAN)})
		}
	}
	device, err := d.openPort(ctx, root, links)
	if err != nil || len(ids) == 0 {
		return device, err
	}
	ports, err := vlan.New(device, append([]vlan.Config{{Name: root.Name, ID: vlan.Untagged}}, ids...))
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	for _, p := range ports {
		vlans[p.Info().Name] = p
	}
	p, ok := vlans[c.Name]
	if !ok {
		return nil, fmt.Errorf("VLAN %d of %q was not made", c.VLAN, root.Name)
	}
	delete(vlans, c.Name)
	return p, nil
}
