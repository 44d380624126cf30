package daemon

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// notifyManager tells the service manager of a state of this process, as sd_notify(3) does; without one, which NOTIFY_SOCKET would name, it
// does nothing. states are lines such as "READY=1".
func notifyManager(states ...string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	// A path that begins with @ is an abstract name, for package net as well.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("service manager: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(strings.Join(states, "\n"))); err != nil {
		return fmt.Errorf("service manager: %w", err)
	}
	return nil
}

// notify is notifyManager for a daemon, which goes on if nobody listens.
func (d *Daemon) notify(states ...string) {
	if err := notifyManager(states...); err != nil {
		d.log.Warn("not told: "+strings.Join(states, " "), "err", err)
	}
}
