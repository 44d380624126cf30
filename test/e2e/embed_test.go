package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastpath-tcp/fastpath/test/netns"
)

const embedDir = "../embed"

// TestEmbed builds the program of the README, in a module of its own, and downloads a file from it.
func TestEmbed(t *testing.T) {
	bin := filepath.Join(scratch, "embed")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = embedDir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	need(t, "curl")
	w := &world{T: t, link: link{mtu: 1500}, client: newNS(t, "client"), server: newNS(t, "embed"), dir: t.TempDir()}
	w.veth(w.clientEnd(), netns.End{NS: w.server, Name: "veth1"}) // as in the program
	want := bytes.Repeat([]byte("fastpath\n"), 200_000)
	w.must(os.WriteFile(filepath.Join(w.dir, "file"), want, 0o644))
	cmd := exec.Command(bin)
	cmd.Dir = w.dir
	w.daemon = startProcess(t, w.server, cmd)
	w.eventually(10*time.Second, func() error {
		c, err := w.dial(portHTTP)
		if err == nil {
			c.Close()
		}
		return err
	})
	if got := w.curl(w.url("/file")); !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}

// TestReadmeEmbeds wants the README to show the program that TestEmbed builds.
func TestReadmeEmbeds(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(filepath.Join(embedDir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(src), "\n") // without the package comment
	if !strings.Contains(string(readme), "```go\n"+program+"```\n") {
		t.Errorf("README.md does not hold the program in test/embed:\n%s", program)
	}
}
