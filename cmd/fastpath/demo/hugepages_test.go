package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The pages that a killed demo has reserved are given back by the next one, and no others.
func TestHugepages(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		record       string // of a demo before
		now          int    // reserved pages
		swept, after int    // reserved pages after sweep, and after reserve and restore
		kept         bool   // the record, by sweep
	}{
		"nothing before":          {"", 5, 5, 5, false},
		"killed":                  {fmt.Sprint(gone.Process.Pid, 5), 5 + wantHugepages, 5, 5, false},
		"killed before it wrote":  {fmt.Sprint(gone.Process.Pid, 5), 5, 5, 5, false},
		"killed, half was to get": {fmt.Sprint(gone.Process.Pid, 0), 64, 0, 0, false},
		"others took more":        {fmt.Sprint(gone.Process.Pid, 0), 1000, 1000 - wantHugepages, 1000 - wantHugepages, false},
		"others gave back":        {fmt.Sprint(gone.Process.Pid, 300), 200, 200, 200, false},
		"it lives":                {fmt.Sprint(os.Getpid(), 5), 133, 133, 133, true},
		"no record":               {"what?", 7, 7, 7, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := newHugepages(filepath.Join(dir, "control.sock"))
			h.number, h.meminfo = filepath.Join(dir, "nr_hugepages"), filepath.Join(dir, "meminfo")
			for path, text := range map[string]string{h.number: fmt.Sprint(tc.now), h.meminfo: "HugePages_Free:        0\n", h.record: tc.record} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			quiet := func(string) {}
			h.sweep(quiet)
			_, err := os.Stat(h.record)
			if n, _ := readInt(h.number); n != tc.swept || (err == nil) != tc.kept {
				t.Errorf("after the sweep: %d pages, want %d; record kept: %v", n, tc.swept, err == nil)
			}
			if err := os.WriteFile(h.meminfo, []byte("HugePages_Free:      100\n"), 0o600); err != nil { // too few: given back at once
				t.Fatal(err)
			}
			h.reserve(quiet)
			if err := h.restore(); err != nil {
				t.Fatal(err)
			}
			if n, _ := readInt(h.number); n != tc.after {
				t.Errorf("in the end: %d pages, want %d", n, tc.after)
			}
		})
	}
}
