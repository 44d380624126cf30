// Command script runs packet scripts, in the language of packetdrill, against the stack on virtual time: the packets that a script
// sends, the system calls that it makes, and the packets and results that it expects, with their times.
//
//	go run ./test/script [--exact] [--NAME=VALUE...] FILE...
//
// For each file it prints PASS, FAIL with what differs, or UNSUPPORTED with the statement that the stack or the runner does not have.
// Options are those of packetdrill and go before those in the file. With --exact times must hold to the microsecond, timestamps are
// compared, and what the script does not expect fails it; without, the tolerances are packetdrill's. The exit status is 1 if a script
// failed or cannot be read, 2 if there is none of these but one that is not supported.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fastpath-tcp/fastpath/test/script/lang"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(argv []string, out, errs io.Writer) int {
	var override []lang.Option
	var files []string
	for i := 0; i < len(argv); i++ {
		a := argv[i]
		switch {
		case strings.HasPrefix(a, "-D") && len(a) > 2:
			override = append(override, lang.Option{Name: "define", Value: a[2:]})
		case strings.HasPrefix(a, "--"):
			name, value, _ := strings.Cut(a[2:], "=")
			override = append(override, lang.Option{Name: name, Value: value})
		default:
			files = append(files, a)
		}
	}
	if len(files) == 0 {
		fmt.Fprintln(errs, "usage: script [--exact] [--NAME=VALUE...] FILE...")
		return 1
	}
	count := map[Verdict]int{}
	for _, f := range files {
		o := RunFile(f, override)
		count[o.Verdict]++
		report(out, f, &o)
	}
	if len(files) > 1 {
		fmt.Fprintf(out, "%d passed, %d failed, %d not supported, %d not readable\n", count[Pass], count[Fail], count[Unsupported], count[Broken])
	}
	switch {
	case count[Fail]+count[Broken] > 0:
		return 1
	case count[Unsupported] > 0:
		return 2
	}
	return 0
}

func report(out io.Writer, file string, o *Outcome) {
	for _, w := range o.Warnings {
		fmt.Fprintf(out, "%s: %s\n", file, w)
	}
	if o.Verdict == Pass {
		fmt.Fprintf(out, "PASS %s\n", file)
		return
	}
	fmt.Fprintf(out, "%v %s:%d: %s\n", o.Verdict, file, o.Line, o.Text)
}
