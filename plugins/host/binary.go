package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// binary is the opened and verified file of a module process.
type binary struct {
	file *os.File
	path string
	args []string // with the name of the program
	sha  string
}

// FileName is the name under which a module's binary is looked for in a plugin directory.
func FileName(s *Spec) string { return "fastpath-" + s.Kind.String() + "-" + s.Name }

// open finds the binary of s, and hashes what will be executed: the open file, not what its name may denote later. This is
// what go-plugin's SecureConfig is for, which hashes by name and does not go together with a runner of one's own.
func (m *Manager) open(s *Spec) (_ *binary, err error) {
	b := &binary{path: s.Path, args: append([]string{FileName(s)}, s.Args...)}
	own := false
	if b.path == "" && m.cfg.PluginDir != "" {
		p := filepath.Join(m.cfg.PluginDir, FileName(s))
		if _, err := os.Stat(p); err == nil {
			b.path = p
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	open := b.path
	if b.path == "" {
		if _, ok := builtin.Find(s.Kind, s.Name); !ok {
			where := "no plugin directory is set"
			if m.cfg.PluginDir != "" {
				where = "there is no " + filepath.Join(m.cfg.PluginDir, FileName(s))
			}
			return nil, fmt.Errorf("no binary: no path is given, %s, and it is not built in", where)
		}
		own = true
		open = "/proc/self/exe" // right even if the file was replaced since we started
		if b.path, err = os.Executable(); err != nil {
			return nil, err
		}
		b.args = []string{FileName(s), "plugin", s.Kind.String(), s.Name}
	}
	if b.file, err = os.Open(open); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.file.Close()
		}
	}()
	if st, err := b.file.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("%s is not an executable file", b.path)
	}
	h := sha256.New()
	if _, err := io.Copy(h, b.file); err != nil {
		return nil, err
	}
	b.sha = hex.EncodeToString(h.Sum(nil))
	switch {
	case s.SHA256 != "" && !strings.EqualFold(s.SHA256, b.sha):
		return nil, fmt.Errorf("%s has the checksum sha256:%s, the configuration wants sha256:%s", b.path, b.sha, strings.ToLower(s.SHA256))
	case s.SHA256 == "" && !own && !s.AllowUnpinned:
		return nil, fmt.Errorf("%s has no sha256 in the configuration (it is %s; allow_unpinned accepts any)", b.path, b.sha)
	}
	return b, nil
}
