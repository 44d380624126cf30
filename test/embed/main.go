// Command embed is the README's example: it serves files by HTTP over a stack of its own.
package main

import (
	"net/http"
	"net/netip"

	"github.com/fastpath-tcp/fastpath/pmd/afpacket"
	"github.com/fastpath-tcp/fastpath/stack"
	"github.com/fastpath-tcp/fastpath/stack/sock"
)

func main() {
	port := must(afpacket.Open(afpacket.Config{Interface: "veth1"}))
	st := must(stack.New(stack.Config{Port: port, Addrs: []netip.Prefix{netip.MustParsePrefix("10.7.0.1/24")}}))
	ln := must(sock.Listen(st, "tcp", ":80"))
	panic(http.Serve(ln, http.FileServer(http.Dir("."))))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
