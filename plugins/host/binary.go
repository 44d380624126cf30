package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fastpath-tcp/fastpath/plugins/builtin"
)

// binary is the verified code of a module process: a sealed copy in memory, which is what runs, at every start, whatever becomes of the
// file; of this very program, which nobody can write while it runs, the file itself.
type binary struct {
	file *os.File
	path string
	args []string // with the name of the program
	sha  string
	own  bool // this very program
}

func (b *binary) close() {
	if b != nil {
		b.file.Close()
	}
}

// FileName is the name under which a module's binary is looked for in a plugin directory.
func FileName(s *Spec) string { return "fastpath-" + s.Kind.String() + "-" + s.Name }

// dup returns b with a descriptor of its own.
func (b *binary) dup() (*binary, error) {
	if b == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(b.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("copy of %s: %w", b.path, err)
	}
	c := *b
	c.file = os.NewFile(uintptr(fd), b.file.Name())
	return &c, nil
}

// open finds the binary of s, copies it into memory and seals the copy, hashing what will be executed. This is what go-plugin's
// SecureConfig is for, which hashes by name and does not go together with a runner of one's own.
func (m *Manager) open(s *Spec) (*binary, error) {
	b := &binary{args: append([]string{FileName(s)}, s.Args...)}
	if err := m.locate(s, b); err != nil {
		return nil, err
	}
	open := b.path
	if b.own {
		open = "/proc/self/exe" // right even if the file was replaced since we started
	}
	file, err := os.Open(open)
	if err != nil {
		return nil, err
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		file.Close()
		return nil, cmp.Or(err, fmt.Errorf("%s is not an executable file", b.path))
	}
	h := sha256.New()
	if b.own {
		b.file = file
		_, err = io.Copy(h, file)
	} else {
		b.file, err = sealedCopy(file, FileName(s), h)
		file.Close()
	}
	if err != nil {
		b.close()
		return nil, err
	}
	b.sha = hex.EncodeToString(h.Sum(nil))
	switch {
	case s.SHA256 != "" && !strings.EqualFold(s.SHA256, b.sha):
		err = fmt.Errorf("%s has the checksum sha256:%s, sha256:%s is wanted", b.path, b.sha, strings.ToLower(s.SHA256))
	case s.SHA256 == "" && !b.own && !s.AllowUnpinned:
		err = fmt.Errorf("%s has no sha256 in the configuration (it is %s; allow_unpinned accepts any)", b.path, b.sha)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// locate sets the path of b, which may be this very program with other arguments.
func (m *Manager) locate(s *Spec, b *binary) (err error) {
	if b.path = s.Path; b.path != "" {
		return nil
	}
	where := "no plugin directory is set"
	if m.cfg.PluginDir != "" {
		p := filepath.Join(m.cfg.PluginDir, FileName(s))
		_, err := os.Stat(p)
		if err == nil {
			b.path = p
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		where = "there is no " + p
	}
	if _, ok := builtin.Find(s.Kind, s.Name); !ok {
		return fmt.Errorf("no binary: no path is given, %s, and it is not built in", where)
	}
	b.args, b.own = []string{FileName(s), "plugin", s.Kind.String(), s.Name}, true
	b.path, err = os.Executable()
	return err
}

// sealedCopy copies a file to memory that nobody can change any more, and to w.
func sealedCopy(file *os.File, name string, w io.Writer) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all of them can be executed
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	copied := os.NewFile(uintptr(fd), name)
	if _, err = io.Copy(io.MultiWriter(copied, w), file); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		copied.Close()
		return nil, fmt.Errorf("copy of %s: %w", file.Name(), err)
	}
	return copied, nil
}
