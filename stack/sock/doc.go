// Package sock is the stack's programming interface: net.Conn, net.Listener and a dialer, with the semantics of package net.
//
//	ln, err := sock.Listen(st, "tcp", ":80") // for http.Serve
//	d := sock.Dialer{Stack: st}              // d.DialContext is for http.Transport
//	pc, err := sock.ListenPacket(st, "udp", ":53")
//	d.Resolver = sock.NewResolver(d, server) // for names
//
// # Like package net
//
// Conn has the methods of *net.TCPConn, UDPConn those of *net.UDPConn but for control messages, Listener those of *net.TCPListener, Dialer
// and ListenConfig the fields of net's that make sense here. A test runs the same operations against the kernel and compares results and errors. Errors are *net.OpError with the same fields;
// inside is a system call's error number (errors.Is finds syscall.ECONNREFUSED, ECONNRESET, EPIPE, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH,
// EADDRINUSE, EADDRNOTAVAIL), net.ErrClosed or os.ErrDeadlineExceeded. As in Linux, the error that ended a connection is returned once;
// later reads return io.EOF and later writes EPIPE. Nagle's algorithm is off and keepalive on, with 15 s, unless one says otherwise.
//
// What differs:
//
//   - There is no file descriptor, and so no SyscallConn and no File. Dialer.Control and ListenConfig.Control get an *Options instead.
//   - Names of hosts need a Resolver: that of NewResolver asks over the stack the servers that it is given, or those that DHCP and routers
//     name, and any *net.Resolver will do.
//   - Close never waits, whatever SetLinger says; data is still delivered in the background.
//   - Several connections may have the same local address and port if they go to different peers.
//   - A stack does not connect to itself.
//
// Host is several stacks as one: it dials over the one with the longest prefix, and listens on all.
//
// # For high speed
//
//   - Listener.AcceptBatch takes many connections with one call.
//   - Conn.ReadBuffers returns received data in the stream's memory, to be released by the caller; Conn.Reserve and Conn.Commit are the
//     same for what is sent. io.Copy uses both, through Conn.WriteTo and Conn.ReadFrom, and allocates nothing.
//   - Conn.SetCongestion, SetPacing, SetRecovery, SetMaxPacingRate and SetUserTimeout decide how one connection sends, from the beginning (Options) or
//     while it runs, SetTOS and SetTTL what its packets say to routers. SetCork, Flush, SetNotSentLowat and SetWriteBuffer decide when and how far ahead.
//   - Conn.Info has what `ss -tin` shows.
//   - UDPConn.SetDontFragment and UDPConn.PathMTU are for programs that look for the path's MTU themselves (RFC 8899).
//
// Reads and writes allocate nothing.
package sock
