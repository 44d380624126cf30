package vm

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// archive writes a RAM disk in the format that the kernel unpacks (cpio, "newc": Documentation/driver-api/early-userspace/buffer-format.rst
// of Linux).
type archive struct {
	w   *bufio.Writer
	ino int
	err error
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
	modeLink = 0o120777
)

// add appends an entry of size bytes. Links hold their target.
func (a *archive) add(name string, mode, size int, content io.Reader) {
	if a.err != nil {
		return
	}
	a.ino++
	fields := []int{a.ino, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name) + 1, 0}
	header := "070701"
	for _, f := range fields {
		header += fmt.Sprintf("%08X", f)
	}
	header += name + "\x00"
	a.write(header + padding(len(header)))
	if a.err == nil && content != nil {
		_, a.err = io.CopyN(a.w, content, int64(size))
	}
	a.write(padding(size))
}

func padding(n int) string { return "\x00\x00\x00"[:-n&3] }

func (a *archive) write(s string) {
	if a.err == nil {
		_, a.err = a.w.WriteString(s)
	}
}

func (a *archive) file(name, from string) {
	f, err := os.Open(from)
	if err != nil {
		a.err = err
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		a.err = err
		return
	}
	a.add(name, modeFile, int(st.Size()), f)
}

// close writes the end of the archive.
func (a *archive) close() error {
	a.add("TRAILER!!!", 0, 0, nil)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}
