package vagrant

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/conf"
)

// need skips the test without a tool.
func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("no %s: apt-get install %s", tool, map[string]string{"shellcheck": "shellcheck", "ruby": "ruby", "systemd-analyze": "systemd"}[tool])
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shellScripts are all files below vagrant/ and test/vagrant/ that a shell runs.
func shellScripts(t *testing.T) (list []string) {
	t.Helper()
	for _, pattern := range []string{dir + "/*", dir + "/*/*", "*"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			h, err := os.Open(f)
			if err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(h).ReadString('\n')
			h.Close()
			if strings.HasPrefix(line, "#!") && strings.Contains(line, "sh") || strings.HasPrefix(line, "# shellcheck shell=") {
				list = append(list, f)
			}
		}
	}
	if len(list) < 14 {
		t.Fatalf("only %d scripts were found: %v", len(list), list)
	}
	return list
}

func TestShellcheck(t *testing.T) {
	t.Parallel()
	need(t, "shellcheck")
	if out, err := exec.Command("shellcheck", append([]string{"-x"}, shellScripts(t)...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Scripts can be started, but for the one that others source; each has a comment that says what it is for.
func TestScriptModes(t *testing.T) {
	t.Parallel()
	for _, f := range shellScripts(t) {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if starts := st.Mode()&0o111 != 0; starts == (filepath.Base(f) == "lib.sh") {
			t.Errorf("%s: mode %v", f, st.Mode())
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.SplitN(string(b), "\n", 3); !strings.HasPrefix(lines[1], "# ") {
			t.Errorf("%s: no comment says what it is for", f)
		}
	}
}

func TestVagrantfile(t *testing.T) {
	t.Parallel()
	need(t, "ruby")
	if out, err := exec.Command("ruby", "-c", dir+"/Vagrantfile").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The unit is one that systemd takes without a word, and far from unprotected.
func TestUnit(t *testing.T) {
	t.Parallel()
	need(t, "systemd-analyze")
	unit := regexp.MustCompile(`/usr/local/(lib/fastpath/service\.sh|bin/fastpath)`).ReplaceAllString(read(t, "provision/fastpath.service"), "/bin/true")
	file := filepath.Join(t.TempDir(), "fastpath.service")
	if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	var own []string // systemd tells of this machine's other units as well
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "fastpath") {
			own = append(own, line)
		}
	}
	if len(own) > 0 {
		t.Errorf("%v\n%s", err, strings.Join(own, ""))
	}
	out, err = exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=55", "--no-pager", file).CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("unrecognized option")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// The daemon's configuration on the machine is one, with whatever the provisioner fills in.
func TestMachineConfig(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("@WAN_DEVICE@", "0000:00:05.0", "@LAN_DEVICE@", "0000:00:06.0", "@WAN_ADDRESS@", "10.77.1.10", "@LAN_ADDRESS@", "10.77.2.10",
		"@START@", "4m", "@LATE@", "5s", "@DEAD@", "1m").
		Replace(read(t, "provision/machine-fastpath.toml"))
	c, err := conf.Parse("machine-fastpath.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Ports {
		if p.Driver != conf.DriverDPDK || p.Device == "" || regexp.MustCompile(`@[A-Z_]+@`).MatchString(text) {
			t.Errorf("port %+v", p)
		}
	}
}

// The README's picture has the addresses of the Vagrantfile, and each command that it names is there.
func TestREADME(t *testing.T) {
	t.Parallel()
	readme, vagrantfile := read(t, "README.md"), read(t, "Vagrantfile")
	addresses := regexp.MustCompile(`"(10\.77\.\d\.\d+)", "([0-9a-f]{12})"`).FindAllStringSubmatch(vagrantfile, -1)
	if len(addresses) != 4 {
		t.Fatalf("the Vagrantfile has %d addresses, want 4", len(addresses))
	}
	for _, a := range addresses {
		mac := regexp.MustCompile(`..`).FindAllString(a[2], -1)
		for _, s := range []string{a[1], strings.Join(mac, ":")} {
			if !strings.Contains(readme, s) {
				t.Errorf("the README does not show %s", s)
			}
		}
	}
	// The demonstration by hand is what the script does.
	demo := read(t, "demo")
	for _, s := range []string{"sudo netem wan down 'delay 50ms loss 1% rate", "sudo fastpath ctl swap cong cdg", "sudo fastpath ctl plot -o /tmp/flow.svg", "http://fastpath-wan/blob?size="} {
		if !strings.Contains(strings.ReplaceAll(readme, `"`, "'"), s) || !strings.Contains(demo, s) {
			t.Errorf("%q is not in both the README and vagrant/demo", s)
		}
	}
	for _, s := range regexp.MustCompile(`(?:vagrant/provision|/usr/local/lib/fastpath)/([a-z-]+\.sh)`).FindAllStringSubmatch(readme, -1) {
		if _, err := os.Stat(filepath.Join(dir, "provision", s[1])); err != nil {
			t.Error(err)
		}
	}
}
