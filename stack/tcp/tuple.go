package tcp

import (
	"encoding/binary"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// Tuple names a connection from this end's point of view.
type Tuple struct {
	Local, Remote         wire.Addr
	LocalPort, RemotePort uint16
}

// LocalAddr and RemoteAddr give the ends as netip knows them.
func (t *Tuple) LocalAddr() netip.AddrPort {
	return netip.AddrPortFrom(t.Local.Netip(), t.LocalPort)
}

// RemoteAddr is the peer's address.
func (t *Tuple) RemoteAddr() netip.AddrPort {
	return netip.AddrPortFrom(t.Remote.Netip(), t.RemotePort)
}

// words packs the tuple into five words, for hashing.
func (t *Tuple) words() (a, b, c, d, e uint64) {
	a, b = binary.LittleEndian.Uint64(t.Local[:8]), binary.LittleEndian.Uint64(t.Local[8:])
	c, d = binary.LittleEndian.Uint64(t.Remote[:8]), binary.LittleEndian.Uint64(t.Remote[8:])
	return a, b, c, d, uint64(t.LocalPort)<<16 | uint64(t.RemotePort)
}
