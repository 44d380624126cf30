package dhcp

import (
	"context"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// wait waits for a message, for the client's deadline, or for the end of ctx.
func (r *runner) wait(ctx context.Context, buf []byte) (int, error) {
	var limit time.Time
	if at := r.client.Deadline(); at != plugins.Never {
		limit = time.Now().Add(at.Sub(r.Stack.Clock().Now()))
	}
	if err := r.conn.SetReadDeadline(limit); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil { // it ended before, and its wake-up came before the deadline was set
		return 0, err
	}
	n, _, err := r.conn.ReadFromUDPAddrPort(buf)
	return n, err
}
