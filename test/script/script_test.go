package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

// scripts are the committed ones.
func scripts(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".pkt") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	return files
}

var exact = []lang.Option{{Name: "exact"}}

// TestScripts: every script of ours holds, to the microsecond.
func TestScripts(t *testing.T) {
	for _, f := range scripts(t) {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(f, "testdata/"), ".pkt"), func(t *testing.T) {
			t.Parallel()
			if o := RunFile(f, exact); o.Verdict != Pass {
				t.Errorf("%v in line %d: %s", o.Verdict, o.Line, o.Text)
			}
		})
	}
}

var clause = regexp.MustCompile(`RFC \d+|Linux|POSIX`)

// TestScriptsCite: every script begins with a comment that names its clause.
func TestScriptsCite(t *testing.T) {
	for _, f := range scripts(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(b), "\n")
		if !strings.HasPrefix(head, "// ") || !clause.MatchString(head) {
			t.Errorf("%s begins with %q, which names no clause", f, head)
		}
	}
}

var (
	outbound = regexp.MustCompile(`(?m)^[^\n/#\x60%]*\d\s+>\s.*$`)
	syn      = regexp.MustCompile(`\sS[EWA]*\.? 0:0`)
	number1  = regexp.MustCompile(`(\d+):(\d+)\((\d+)\)`)
)

// TestScriptsCanFail: each packet that a script expects is looked at. With one byte of sequence space more in a script's last expectation
// it must fail there; a script without an expectation must want a result of a call or an assertion.
func TestScriptsCanFail(t *testing.T) {
	for _, f := range scripts(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		src := string(b)
		all := outbound.FindAllStringIndex(src, -1)
		if len(all) == 0 {
			t.Errorf("%s expects no packet", f)
			continue
		}
		last := all[len(all)-1]
		line := src[last[0]:last[1]]
		changed := number1.ReplaceAllStringFunc(line, func(s string) string {
			var a, b, n int
			if _, err := fmt.Sscanf(s, "%d:%d(%d)", &a, &b, &n); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d:%d(%d)", a+1, b+1, n)
		})
		if syn.MatchString(line) { // its sequence number is learned from, not compared
			changed = strings.Replace(line, "0:0(0)", "0:7(7)", 1)
		}
		o := Run(src[:last[0]]+changed+src[last[1]:], exact)
		if want := 1 + strings.Count(src[:last[0]], "\n"); o.Verdict != Fail || o.Line != want {
			t.Errorf("%s with %q is %v in line %d, want FAIL in line %d: %s", f, changed, o.Verdict, o.Line, want, o.Text)
		}
	}
}

const (
	listen = `0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
`
	open = listen + `+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.1 < . 1:1(0) ack 1 win 32792
+0 accept(3, ..., ...) = 4
`
)

// TestRunner: what the runner says of scripts that hold, that do not, and that it cannot run.
func TestRunner(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		want      Verdict
		line      int
		text      string
	}{
		{"pass", open + "+0 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1\n+.1 < . 1:1(0) ack 11 win 9", Pass, 0, ""},
		{"flags", open + "+0 write(4, ..., 10) = 10\n+0 > . 1:11(10) ack 1", Fail, 9, "differs: flags P."},
		{"sequence", open + "+0 write(4, ..., 10) = 10\n+0 > P. 2:12(10) ack 1", Fail, 9, "sequence number 1"},
		{"ack", open + "+0 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 2", Fail, 9, "ack 1"},
		{"window", open + "+0 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1 win 1", Fail, 9, "win 65535"},
		{"too short", open + "+0 write(4, ..., 10) = 10\n+0 > P. 1:12(11) ack 1", Fail, 9,
			"differs: 10 bytes of payload\n  expected: 0.100000 P. 1:12(11) ack 1\n  got:      0.100000 P. 1:11(10) ack 1"},
		{"too short, sent again", open + "+0 write(4, ..., 10) = 10\n+0~+.5 > P. 1:12(11) ack 1", Fail, 9,
			"differs: 10 bytes of payload, then sequence number 1\n  expected: 0.100000 P. 1:12(11) ack 1\n  got:      0.100000 P. 1:11(10) ack 1"},
		{"too long", open + "+0 write(4, ..., 10) = 10\n+0 > P. 1:10(9) ack 1", Fail, 9, "differs: 10 bytes of payload"},
		{"empty", "", Broken, 1, "nothing to do"},
		{"only comments", "// RFC 9293\n\n", Broken, 1, "nothing to do"},
		{"only a setting", "--local_ip=10.7.0.1\n`sysctl -q net.ipv4.tcp_sack=0`\n", Broken, 1, "nothing to do"},
		{"options", listen + "+0 < S 0:0(0) win 32792 <mss 1000>\n+0 > S. 0:0(0) ack 1 <mss 1461>", Fail, 5, "options <mss 1460>"},
		{"time", open + "+0 write(4, ..., 10) = 10\n+.000001 > P. 1:11(10) ack 1", Fail, 9, "at another time"},
		{"late", open + "+0 > P. 1:11(10) ack 1\n+1 write(4, ..., 10) = 10", Fail, 8, "got:      nothing"},
		{"range", open + "+0 write(4, ..., 10) = 10\n+0~+.01 > P. 1:11(10) ack 1\n+.2~+.25 > P. 1:11(10) ack 1", Fail, 10, "no packet until 0.350000\n  expected: 0.300000 P. 1:11(10) ack 1\n  got:      0.4"},
		{"any", open + "+0 write(4, ..., 10) = 10\n* > P. 1:11(10) ack 1\n* > P. 1:11(10) ack 1", Pass, 0, ""},
		{"unexpected", open + "+0 write(4, ..., 10) = 10\n+.1 < . 1:1(0) ack 11 win 9", Fail, 9, "not expected"},
		{"unexpected at the end", open + "+0 write(4, ..., 10) = 10", Fail, 8, "not expected"},
		{"super-frame", open + "+0 write(4, ..., 2500) = 2500\n+0 > P. 1:2501(2500) ack 1", Pass, 0, ""},
		{"result", open + "+0 write(4, ..., 10) = 11", Fail, 8, "got:      10"},
		{"errno", open + "+0 write(5, ..., 10) = -1 EPIPE (x)", Fail, 8, "got:      -1 EBADF"},
		{"any errno", open + "+0 write(5, ..., 10) = -1", Pass, 0, ""},
		{"blocks", open + "+0 read(4, ..., 10) = 10", Fail, 8, "blocks"},
		{"returns early", open + "+0...0.2 read(4, ..., 10) = 10\n+.1 < P. 1:11(10) ack 1 win 9\n+0 > . 1:1(0) ack 11", Fail, 9, "returned 10 at 0.2"},
		{"returns late", open + "+0...0.2 read(4, ..., 10) = 10\n+.3 < P. 1:11(10) ack 1 win 9", Fail, 9, "waits still"},
		{"content", open + "+0 < P. 1:11(10) ack 1 win 9\n+0 > . 1:1(0) ack 11\n+0 read(4, \"hello\", 10) = 10", Fail, 10, "other content"},
		{"timestamp", listen + "+0 < S 0:0(0) win 9 <mss 1000,sackOK,TS val 5 ecr 0>\n+0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 7 ecr 6>", Fail, 5, "TS val 7 ecr 5"},
		{"clock", listen + "+0 < S 0:0(0) win 9 <mss 1000,sackOK,TS val 5 ecr 0>\n+0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 7 ecr 5>\n+1 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 1006 ecr 5>", Fail, 6, "TS val 1007 ecr 5"},
		{"assertion", open + "+0 %{ assert tcpi_snd_cwnd == 11, tcpi_snd_cwnd }%", Fail, 8, "assertion failed: 10"},
		{"code", open + "+0 %{\nx = tcpi_snd_cwnd\nif x == 10:\n  assert tcpi_snd_mss == 1000 and (tcpi_options & TCPI_OPT_SACK) == 0\n}%\n+0 %{ assert x == 10; assert x < 11 }%", Pass, 0, ""},
		{"field", open + "+0 %{ assert tcpi_frobs == 1 }%", Unsupported, 8, "tcpi_frobs"},
		{"constant", open + "+0 setsockopt(4, SOL_SOCKET, SO_FROB, [1], 4) = 0", Unsupported, 8, "SO_FROB"},
		{"option", open + "+0 setsockopt(4, SOL_SOCKET, SO_BUSY_POLL, [1], 4) = 0", Unsupported, 8, "protocol not available"},
		{"call", open + "+0 splice(4, 5) = 0", Unsupported, 8, "splice"},
		{"shell", "`reboot now`\n" + listen, Unsupported, 1, "reboot"},
		{"sysctl", "`sysctl -q net.ipv4.tcp_frobs=1`\n" + listen, Unsupported, 1, "tcp_frobs"},
		{"option line", "--frob=1\n" + listen, Unsupported, 1, "--frob"},
		{"syntax", listen + "+0 < S 0:0(1)", Broken, 4, "disagree"},
		{"backwards", open + "0 write(4, ..., 10) = 10", Broken, 8, "backwards"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Run(tt.src, exact)
			if o.Verdict != tt.want || o.Line != tt.line || !strings.Contains(o.Text, tt.text) {
				t.Errorf("%v in line %d: %s\nwant %v in line %d: %s", o.Verdict, o.Line, o.Text, tt.want, tt.line, tt.text)
			}
		})
	}
}

// TestTolerance: without --exact the tolerances are packetdrill's, or those of the option lines.
func TestTolerance(t *testing.T) {
	late := open + "+0 write(4, ..., 10) = 10\n+.003 > P. 1:11(10) ack 1"
	for _, tt := range []struct {
		src  string
		opts []lang.Option
		want Verdict
	}{
		{late, nil, Pass},
		{"--tolerance_usecs=2000\n" + late, nil, Fail},
		{"--tolerance_usecs=2000\n" + late, []lang.Option{{Name: "tolerance_usecs", Value: "3000"}}, Pass},
		{"--tolerance_usecs=0\n--tolerance_percent=100\n" + late, nil, Pass},
	} {
		if o := Run(tt.src, tt.opts); o.Verdict != tt.want {
			t.Errorf("%v, want %v: %s", o.Verdict, tt.want, o.Text)
		}
	}
}

// TestCommand: output and exit status of the command.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	file := func(name, src string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good, bad, odd := file("good", open+"`echo hello`"), file("bad", open+"+0 > P. 1:11(10) ack 1"), file("odd", "`reboot`")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{good}, 0, "PASS " + good},
		{[]string{good}, 0, "not run: echo hello"},
		{[]string{good, bad}, 1, "FAIL " + bad + ":8"},
		{[]string{good, bad}, 1, "1 passed, 1 failed, 0 not supported, 0 not readable"},
		{[]string{good, odd}, 2, "UNSUPPORTED " + odd + ":1"},
		{[]string{"--exact", "-DX=1", dir + "/missing"}, 1, "BROKEN"},
		{nil, 1, "usage"},
	} {
		var out bytes.Buffer
		if code := run(tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%v: status %d, %q; want %d, %q", tt.args, code, out.String(), tt.code, tt.want)
		}
	}
}
