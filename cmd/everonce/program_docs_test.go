package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The reference has every flag of every command, with its default and its help text, and no other. The flags of proxy
// are its settings: TestProxyReference.
func TestProgramReference(t *testing.T) {
	inTable := map[string]string{} // "command --flag" → "default | usage"
	_, page, _ := strings.Cut(readPage(t, "reference/program.md"), "\n## Flags\n")
	page, _, _ = strings.Cut(page, "\n## ")
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.SplitN(strings.Trim(strings.TrimSpace(line), "| "), " | ", 3)
		if len(cells) != 3 {
			t.Fatalf("this row has not four cells: %s", line)
		}
		flag, rest := strings.Trim(cells[1], "`"), cells[2]
		for _, command := range strings.Split(cells[0], ", ") {
			inTable[strings.Trim(command, "`")+" "+flag] = rest
		}
	}
	root := (&app{}).root()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "proxy" {
			return
		}
		name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), root.Name()), " ")
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { checkFlag(t, inTable, name, f) })
		cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { checkFlag(t, inTable, name, f) })
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for flag := range inTable {
		t.Errorf("docs/reference/program.md has a row of no flag: %s", flag)
	}
}

// checkFlag compares a flag with its row, and takes the row away.
func checkFlag(t *testing.T, inTable map[string]string, command string, f *pflag.Flag) {
	t.Helper()
	if f.Name == "help" {
		return
	}
	flag := command + " --" + f.Name
	def := ""
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
	default:
		def = "`" + f.DefValue + "`"
	}
	want := strings.TrimSpace(def + " | " + f.Usage)
	if got, ok := inTable[flag]; !ok {
		t.Errorf("docs/reference/program.md has no row for %s: %s", flag, want)
	} else if strings.TrimSpace(got) != want {
		t.Errorf("docs/reference/program.md says of %s\n%s, and --help\n%s", flag, got, want)
	}
	delete(inTable, flag)
}
