package e2e

import (
	"bytes"
	"encoding/binary"
	"net"
	"time"

	stackwire "github.com/fastpath-tcp/fastpath/stack/wire"
)

// ping sends ICMP echo requests from the client's namespace until one is answered, which also resolves the addresses.
func (w *world) ping() {
	w.Helper()
	var c *net.IPConn
	w.must(w.client.Do(func() (err error) {
		c, err = net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: net.ParseIP(serverIP)})
		return err
	}))
	defer c.Close()
	const id = 0x4650
	payload := bytes.Repeat([]byte("fastpath"), 16)
	var seq uint16
	w.eventually(20*time.Second, func() error {
		seq++
		request := binary.BigEndian.AppendUint16([]byte{stackwire.ICMPEcho, 0, 0, 0}, id)
		request = append(binary.BigEndian.AppendUint16(request, seq), payload...)
		binary.BigEndian.PutUint16(request[2:], stackwire.Fold(stackwire.Sum(request, 0)))
		if _, err := c.Write(request); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return err
		}
		reply := make([]byte, 2048)
		for { // an answer to an earlier request may be late
			n, _, err := c.ReadFrom(reply) // strips the IP header
			if err != nil {
				return err
			}
			if bytes.Equal(reply[4:n], request[4:]) && reply[0] == stackwire.ICMPEchoReply && stackwire.Fold(stackwire.Sum(reply[:n], 0)) == 0 {
				return nil
			}
		}
	})
}
