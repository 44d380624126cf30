package conf

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
	}
}

// same compares configurations.
func same(t *testing.T, want, got *Config) {
	t.Helper()
	opts := []cmp.Option{cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{})}
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExample: the example's values are the defaults, except where it needs to show something.
func TestExample(t *testing.T) {
	c, err := Load("example.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	var p Port
	p.setDefaults()
	p.Name, p.Driver, p.Vdev = "wan", DriverDPDK, "net_af_packet0,iface=veth1"
	p.Addresses = []netip.Prefix{netip.MustParsePrefix("10.7.0.1/24"), netip.MustParsePrefix("2001:db8:7::1/64")}
	p.Gateway, p.Gateway6 = netip.MustParseAddr("10.7.0.254"), netip.MustParseAddr("fe80::1")
	want.Ports = []Port{p}
	want.Workers = []Worker{{Core: AnyCore, Poll: PollAdaptive, Port: "wan"}}
	want.Modules.Cong.Fallback = "cubic"
	want.Standing = []Module{{Kind: "cong", Name: "cdg", Binary: Binary{Placement: PlacementProcess}}}
	var web, proxy, echo App
	web.setDefaults()
	web.Name, web.Kind, web.Listen = "web", AppHTTP, netip.MustParseAddrPort("10.7.0.1:80")
	web.Size, web.Seed, web.Upload = GiB, 1, true
	proxy.setDefaults()
	proxy.Name, proxy.Kind, proxy.Listen = "proxy1", AppProxy, netip.MustParseAddrPort("10.7.0.1:8080")
	proxy.Backend = netip.MustParseAddrPort("127.0.0.1:8080")
	echo.setDefaults()
	echo.Name, echo.Kind, echo.Listen = "udp-echo2", AppUDPEcho, netip.MustParseAddrPort("10.7.0.1:7")
	want.Apps = []App{web, proxy, echo}
	want.Filters = []Filter{{Name: "replies", Action: ActionAllow, State: "established"}, {
		Name: "scanners", Action: ActionDeny, Port: "wan", Protocol: "tcp", DestinationPorts: []Ports{{22, 22}, {8000, 8080}},
		Source: []Net{{netip.MustParsePrefix("192.0.2.0/24")}, {netip.MustParsePrefix("198.51.100.7/32")}},
	}}
	same(t, want, c)
}

// TestExampleComplete: the example names every key that there is.
func TestExampleComplete(t *testing.T) {
	data, err := os.ReadFile("example.toml")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line[:strings.LastIndex(line, "]")+1], "[]")
			have[section] = true
		} else if key, _, ok := strings.Cut(strings.TrimPrefix(line, "#"), "="); ok {
			have[section+"."+strings.TrimSpace(key)] = true
		}
	}
	var walk func(key string, typ reflect.Type)
	walk = func(key string, typ reflect.Type) {
		for name, f := range fieldsOf(reflect.New(typ).Elem()) {
			k := join(key, name)
			// The keys of [modules.cong] stand for those of the other kinds.
			k = strings.NewReplacer("modules.rtx.", "modules.cong.", "modules.pace.", "modules.cong.").Replace(k)
			if !have[k] {
				t.Errorf("example.toml lacks %s", k)
			}
			elem := f.value.Type()
			if elem.Kind() == reflect.Slice {
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct && elem.PkgPath() == reflect.TypeFor[Config]().PkgPath() && len(fieldsOf(reflect.New(elem).Elem())) > 0 {
				walk(k, elem)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
}

func TestDemo(t *testing.T) {
	c, err := Load("demo.toml")
	if err != nil {
		t.Fatal(err)
	}
	if c.Ports[0].Driver != DriverDPDK || len(c.Workers) != 1 || c.Modules.Cong.Placement != PlacementProcess {
		t.Errorf("not the demo that the README describes: %+v", c)
	}
	// The cap must stretch the default download to 15 s at least.
	if a := c.Apps[0]; uint64(a.Size)/uint64(a.Rate) < 15 {
		t.Errorf("%v at %v is over in less than 15 s", a.Size, a.Rate)
	}
}

// TestErrors: each file of testdata/bad gives the messages in the .txt beside it, all at once.
func TestErrors(t *testing.T) {
	files, _ := filepath.Glob("testdata/bad/*.toml")
	if len(files) < 5 {
		t.Fatalf("only %d files", len(files))
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			_, err := Load(f)
			var ps Problems
			if !errors.As(err, &ps) {
				t.Fatalf("not a list of problems: %v", err)
			}
			golden(t, strings.TrimSuffix(f, ".toml")+".txt", err.Error()+"\n")
		})
	}
}

const port = `
[[port]]
name = "a"
driver = "afpacket"
interface = "veth1"
addresses = ["10.7.0.1/24"]
`

func TestWorkersCompleted(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []Worker
	}{
		{"none", "queues = 2", []Worker{
			{Core: AnyCore, Poll: PollAdaptive, Port: "a", Queue: 0},
			{Core: AnyCore, Poll: PollAdaptive, Port: "a", Queue: 1}}},
		{"more workers than queues", "[[worker]]\ncore = 1\n[[worker]]\ncore = 0\nqueue = 0\n[[worker]]", []Worker{
			{Core: 1, Poll: PollAdaptive, Port: "a", Queue: NoQueue},
			{Core: 0, Poll: PollAdaptive, Port: "a", Queue: 0},
			{Core: AnyCore, Poll: PollAdaptive, Port: "a", Queue: NoQueue}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("x", []byte(port+tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, c.Workers); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParams(t *testing.T) {
	c, err := Parse("x", []byte(port+"[modules.cong]\nparams = {gain = 2.885, on = true, n = -3, late = \"5ms\"}"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"gain": "2.885", "on": "true", "n": "-3", "late": "5ms"}
	if diff := cmp.Diff(want, c.Modules.Cong.Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadUnreadable(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("large file: %v", err)
	}
}

// What a file holds is shown, not obeyed by the terminal.
func TestProblemIsPrintable(t *testing.T) {
	p := &Problem{File: "a\x1b", Line: 1, Key: "k\xff", Message: "\x00\a\u009b … “\uFFFD”"}
	if got, want := p.Error(), `a\x1b:1: k\xff: \x00\a\u009b … “�”`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A proxy may reach another port of the daemon over fastpath, but no port reaches itself.
func TestProxyBackend(t *testing.T) {
	const ports = `
[[port]]
name = "a"
driver = "memlink"
peer = "b"
mac = "02:00:00:00:00:01"
addresses = ["10.9.0.1/24"]
%s
[[port]]
name = "b"
driver = "memlink"
peer = "a"
mac = "02:00:00:00:00:02"
addresses = ["10.%s.0.2/24"]
[[app]]
kind = "proxy"
listen = "10.9.0.1:8080"
backend = "%s"
via = "fastpath"
`
	for _, tc := range []struct{ gateway, net, backend, want string }{
		{"", "9", "10.9.0.1:80", ""},
		{"", "9", "10.9.0.7:80", ""},
		{"", "8", "10.9.0.1:80", `18: app[0].backend: 10.9.0.1 is the address of port "a" itself`},
		{`gateway = "10.9.0.254"`, "8", "10.8.0.2:80", ""},
		{`gateway = "10.9.0.254"`, "8", "10.9.0.1:80", `18: app[0].backend: 10.9.0.1 is the address`},
		{"", "9", "127.0.0.1:80", `18: app[0].backend: 127.0.0.1 is not reached over fastpath`},
	} {
		_, err := Parse("f", fmt.Appendf(nil, ports, tc.gateway, tc.net, tc.backend))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "f:"+tc.want)) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
