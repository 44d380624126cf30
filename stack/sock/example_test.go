package sock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/fastpath-tcp/fastpath/pmd/memlink"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

// twoHosts are stacks at 10.0.0.1 and 10.0.0.2, joined in memory. On a network card the port comes from a package below pmd.
func twoHosts() (a, b *stack.Stack, stop func()) {
	pa, pb, err := memlink.New(memlink.Config{})
	if err != nil {
		log.Fatal(err)
	}
	a = must(stack.New(stack.Config{Port: pa, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}))
	b = must(stack.New(stack.Config{Port: pb, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}))
	return a, b, func() { a.Close(); b.Close() }
}

func Example() {
	client, server, stop := twoHosts()
	defer stop()
	ln, err := sock.Listen(server, "tcp", ":80")
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s", r.Host) }))

	d := sock.Dialer{Stack: client}
	c := http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
	resp, err := c.Get("http://10.0.0.2/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(body))
	// Output: 200 OK hello from 10.0.0.2
}

// Errors are those of package net.
func ExampleDialer() {
	client, _, stop := twoHosts()
	defer stop()
	d := sock.Dialer{Stack: client}
	_, err := d.Dial("tcp", "10.0.0.2:81")
	fmt.Println(err, errors.Is(err, syscall.ECONNREFUSED))
	// Output: dial tcp 10.0.0.2:81: connect: connection refused true
}

// Control decides what a connection begins with.
func ExampleDialer_control() {
	client, server, stop := twoHosts()
	defer stop()
	ln := must(sock.Listen(server, "tcp", ":80"))
	defer ln.Close()
	d := sock.Dialer{Stack: client, Control: func(_, _ string, o *sock.Options) error {
		o.Congestion, o.MaxPacingRate = "bbr", 10<<20
		return nil
	}}
	c := must(d.DialContext(context.Background(), "tcp", "10.0.0.2:80")).(*sock.Conn)
	defer c.Close()
	i := must(c.Info())
	fmt.Println(i.State, i.Cong, i.MaxRate)
	c.SetCongestion("cubic") // while it runs
	fmt.Println(must(c.Info()).Cong)
	// Output:
	// ESTAB bbr 10485760
	// cubic
}

// Data is read and sent in the memory of the streams.
func ExampleConn_ReadBuffers() {
	client, server, stop := twoHosts()
	defer stop()
	ln := must(sock.Listen(server, "tcp", ":80"))
	go func() {
		c := must(ln.AcceptConn())
		defer c.Close()
		bufs := make([]sock.Buffer, 8)
		for {
			n, err := c.ReadBuffers(bufs)
			for i := range bufs[:n] {
				for data := bufs[i].Data; len(data) > 0; {
					p, err := c.Reserve(len(data)) // what there is room for
					if err != nil {
						return
					}
					copy(p, bytes.ToUpper(data[:len(p)]))
					c.Commit(len(p))
					data = data[len(p):]
				}
				bufs[i].Release()
			}
			if err != nil {
				return
			}
		}
	}()
	d := sock.Dialer{Stack: client}
	c := must(d.Dial("tcp", "10.0.0.2:80"))
	defer c.Close()
	fmt.Fprint(c, "in place")
	c.(*sock.Conn).CloseWrite()
	answer, _ := io.ReadAll(c)
	fmt.Println(string(answer))
	// Output: IN PLACE
}

// Many connections are accepted with one call.
func ExampleListener_AcceptBatch() {
	client, server, stop := twoHosts()
	defer stop()
	ln := must(sock.Listen(server, "tcp", ":80"))
	d := sock.Dialer{Stack: client}
	var dialled []net.Conn
	for range 10 {
		dialled = append(dialled, must(d.Dial("tcp", "10.0.0.2:80")))
	}
	accepted := 0
	batch := make([]*sock.Conn, 64)
	for accepted < 10 {
		n, err := ln.AcceptBatch(batch)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range batch[:n] {
			c.Close()
		}
		accepted += n
	}
	fmt.Println(accepted)
	for _, c := range dialled {
		c.Close()
	}
	// Output: 10
}
