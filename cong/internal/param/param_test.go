package param

import (
	"errors"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins"
)

var info = plugins.Info{Name: "mod", Params: []plugins.Param{
	{Name: "n", Type: "uint", Default: "8"},
	{Name: "b", Type: "bool", Default: "true"},
}}

func TestDefaultsAndValues(t *testing.T) {
	r := Read(info, nil)
	if n, b := r.Uint("n", 1, 256), r.Bool("b"); n != 8 || !b || r.Err() != nil {
		t.Errorf("defaults: %d, %v, %v", n, b, r.Err())
	}
	r = Read(info, plugins.Params{"n": "256", "b": "false"})
	if n, b := r.Uint("n", 1, 256), r.Bool("b"); n != 256 || b || r.Err() != nil {
		t.Errorf("values: %d, %v, %v", n, b, r.Err())
	}
}

func TestErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct {
		p    plugins.Params
		want []string
	}{
		{plugins.Params{"z": "1", "a": ""}, []string{"mod: a: unknown", "mod: z: unknown"}},
		{plugins.Params{"n": "0"}, []string{"mod: n: 0 is not within 1…256"}},
		{plugins.Params{"n": "99999999999999999999"}, []string{"mod: n: 99999999999999999999 is not within 1…256"}},
		{plugins.Params{"n": "257"}, []string{"mod: n: 257 is not within 1…256"}},
		{plugins.Params{"n": "-1"}, []string{`mod: n: "-1" is not a whole number`}},
		{plugins.Params{"n": "", "b": "perhaps"}, []string{`mod: n: ""`, `mod: b: "perhaps"`}},
	} {
		r := Read(info, c.p)
		r.Uint("n", 1, 256)
		r.Bool("b")
		err := r.Err()
		if err == nil {
			t.Errorf("%v is accepted", c.p)
			continue
		}
		var pe *plugins.ParamError
		if !errors.As(err, &pe) || pe.Module != "mod" || pe.Param == "" {
			t.Errorf("%v: %#v tells no parameter", c.p, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: error %q lacks %q", c.p, err, w)
			}
		}
	}
}
