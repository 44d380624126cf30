package tcp_test

import (
	"fmt"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
)

// PSH is on the last of the segments that leave together, and on a single one only where nothing is behind it (RFC 9293, MUST-61; as Linux
// does it with what it hands to the port in one).
func TestPush(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 60000)
	f.Write(2500) // a small segment follows
	f.Expect(". 1:1001(1000) ack 1")
	f.Expect(". 1001:2001(1000) ack 1")
	f.Expect("P. 2001:2501(500) ack 1")
	f.Write(3500) // it is held back now
	f.Expect(". 2501:3501(1000) ack 1")
	f.Expect(". 3501:4501(1000) ack 1")
	f.Expect("P. 4501:5501(1000) ack 1")
	f.Send(". 1:1(0) ack 5501")
	f.Expect("P. 5501:6001(500) ack 1")
	f.Send(". 1:1(0) ack 6001")
	p.Done()
	_, f = established(t, tcp.Config{}, "mss 1000", 60000)
	f.Write(30000)
	wantWindow(t, f)
}

// A flow whose segments leave one by one pushes when half of the largest window has gone without (Linux: forced_push), and what had PSH
// has it when it is sent again, whatever lies behind it.
func TestForcedPush(t *testing.T) {
	p, f := established(t, tcp.Config{}, "mss 1000", 10000)
	f.Write(40000)
	wantWindow(t, f)
	for i := range 6 {
		f.Send(fmt.Sprintf(". 1:1(0) ack %d win 10000", 1001+1000*i))
		flags := "."
		if i == 5 {
			flags = "P."
		}
		f.Expect(fmt.Sprintf("%s %d:%d(1000) ack 1", flags, 10001+1000*i, 11001+1000*i))
	}
	f.Send(". 1:1(0) ack 15001 win 1000")
	f.ExpectAfter(200*ms, 10*ms, "P. 15001:16001(1000) ack 1")
	f.Send(". 1:1(0) ack 16001 win 0")
	p.Done()
}
