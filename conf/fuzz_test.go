package conf

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// FuzzParse: any file gives a configuration or problems that name a line of it, and what is accepted is accepted again.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.toml")
	for _, file := range append(files, "example.toml", "demo.toml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err == nil {
			if len(c.Ports) == 0 || len(c.Workers) == 0 {
				t.Fatal("accepted without port or worker")
			}
			again, err := Parse("f", data)
			if err != nil {
				t.Fatalf("accepted once only: %v", err)
			}
			same(t, c, again)
			return
		}
		var ps Problems
		if !errors.As(err, &ps) {
			t.Fatalf("not a list of problems: %v", err)
		}
		for _, p := range ps {
			if lines := strings.Count(string(data), "\n") + 1; p.Line < 1 || p.Line > lines || p.Message == "" {
				t.Fatalf("%v: the file has %d lines", p, lines)
			}
		}
		// Against the library: what it cannot read has a syntax error here, and what it can has none.
		var any map[string]any
		if broken := toml.Unmarshal(data, &any) != nil; broken != parse("f", data).broken {
			t.Fatalf("broken = %v", !broken)
		}
	})
}

// FuzzUnits: what a unit's parser accepts, it prints in a form that it reads back as the same value.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"64MiB", "1.5kB", "10Gbit/s", "0B", "12B/s", "99999999999TiB", "1.1.1B", "02:00:00:00:00:01", "1-2", "10ms", "0-3,8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, v := range []interface {
			UnmarshalText([]byte) error
			MarshalText() ([]byte, error)
		}{new(Size), new(Rate), new(Duration), new(MAC), new(PortRange)} {
			if v.UnmarshalText([]byte(s)) != nil {
				continue
			}
			text, _ := v.MarshalText()
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface().(interface{ UnmarshalText([]byte) error })
			if err := again.UnmarshalText(text); err != nil || !reflect.DeepEqual(v, again) {
				t.Fatalf("%T: %q → %q → %v, %v", v, s, text, again, err)
			}
		}
		if cpus, err := ParseCPUs(s); err == nil && isSortedSet(cpus) {
			if again, err := ParseCPUs(FormatCPUs(cpus)); err != nil || !reflect.DeepEqual(cpus, again) {
				t.Fatalf("%q → %v → %v, %v", s, cpus, again, err)
			}
		}
	})
}

func isSortedSet(x []int) bool {
	for i := 1; i < len(x); i++ {
		if x[i] <= x[i-1] {
			return false
		}
	}
	return true
}
