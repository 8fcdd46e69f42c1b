package demo

import (
	"errors"
	"testing"

	"github.com/everonce/everonce/demo/internal/shop"
)

// A forbidden outcome is a failure of the demo, whatever else it shows.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without, with shop.Count
		ok, nothing   bool
	}{
		"as promised":            {without: shop.Count{Doubled: 1, MailsDoubled: 1, MailsLost: 1, Lost: 1}, ok: true},
		"charged twice":          {without: shop.Count{Doubled: 1}, with: shop.Count{Doubled: 1}},
		"never charged":          {without: shop.Count{Doubled: 1}, with: shop.Count{Lost: 1}},
		"mailed twice":           {without: shop.Count{Doubled: 1}, with: shop.Count{MailsDoubled: 1}},
		"never mailed":           {without: shop.Count{Doubled: 1}, with: shop.Count{MailsLost: 1}},
		"nothing to be seen":     {nothing: true},
		"charged twice in both?": {with: shop.Count{Doubled: 1}},
	} {
		r := &result{without: outcome{count: c.without}, with: outcome{count: c.with}}
		if err := r.verdict(); (err == nil) != c.ok || errors.Is(err, errNothingShown) != c.nothing {
			t.Errorf("%s: %v", name, err)
		}
	}
}
