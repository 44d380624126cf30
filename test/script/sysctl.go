package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
	"github.com/fastpath-tcp/fastpath/plugins/builtin"
	"github.com/fastpath-tcp/fastpath/stack/tcp"
	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

// Shell commands are not run. Those that set sysctls which the stack has a setting for are understood before the stack starts, some others
// are known to change nothing here, and the rest is not supported.

var (
	sysctlArg  = regexp.MustCompile(`^(?:/proc/sys/)?net[./](?:ipv4|ipv6|core)[./](?:route[./])?([a-z0-9_]+)=(.*)$`)
	harmless   = regexp.MustCompile(`^(ip tcp_metrics|ip -?6? ?route|ip route|ip link|ip addr|tc qdisc|tc |ethtool|modprobe|sync|true|nstat|echo |/tmp/sysctl_restore|rm |sleep 0*\.?0+$)`)
	arithmetic = regexp.MustCompile(`\$\(\(([0-9*+ ]+)\)\)`)
)

func unsupported(format string, args ...any) error {
	return &lang.Error{Text: fmt.Sprintf(format, args...), Unsupported: true}
}

// command takes a shell command. started says that the stack runs already: then nothing may change.
func (s *settings) command(text string, started bool) error {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for _, line := range regexp.MustCompile(`[\n;]|&&`).Split(text, -1) {
		if err := s.commandLine(strings.TrimSpace(line), started); err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) commandLine(line string, started bool) error {
	line, _, _ = strings.Cut(line, "||")
	line = regexp.MustCompile(`\s*(&>|2?>&?|>)\s*\S+`).ReplaceAllString(line, "")
	words := shellWords(line)
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 { // a comment
		words = words[:i]
	}
	if len(words) == 0 {
		return nil
	}
	switch {
	case strings.HasSuffix(words[0], "defaults.sh"):
		if !started {
			s.defaults()
		}
		return nil
	case words[0] == "sysctl" || strings.HasSuffix(words[0], "set_sysctls.py"):
		for _, a := range words[1:] {
			if strings.HasPrefix(a, "-") {
				continue
			}
			m := sysctlArg.FindStringSubmatch(a)
			if m == nil {
				return unsupported("sysctl %s", a)
			}
			if err := s.sysctl(m[1], m[2], started); err != nil {
				return err
			}
		}
		return nil
	case harmless.MatchString(line):
		s.warnings = append(s.warnings, "not run: "+line)
		return nil
	}
	return unsupported("command %s", line)
}

// shellWords cuts a line into words; quotes hold one together.
func shellWords(line string) (words []string) {
	word, in, quote := "", false, byte(0)
	for i := range len(line) {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, in = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if in {
				words = append(words, word)
			}
			word, in = "", false
		default:
			word, in = word+string(c), true
		}
	}
	if in {
		words = append(words, word)
	}
	return words
}

// defaults are what the defaults.sh of packetdrill's collection sets, as far as it concerns us.
func (s *settings) defaults() {
	s.tcp.RecvStart, s.tcp.RecvBuffer, s.tcp.SendBuffer = 540000, 15<<20, 4<<20
	s.tcp.SynRetries, s.tcp.SynAckRetries = 5, 5
	s.tcp.ECN = tcp.ECNOff
	s.cong = "cubic"
}

// fixed are sysctls of features that cannot be set here, with the values that say what the stack does anyway.
var fixed = map[string]string{
	"tcp_dsack": "1", "tcp_fack": "0", "tcp_frto": "1 2", "tcp_reordering": "3", "tcp_early_retrans": "3 4", "tcp_recovery": "1",
	"tcp_slow_start_after_idle": "0 1", "tcp_moderate_rcvbuf": "0 1", "tcp_fastopen": "0", "tcp_abort_on_overflow": "0", "tcp_thin_linear_timeouts": "0", "tcp_stdurg": "0", "tcp_rfc1337": "0 1", "tcp_autocorking": "0",
	"tcp_ecn_option": "2", "tcp_ecn_fallback": "1",
}

// ignored are sysctls that change nothing that a script sees here.
var ignored = map[string]bool{
	"tcp_no_metrics_save": true, "tcp_tso_win_divisor": true, "tcp_min_tso_segs": true, "tcp_pacing_ss_ratio": true, "tcp_pacing_ca_ratio": true,
	"tcp_notsent_lowat": true, "tcp_mem": true, "optmem_max": true, "rmem_max": true, "wmem_max": true, "tcp_max_syn_backlog": true, "somaxconn": true,
	"tcp_fastopen_key": true, "tcp_limit_output_bytes": true, "default_qdisc": true, "ip_local_port_range": true, "tcp_challenge_ack_limit": true,
	"tcp_invalid_ratelimit": true, "enabled": true, "tcp_ecn_option_beacon": true,
}

func (s *settings) sysctl(name, value string, started bool) error {
	value = strings.TrimSpace(arithmetic.ReplaceAllStringFunc(value, evaluate))
	if ignored[name] {
		return nil
	}
	if values, ok := fixed[name]; ok {
		for _, v := range strings.Fields(values) {
			if v == value {
				return nil
			}
		}
		return unsupported("sysctl %s=%s", name, value)
	}
	was := s.tcp
	cong := s.cong
	if err := s.setSysctl(name, value); err != nil {
		return err
	}
	if started && (s.tcp != was || s.cong != cong) {
		return unsupported("sysctl %s=%s while the stack runs", name, value)
	}
	return nil
}

// evaluate is $((a*b)), with products and sums from left to right.
func evaluate(text string) string {
	total := 0
	for _, term := range strings.Split(text[3:len(text)-2], "+") {
		p := 1
		for _, f := range strings.Split(term, "*") {
			v, _ := strconv.Atoi(strings.TrimSpace(f))
			p *= v
		}
		total += p
	}
	return strconv.Itoa(total)
}

func (s *settings) setSysctl(name, value string) error {
	bad := fmt.Errorf("sysctl %s=%s: bad value", name, value)
	f := strings.Fields(value)
	n := make([]int, len(f))
	for i := range f {
		n[i], _ = strconv.Atoi(f[i])
	}
	if len(n) == 0 {
		return bad
	}
	seconds := time.Duration(n[0]) * time.Second
	off := func(p *bool) error {
		*p = n[0] == 0
		return nil
	}
	switch name {
	case "tcp_timestamps":
		return off(&s.tcp.NoTimestamps)
	case "tcp_sack":
		return off(&s.tcp.NoSACK)
	case "tcp_window_scaling":
		return off(&s.tcp.NoWScale)
	case "tcp_rmem", "tcp_wmem":
		if len(n) != 3 || n[1] <= 0 || n[2] <= 0 {
			return bad
		}
		if name == "tcp_wmem" {
			s.tcp.SendBuffer = n[2]
		} else {
			s.tcp.RecvStart, s.tcp.RecvBuffer = n[1], n[2]
		}
	case "tcp_syn_retries":
		s.tcp.SynRetries = n[0]
	case "tcp_syn_linear_timeouts":
		s.tcp.SynLinear = n[0]
	case "tcp_synack_retries":
		s.tcp.SynAckRetries = n[0]
	case "tcp_fin_timeout":
		s.tcp.FinWait2 = seconds
	case "tcp_keepalive_time":
		s.tcp.KeepaliveIdle = seconds
	case "tcp_keepalive_intvl":
		s.tcp.KeepaliveEvery = seconds
	case "tcp_keepalive_probes":
		s.tcp.KeepaliveCount = n[0]
	case "tcp_ecn":
		modes := []tcp.ECN{tcp.ECNOff, tcp.ECNOn, tcp.ECNPassive, tcp.ECNAccurate, tcp.ECNServesBoth, tcp.ECNPassiveBoth}
		if n[0] < 0 || n[0] >= len(modes) {
			return unsupported("sysctl %s=%s", name, value)
		}
		s.tcp.ECN = modes[n[0]]
	case "tcp_mtu_probing":
		modes := []tcp.PathProbing{tcp.ProbeNever, tcp.ProbeBlackHoles, tcp.ProbeAlways}
		if n[0] < 0 || n[0] >= len(modes) {
			return bad
		}
		s.tcp.PathProbing = modes[n[0]]
	case "tcp_syncookies":
		modes := []tcp.SynCookies{tcp.CookiesOff, tcp.CookiesOverflow, tcp.CookiesAlways}
		if n[0] < 0 || n[0] >= len(modes) {
			return bad
		}
		s.tcp.SynCookies = modes[n[0]]
	case "min_pmtu":
		s.tcp.MinPathMTU = n[0]
	case "tcp_retries2":
		s.tcp.RetransTimeout = retriesTime(n[0])
	case "tcp_congestion_control":
		if _, ok := builtin.Find(plugins.Cong, value); !ok {
			return unsupported("sysctl %s=%s", name, value)
		}
		s.cong = value
	default:
		return unsupported("sysctl %s=%s", name, value)
	}
	return nil
}

// retriesTime is how long n retransmissions with the shortest timeout, and the wait after the last one, take in Linux.
func retriesTime(n int) (d time.Duration) {
	rto := 200 * time.Millisecond
	for range n + 1 {
		d += rto
		rto = min(2*rto, 120*time.Second)
	}
	return d
}
