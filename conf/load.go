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
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse is Load for a file that has been read already. file is used in errors only.
func Parse(file string, data []byte) (*Config, error) {
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s: more than %d bytes is too large for a configuration", file, maxFileSize)
	}
	d := parse(file, data)
	c := Default()
	d.bind("", d.values, reflect.ValueOf(c).Elem())
	v := validator{document: d, c: c}
	v.run()
	d.probs.sort()
	if err := d.probs.err(); err != nil {
		return nil, err
	}
	c.doc = d
	return c, nil
}
