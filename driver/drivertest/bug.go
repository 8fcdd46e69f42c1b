package drivertest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
)

// bug is a known mistake, planted into any store that passes the suite: the check that is named must fail
// then, or it tests nothing.
type bug struct {
	name   string
	caught string // the name of the check
	// plant puts the mistake between the suite and the store.
	plant func(h Harness) Harness
	// tries is how often the check is run until it fails, if it shows the mistake only by chance. Default 1.
	tries int
	// pointless says why the mistake cannot be made on a store; empty where it can.
	pointless func(h Harness, caps Capabilities) string
}

// verdict is a cell of the table.
type verdict struct{ bug, by, how string }

// runBugs plants each bug into separate stores, and watches the named check fail.
func runBugs(t *testing.T, factory Factory, caps Capabilities, checks []check, bugs []bug) {
	t.Helper()
	byName := make(map[string]check)
	for _, c := range checks {
		byName[c.name] = c
	}
	verdicts := make([]verdict, len(bugs))
	t.Run("PlantedBugs", func(t *testing.T) {
		t.Parallel()
		t.Cleanup(func() { report(t, verdicts) })
		for i, b := range bugs {
			t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				c, ok := byName[b.caught]
				if !ok {
					t.Fatalf("drivertest: there is no check %q", b.caught)
				}
				verdicts[i] = verdict{bug: b.name, by: c.name}
				h := factory(t)
				if b.pointless != nil {
					if why := b.pointless(h, caps); why != "" {
						verdicts[i].by, verdicts[i].how = "not applicable", why
						return
					}
				}
				if c.needs != nil && !c.needs(caps) {
					verdicts[i].by, verdicts[i].how = "not applicable", "the store does not have the power that the check tests"
					return
				}
				var failures []string
				for try := 0; len(failures) == 0 && try < max(b.tries, 1); try++ {
					failures = watch(t, func(r *recorder) { c.run(newEnv(r, b.plant(h), caps)) })
				}
				if len(failures) == 0 {
					t.Fatalf("with the bug %q planted, %s still passes: the check is blind", b.name, c.name)
				}
				verdicts[i].how = failures[0]
			})
		}
	})
}

// report prints the table, and writes it to a file in the folder that EVERONCE_BUG_TABLE names, if it
// names one, so that the columns of several stores can be joined.
func report(t testing.TB, verdicts []verdict) {
	var b strings.Builder
	table(&b, verdicts)
	t.Logf("planted bugs:\n%s", b.String())
	dir := os.Getenv("EVERONCE_BUG_TABLE")
	if dir == "" {
		return
	}
	var tsv strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&tsv, "%s\t%s\t%s\n", v.bug, v.by, strings.NewReplacer("\n", " ", "\t", " ").Replace(v.how))
	}
	file := filepath.Join(dir, strings.NewReplacer("/", "_", " ", "_").Replace(filepath.Base(os.Args[0])+"_"+t.Name())+".tsv")
	if err := os.WriteFile(file, []byte(tsv.String()), 0o600); err != nil { //nolint:gosec // the folder is the tester's choice
		t.Errorf("EVERONCE_BUG_TABLE: %v", err)
	}
}

func table(w io.Writer, verdicts []verdict) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "bug\tcaught by\tas")
	for _, v := range verdicts {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", v.bug, v.by, strings.ReplaceAll(v.how, "\n", " "))
	}
	_ = tw.Flush() //nolint:errcheck // into a strings.Builder
}
