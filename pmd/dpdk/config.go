package dpdk

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Config describes a port.
type Config struct {
	Name    string           // in Info and errors; default: the device's name
	Vdev    string           // virtual device and its arguments, "net_af_packet0,iface=veth1"; or
	Device  string           // PCI address, "0000:00:03.0", optionally with arguments after a comma
	MAC     net.HardwareAddr // nil: the device's own
	MTU     int              // largest IP packet in bytes; 0: the device's present one
	Queues  int              // queue pairs; default 1
	Ring    int              // descriptors per receive and per transmit ring; 0: the PMD's choice
	Buffers int              // per queue; default 4096
	BufSize int              // bytes of a buffer, headroom included, at most 65535; 0: enough for the MTU
	NoTSO   bool             // have segments cut before frames are handed to the port
	Promisc bool             // receive frames to any MAC address

	EAL EAL
}

// Values of EAL.Hugepages.
const (
	HugepagesAuto    = "auto" // use them if enough are free
	HugepagesRequire = "require"
	HugepagesOff     = "off" // --no-huge
)

// EAL is what the environment abstraction layer is started with by the first Open of the process. Later ones ignore it.
type EAL struct {
	Hugepages  string   // "": HugepagesAuto
	FilePrefix string   // names the process in DPDK's logs and memory files
	Memory     int64    // bytes; 0: 256 MB without hugepages, and as needed with them
	PCI        []string // PCI devices that the process will open; default: the first port's, if it is one
	Args       []string // further arguments
}

// Error says what DPDK refused.
type Error struct {
	Port    string
	Setting string // the setting to look at, as in Config, with its value: `vdev = "net_tap0"`
	Op      string // what was tried
	Err     error
	Log     []string // what DPDK logged meanwhile
}

func (e *Error) Error() string {
	var s strings.Builder
	s.WriteString("dpdk: ")
	if e.Port != "" {
		fmt.Fprintf(&s, "port %s: ", e.Port)
	}
	s.WriteString(e.Op)
	if e.Setting != "" {
		fmt.Fprintf(&s, " (%s)", e.Setting)
	}
	if e.Err != nil {
		fmt.Fprintf(&s, ": %v", e.Err)
	}
	for _, l := range e.Log {
		fmt.Fprintf(&s, "\n  DPDK: %s", l)
	}
	return s.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Errors of Open.
var (
	ErrNotBuilt = errors.New("dpdk: this program was built without DPDK; build it with -tags dpdk where libdpdk is installed")
	ErrShutdown = errors.New("dpdk: EAL was shut down")
)

const (
	defaultBuffers = 4096
	maxBuffers     = 1 << 22
	headroom       = 128 // RTE_PKTMBUF_HEADROOM; port.go checks it
	ethOverhead    = 18  // Ethernet header and VLAN tag
	defaultBufSize = 2048 + headroom
)

// device is the part of the configuration that names the device.
type device struct {
	bus, name, args string
}

// listens returns the path of the socket that the device makes if it is a net_virtio_user in the role of the server, else "".
func (d *device) listens() string {
	if path, makes := d.socket(); makes && d.is("net_virtio_user") {
		return path
	}
	return ""
}

// parse checks the settings that can be checked without DPDK and fills in defaults.
func (c *Config) parse() (device, error) {
	var d device
	spec := c.Vdev
	switch {
	case c.Vdev != "" && c.Device != "":
		return d, &Error{Port: c.Name, Op: "both a virtual and a PCI device are given", Setting: quoted("vdev", c.Vdev) + ", " + quoted("device", c.Device)}
	case c.Vdev != "":
		d.bus = "vdev"
	case c.Device != "":
		d.bus, spec = "pci", c.Device
	default:
		return d, &Error{Port: c.Name, Op: "no device is given", Setting: "vdev or device"}
	}
	d.name, d.args, _ = strings.Cut(spec, ",")
	if d.name == "" {
		return d, &Error{Port: c.Name, Op: "the device has no name", Setting: quoted(c.deviceSetting(), spec)}
	}
	if c.Name == "" {
		c.Name = d.name
	}
	if strings.HasPrefix(d.name, "net_memif") { // as EAL picks the PMD of a virtual device
		return d, &Error{Port: c.Name, Setting: quoted(c.deviceSetting(), spec), Err: syscall.ENOTSUP,
			Op: "net_memif is refused, for it can crash the process: when a connection ends, DPDK frees its control channel and " +
				"unmaps its memory while other threads use them; net_virtio_user or net_vhost can be used instead"}
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	if c.Buffers == 0 {
		c.Buffers = defaultBuffers
	}
	for _, v := range []struct {
		setting     string
		n, min, max int
	}{
		{"mtu", c.MTU, 0, 65535 - ethOverhead - headroom},
		{"queues", c.Queues, 1, 1024},
		{"ring", c.Ring, 0, 32768},
		{"buffers", c.Buffers, 1, maxBuffers},
		{"buf_size", c.BufSize, 0, 65535},
	} {
		if v.n < v.min || v.n > v.max {
			return d, &Error{Port: c.Name, Setting: fmt.Sprintf("%s = %d", v.setting, v.n), Op: fmt.Sprintf("the value is not between %d and %d", v.min, v.max)}
		}
	}
	if c.MAC != nil && (len(c.MAC) != 6 || c.MAC[0]&1 != 0) {
		return d, &Error{Port: c.Name, Setting: quoted("mac", c.MAC.String()), Op: "this is not a unicast Ethernet address"}
	}
	return d, nil
}

// deviceSetting is the name of the setting that names the device.
func (c *Config) deviceSetting() string {
	if c.Vdev != "" {
		return "vdev"
	}
	return "device"
}

func (c *Config) deviceValue() string { return quoted(c.deviceSetting(), c.Vdev+c.Device) }

func quoted(setting, value string) string { return fmt.Sprintf("%s = %q", setting, value) }
