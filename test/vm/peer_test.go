package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fastpath-tcp/fastpath/cmd/fastpath/apps"
	"github.com/fastpath-tcp/fastpath/stack/wire"
)

// ping sends ICMP echo requests from the client until one is answered, and looks at what its kernel has learned by ARP.
func (m *machine) ping() {
	m.Helper()
	var c *net.IPConn
	m.must(m.client.Do(func() (err error) {
		c, err = net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: net.ParseIP(serverIP)})
		return err
	}))
	defer c.Close()
	const id = 0x4650
	var seq uint16
	m.eventually(func() error {
		seq++
		request := binary.BigEndian.AppendUint16([]byte{wire.ICMPEcho, 0, 0, 0}, id)
		request = append(binary.BigEndian.AppendUint16(request, seq), bytes.Repeat([]byte("fastpath"), 16)...)
		binary.BigEndian.PutUint16(request[2:], wire.Fold(wire.Sum(request, 0)))
		if _, err := c.Write(request); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		reply := make([]byte, 2048)
		for { // an answer to an earlier request may be late
			n, _, err := c.ReadFrom(reply) // strips the IP header
			if err != nil {
				return err
			}
			if bytes.Equal(reply[4:n], request[4:]) && reply[0] == wire.ICMPEchoReply && wire.Fold(wire.Sum(reply[:n], 0)) == 0 {
				return nil
			}
		}
	})
	m.must(m.client.Do(func() error {
		neighbours, err := netlink.NeighList(0, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.IP.String() == serverIP && n.HardwareAddr.String() == serverMAC {
				return nil
			}
		}
		return fmt.Errorf("%s is not at %s: %v", serverIP, serverMAC, neighbours)
	}))
}

// web is a client of the daemon's HTTP application. Without keepAlive each request has a connection of its own.
func (m *machine) web(keepAlive bool) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: !keepAlive,
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			err = m.client.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return c, err
		},
	}}
}

// get downloads generated content and checks it. got, if not nil, follows the number of bytes.
func get(c *http.Client, seed uint64, size int64, got *atomic.Int64) error {
	r, err := c.Get(fmt.Sprintf("http://%s/blob?size=%d&seed=%d", serverIP, size, seed))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	h, n := sha256.New(), int64(0)
	buf := make([]byte, 64<<10)
	for {
		k, err := r.Body.Read(buf)
		h.Write(buf[:k])
		n += int64(k)
		if got != nil {
			got.Store(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d bytes of %d: %w", n, size, err)
		}
	}
	if sum, want := hex.EncodeToString(h.Sum(nil)), apps.ContentSHA256(seed, size); n != size || sum != want {
		return fmt.Errorf("got %d bytes with SHA-256 %s, want %d with %s", n, sum, size, want)
	}
	return nil
}

// put uploads generated content and checks what the daemon says of it.
func put(c *http.Client, seed uint64, size int64) error {
	r, err := http.NewRequest(http.MethodPut, "http://"+serverIP+"/upload", apps.ContentReader(seed, size))
	if err != nil {
		return err
	}
	r.ContentLength = size
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var u apps.Uploaded
	if err := json.NewDecoder(answer.Body).Decode(&u); err != nil {
		return err
	}
	if want := apps.ContentSHA256(seed, size); u.Bytes != size || u.SHA256 != want {
		return fmt.Errorf("the daemon got %d bytes with SHA-256 %s, want %d with %s", u.Bytes, u.SHA256, size, want)
	}
	return nil
}
