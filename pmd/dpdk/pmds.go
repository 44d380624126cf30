//go:build dpdk

package dpdk

import "fmt"

// traits are what DPDK does not tell about a PMD.
type traits struct {
	copies    bool // a transmitted frame is copied or discarded in the burst, and its mbuf free again
	ringless  bool // no buffers wait in a receive ring
	cuts4     bool // its segmentation, in software, knows only IPv4
	tellsFull bool // before it refuses a frame for want of descriptors it frees what it has sent
	anyMAC    bool // receives whatever its peer sends, so that an address that it does not take can be the port's nonetheless
	burst     int  // most frames per burst, so that a call stays within some 20 µs
}

var pmds = map[string]traits{
	"net_af_packet":   {copies: true, ringless: true, burst: 8},
	"net_tap":         {copies: true, cuts4: true, burst: 8},
	"net_pcap":        {copies: true, ringless: true, burst: 8},
	"net_null":        {copies: true, ringless: true, burst: 64},
	"net_virtio":      {tellsFull: true, burst: 64},
	"net_virtio_user": {tellsFull: true, anyMAC: true, burst: 64}, // it takes a MAC only with mac= in vdev
	"net_vhost":       {copies: true, ringless: true, anyMAC: true, burst: 32},
}

// moreQueues says how a device of a PMD gets n queue pairs.
func moreQueues(driver string, n int) string {
	switch driver {
	case "net_af_packet":
		return fmt.Sprintf("; add qpairs=%d to vdev", n)
	case "net_virtio_user", "net_vhost":
		return fmt.Sprintf("; add queues=%d to vdev, and at the other end", n)
	case "net_virtio":
		return fmt.Sprintf("; set queues, or give the card more: QEMU's -netdev …,queues=%d -device …,mq=on, libvirt's <driver queues='%d'/>", n, n)
	}
	return "; set queues to that"
}

func traitsOf(driver string) traits {
	if t, ok := pmds[driver]; ok {
		return t
	}
	return traits{burst: 64}
}
