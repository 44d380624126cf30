package lang

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/stack/wire"
)

const whole = `// A script with one of everything.
--tolerance_usecs=500
--define=CC="reno"
` + "`sysctl -q net.ipv4.tcp_sack=1`" + `
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 setsockopt(3, SOL_SOCKET, SO_LINGER, {onoff=1, linger=0}, 8) = 0
+.1 < S 0:0(0) win 1000 <mss 1000,sackOK,TS val 5 ecr 0,nop,wscale 7> # comment
+0~+.01 > [ect0] SE. 0:0(0) ack 1 urg 3 <...>
0.5~0.75 > P.5 1:11(10) ack 1 <nop,nop,sack 1:2 3:4>
* > - 1:1(0)
/* another
   comment */
+0...0.2 read(4, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)
+0 < 80>8080 F. 1:1(0) ack 1 win 5 <FO abcd1234,nop,nop>
+0 < icmp unreachable frag_needed mtu 1200 [1:1001(1000)]
+0 < (tos 0x10) udp (17)
+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}], 1, 0) = 1
+0 sendmsg(4, {msg_name(...)=..., msg_iov(2)=[{..., 10}, {..., 0x20}], msg_flags=0}, 0) = 42
+0 write(4, "ab\r\n" "c", 5) = 5
+0 > . 1:1(0) ack 1 <ECN e1b 1 ceb 2 e0b 3,nop>
+0 setsockopt(4, SOL_TCP, TCP_CONGESTION, CC, 4) = 0
+0 %{ assert tcpi_snd_cwnd == 10 }%
`

func TestParse(t *testing.T) {
	s, err := Parse(whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Options) != 2 || s.Options[0] != (Option{2, "tolerance_usecs", "500"}) {
		t.Errorf("options %v", s.Options)
	}
	e := s.Events
	if len(e) != 17 {
		t.Fatalf("%d events", len(e))
	}
	if e[0].Command == "" || e[1].Kind != Absolute || e[1].Call.Name != "socket" || e[1].Call.Args[0].Kind != Ellipsis {
		t.Errorf("%+v, %+v", e[0], e[1])
	}
	if l := e[2].Call.Args[3]; l.Field("onoff").Int != 1 || l.Field("linger").Int != 0 {
		t.Errorf("linger %v", l)
	}
	if p := e[3].Packet; !p.In || p.Flags != wire.SYN || p.Win != 1000 || FormatOptions(p.Opts) != "<mss 1000,sackOK,TS val 5 ecr 0,nop,wscale 7>" || e[3].At != 1e5 {
		t.Errorf("%+v at %d", p, e[3].At)
	}
	if p := e[4].Packet; p.In || !p.AnyOpts || p.ECN != ECT0 || p.Flags != wire.SYN|wire.ECE|wire.ACK || p.Urg != 3 || e[4].Kind != RelativeRange || e[4].Until != 1e4 {
		t.Errorf("%+v in %+v", p, e[4])
	}
	if p := e[5].Packet; e[5].Kind != AbsoluteRange || p.ACE != 5 || p.Flags != wire.PSH|wire.ACK|wire.AE|wire.ECE || !reflect.DeepEqual(p.Opts[2].Blocks, [][2]uint32{{1, 2}, {3, 4}}) {
		t.Errorf("%+v in %+v", p, e[5])
	}
	if e[6].Kind != Any || e[6].Packet.Flags != 0 {
		t.Errorf("%+v", e[6])
	}
	if c := e[7].Call; !c.Blocking || c.End != 2e5 || c.Errno != "EAGAIN" || c.Result.Int != -1 {
		t.Errorf("%+v", c)
	}
	if p := e[8].Packet; p.SrcPort != 80 || p.DstPort != 8080 || string(p.Opts[0].Data) != "\xab\xcd\x12\x34" {
		t.Errorf("%+v", p)
	}
	if p := e[9].Packet; p.Proto != ICMP || p.MTU != 1200 || p.EchoLen != 1000 || p.ICMPCode != "frag_needed" {
		t.Errorf("%+v", p)
	}
	if p := e[10].Packet; p.Proto != UDP || p.TOS != 16 || p.Len != 17 {
		t.Errorf("%+v", p)
	}
	if f := e[11].Call.Args[0].List[0]; f.String() != "{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}" {
		t.Errorf("%v", f)
	}
	if m := e[12].Call.Args[1].Field("msg_iov"); m.String() != "[{..., 10}, {..., 32}]" {
		t.Errorf("%v", m)
	}
	if w := e[13].Call.Args[1]; w.Text != "ab\r\nc" {
		t.Errorf("%q", w.Text)
	}
	if o := e[14].Packet.Opts[0]; o.Kind != OptAccECN1 || string(o.Data) != "\x00\x00\x01\x00\x00\x02\x00\x00\x03" {
		t.Errorf("%+v", o)
	}
	if a := e[15].Call.Args[3]; a.Kind != String || a.Text != "reno" {
		t.Errorf("a defined word is %v", a)
	}
	if !e[16].IsCode() || strings.TrimSpace(e[16].Code) != "assert tcpi_snd_cwnd == 10" {
		t.Errorf("%+v", e[16])
	}
}

// TestErrors: each mistake is found in its line.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		text, want  string
		unsupported bool
	}{
		{"0 < S 0:1(0) win 1", "disagree", false},
		{"0 < S 0:0(0) win 70000", "out of range", false},
		{"0 < X 0:0(0)", "unknown flag", false},
		{"0 < S 0:0(0) <mss 1000,nop>", "multiple of 4", false},
		{"0 < S 0:0(0) <frob 3>", "frob", true},
		{"0 < S 0:0(0) <...>", "expected", false},
		{"* < S 0:0(0)", "only a packet that is expected", false},
		{"+.2~+.1 > S 0:0(0)", "backwards", false},
		{"0 read(3, ..., 10", "want \")\"", false},
		{"0 read(3, ..., 10) 10", "want \"=\"", false},
		{"0 < gre: S 0:0(0)", "encapsulation", true},
		{"0 %{ assert 1", "without", false},
		{"0 `sysctl", "without an end", false},
		{"0 /* ", "without an end", false},
		{"hello", "want a time", false},
		{"0 > . 1:1(0) ack 1 <FO abc,nop>", "cookie", false},
	} {
		_, err := Parse("\n\n"+tt.text, nil)
		e, ok := err.(*Error)
		if !ok || !strings.Contains(e.Text, tt.want) || e.Unsupported != tt.unsupported || e.Line != 3 {
			t.Errorf("%q: %v", tt.text, err)
		}
	}
}

// FuzzParse: no text makes the parser panic or loop, and what it took for options is what goes over the wire.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text, nil)
		if err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("%T", err)
			}
			return
		}
		for _, e := range s.Events {
			if e.Packet == nil {
				continue
			}
			b := AppendOptions(nil, e.Packet.Opts)
			back, ok := ParseOptions(b)
			if !ok || string(AppendOptions(nil, back)) != string(b) {
				t.Fatalf("options %s came back as %s", FormatOptions(e.Packet.Opts), FormatOptions(back))
			}
		}
	})
}
