package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

// settings are what command line, option lines and init commands say. The defaults are those of packetdrill.
type settings struct {
	v6                     bool
	local, remote, gateway netip.Addr
	prefix                 int
	bindPort, connectPort  uint16
	mtu                    int
	tolUsecs               int64
	tolPercent             float64
	tsTick                 int64 // µs per tick of the stack's timestamps; 0: their values are not compared
	exact                  bool  // times to the microsecond, timestamps, and nothing that is not expected
	cong                   string
	tcp                    tcp.Config
	defines                map[string]string
	warnings               []string
}

// linearTimeouts is Linux's default since 6.5 (tcp_syn_linear_timeouts), which others' scripts count on; ours set 0 where it matters.
const linearTimeouts = 4

func newSettings() *settings {
	return &settings{tcp: tcp.Config{RecvBuffer: 4 << 20, ECN: tcp.ECNPassive, SynLinear: linearTimeouts}, bindPort: 8080, connectPort: 8080, mtu: 1500, tolUsecs: 4000, tolPercent: 12.5, prefix: -1, defines: map[string]string{}}
}

// ignoredOptions have no meaning here: they choose where packetdrill runs and what it prints.
var ignoredOptions = map[string]bool{
	"init_scripts": true, "code_command": true, "code_format": true, "code_sockopt": true, "wire_client_dev": true, "wire_server_dev": true,
	"debug": true, "verbose": true, "speed": true, "strict_segments": true, "send_omit_free": true, "tcp_ts_ecr_scaled": true, "so_flags": true,
	"define": true, "mss": true,
}

// option takes one option. An error is a mistake of the user's, or an *lang.Error for what is not supported.
func (s *settings) option(name, value string) error {
	bad := func() error { return fmt.Errorf("--%s=%s: bad value", name, value) }
	num := func(min, max int) (int, error) {
		v, err := strconv.Atoi(value)
		if err != nil || v < min || v > max {
			return 0, bad()
		}
		return v, nil
	}
	var err error
	n := 0
	switch name {
	case "ip_version":
		s.v6 = value == "ipv6"
		if value == "ipv4-mapped-ipv6" {
			return &lang.Error{Text: "--ip_version=ipv4-mapped-ipv6", Unsupported: true}
		}
		if value != "ipv4" && value != "ipv6" {
			return bad()
		}
	case "local_ip":
		if s.local, err = netip.ParseAddr(value); err != nil {
			return bad()
		}
	case "gateway_ip":
		if s.gateway, err = netip.ParseAddr(value); err != nil {
			return bad()
		}
	case "remote_ip":
		addr, _, _ := strings.Cut(value, "/")
		if s.remote, err = netip.ParseAddr(addr); err != nil {
			return bad()
		}
	case "netmask_ip":
		m, err := netip.ParseAddr(value)
		if err != nil || !m.Is4() {
			return bad()
		}
		s.prefix = 0
		for _, b := range m.As4() {
			for ; b&0x80 != 0; b <<= 1 {
				s.prefix++
			}
		}
	case "bind_port":
		n, err = num(1, 65535)
		s.bindPort = uint16(n)
	case "connect_port":
		n, err = num(1, 65535)
		s.connectPort = uint16(n)
	case "mtu":
		s.mtu, err = num(68, 65535)
	case "tolerance_usecs":
		n, err = num(0, 1<<30)
		s.tolUsecs = int64(n)
	case "tolerance_percent":
		if s.tolPercent, err = strconv.ParseFloat(value, 64); err != nil || s.tolPercent < 0 {
			return bad()
		}
	case "tcp_ts_tick_usecs":
		n, err = num(0, 1e6)
		s.tsTick = int64(n)
	default:
		if !ignoredOptions[name] {
			return &lang.Error{Text: "--" + name, Unsupported: true}
		}
	}
	return err
}

// finish fills in what was not said.
func (s *settings) finish() error {
	def := func(a *netip.Addr, v4, v6 string) {
		if !a.IsValid() {
			*a = netip.MustParseAddr(map[bool]string{false: v4, true: v6}[s.v6])
		}
	}
	def(&s.local, "192.168.0.2", "fd3d:fa7b:d17d::2")
	def(&s.remote, "192.0.2.1", "2001:db8::1")
	def(&s.gateway, "192.168.0.1", "fd3d:fa7b:d17d::1")
	if s.prefix < 0 {
		s.prefix = map[bool]int{false: 16, true: 48}[s.v6]
	}
	for _, a := range []netip.Addr{s.local, s.remote, s.gateway} {
		if a.Is4() == s.v6 {
			return fmt.Errorf("address %v is of the wrong version", a)
		}
	}
	if s.exact {
		s.tolUsecs, s.tolPercent = 0, 0
		if s.tsTick == 0 {
			s.tsTick = 1000
		}
	}
	return nil
}
