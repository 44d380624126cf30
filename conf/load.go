package conf

import (
	"fmt"
	"io"
	"os"
	"reflect"
)

// maxFileSize bounds what Load reads: a configuration is written by hand.
const maxFileSize = 64 << 10

// Load reads and validates the configuration file at path. The error is of type Problems and lists everything that is wrong,
// except that a file that cannot be read gives an error of the os package.
func Load(path string) (*Config, error) {
	return accept(Examine(path))
}

// Examine is Load for those who want all that can be found: it returns the configuration as far as it could be read, beside what is
// wrong with it. Such a configuration is for Check only.
func Examine(path string) (*Config, Problems, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, nil, err
	}
	return examine(path, data)
}

// Parse is Load for a file that has been read already. file is used in errors only.
func Parse(file string, data []byte) (*Config, error) {
	return accept(examine(file, data))
}

func examine(file string, data []byte) (*Config, Problems, error) {
	if len(data) > maxFileSize {
		return nil, nil, fmt.Errorf("%s: more than %d bytes is too large for a configuration", file, maxFileSize)
	}
	d := parse(file, data)
	c := Default()
	d.bind("", d.values, reflect.ValueOf(c).Elem())
	v := validator{document: d, c: c}
	v.run()
	d.probs.Sort()
	c.doc = d
	return c, d.probs, nil
}

// accept returns c only if nothing is wrong with it.
func accept(c *Config, errs Problems, err error) (*Config, error) {
	if err == nil {
		err = errs.err()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
