package sdk

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fastpath-tcp/fastpath/plugins/internal/link"
)

var update = flag.Bool("update", false, "write the tables of RECORDS.md anew")

// table shows how a record lies in memory.
func table(b *strings.Builder, title string, t reflect.Type) {
	fmt.Fprintf(b, "\n### %s, %d bytes\n\n| offset | bytes | field | type |\n|---|---|---|---|\n", title, t.Size())
	rows(b, "", 0, t)
}

func rows(b *strings.Builder, prefix string, base uintptr, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Name
		if f.Name == "_" {
			name = "(unused)"
		}
		fmt.Fprintf(b, "| %d | %d | %s | %v |\n", base+f.Offset, f.Type.Size(), name, f.Type)
	}
}

// The tables of RECORDS.md are what the compiler makes of the records, and the layouts what host and module compare.
func TestRecords(t *testing.T) {
	const begin, end = "<!-- tables: go test ./plugins/sdk -update -->\n", "<!-- end of tables -->\n"
	var b strings.Builder
	for _, k := range []struct {
		kind           string
		event, command reflect.Type
	}{
		{"cong", reflect.TypeFor[Sample](), reflect.TypeFor[Decision]()},
		{"pace", reflect.TypeFor[PaceEvent](), reflect.TypeFor[PaceLine]()},
		{"rtx", reflect.TypeFor[RtxEvent](), reflect.TypeFor[RtxCommand]()},
	} {
		table(&b, k.kind+": event "+k.event.String(), k.event)
		table(&b, k.kind+": command "+k.command.String(), k.command)
	}
	table(&b, "host's block", reflect.TypeFor[link.HostBlock]())
	table(&b, "module's block", reflect.TypeFor[link.ModuleBlock]())
	b.WriteString("\n")
	doc, err := os.ReadFile("RECORDS.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(doc), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("RECORDS.md has no place for the tables")
	}
	if *update {
		if err := os.WriteFile("RECORDS.md", []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != b.String() {
		t.Error("the records are others than RECORDS.md shows: go test ./plugins/sdk -update. If an old module would misread them, see ProtocolVersion")
	}
}
