package param

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/plugins"
)

var info = plugins.Info{Name: "mod", Params: []plugins.Param{
	{Name: "n", Default: "8"}, {Name: "d", Default: "200ms"}, {Name: "b", Default: "true"},
}}

func readAll(p plugins.Params) (n uint64, d time.Duration, b bool, err error) {
	r := Read(info, p)
	n, d, b = r.Uint("n", 1, 10), r.Duration("d", time.Millisecond, time.Second), r.Bool("b")
	return n, d, b, r.Err()
}

func TestValues(t *testing.T) {
	if n, d, b, err := readAll(nil); n != 8 || d != 200*time.Millisecond || !b || err != nil {
		t.Errorf("defaults: %d %v %v %v", n, d, b, err)
	}
	if n, d, b, err := readAll(plugins.Params{"n": "10", "d": "1s", "b": "false"}); n != 10 || d != time.Second || b || err != nil {
		t.Errorf("values: %d %v %v %v", n, d, b, err)
	}
}

func TestErrorsNameTheKey(t *testing.T) {
	_, _, _, err := readAll(plugins.Params{"n": "11", "d": "2", "b": "x", "zz": "", "aa": ""})
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	want := []string{"mod: aa: unknown parameter", `mod: b: "x" is not true or false`, `mod: d: "2" is not a duration`, "mod: n: 11 is not within 1…10", "mod: zz: unknown"}
	if len(lines) != len(want) {
		t.Fatalf("got %q", lines)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("error %d is %q, want %q", i, lines[i], want[i])
		}
	}
	var pe *plugins.ParamError
	if _, _, _, err := readAll(plugins.Params{"n": "abc"}); !errors.As(err, &pe) || *pe != (plugins.ParamError{Module: "mod", Param: "n", Problem: `"abc" is not a whole number`}) {
		t.Errorf("not a number: %v", err)
	}
	if _, _, _, err := readAll(plugins.Params{"n": "99999999999999999999"}); !errors.As(err, &pe) || pe.Problem != "99999999999999999999 is not within 1…10" {
		t.Errorf("more than 64 bits: %v", err)
	}
	for _, p := range []plugins.Params{{"d": "2s"}, {"d": "0s"}, {"n": "-1"}, {"n": "0"}} {
		if _, _, _, err := readAll(p); err == nil {
			t.Errorf("%v is accepted", p)
		}
	}
}
