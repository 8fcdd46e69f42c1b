package demo

import (
	"errors"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/audit"
)

// What must not happen is a failure of the demo, whatever else it shows.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without, with audit.Count
		ok, nothing   bool
	}{
		"as promised":            {without: audit.Count{Doubled: 1, MailsDoubled: 1, MailsLost: 1, Lost: 1}, ok: true},
		"charged twice":          {without: audit.Count{Doubled: 1}, with: audit.Count{Doubled: 1}},
		"never charged":          {without: audit.Count{Doubled: 1}, with: audit.Count{Lost: 1}},
		"mailed twice":           {without: audit.Count{Doubled: 1}, with: audit.Count{MailsDoubled: 1}},
		"never mailed":           {without: audit.Count{Doubled: 1}, with: audit.Count{MailsLost: 1}},
		"nothing to be seen":     {nothing: true},
		"charged twice in both?": {with: audit.Count{Doubled: 1}},
	} {
		r := &Result{Without: Run{Count: c.without}, With: Run{Count: c.with}}
		if err := r.Verdict(); (err == nil) != c.ok || errors.Is(err, ErrNothingShown) != c.nothing {
			t.Errorf("%s: %v", name, err)
		}
	}
}
