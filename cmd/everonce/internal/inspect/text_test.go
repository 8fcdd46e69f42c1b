package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// What somebody else wrote reaches a terminal as text, and as no command of the terminal's: a summary and a result may hold any bytes.
func TestNothingCommandsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{"\x1b[2J", "\x9b2J", "a\xc2\x9b2J", "a\u202eb", "a\nb"} {
		rec := everonce.Record{State: everonce.StateCompleted, Scope: "s", Name: "i", Owner: evil}
		rec.Result = everonce.SavedResult{Kind: everonce.ResultValue, Codec: "json", Data: []byte(`"` + evil + `"`), Summary: []byte(evil)}
		r := Of(&rec, time.Time{}, true)
		x := Explain(&rec, time.Time{})
		for what, write := range map[string]func(*strings.Builder) error{
			"list":        func(b *strings.Builder) error { return WriteList(b, []Record{r}) },
			"record":      func(b *strings.Builder) error { return WriteRecord(b, &r, time.Time{}) },
			"explanation": func(b *strings.Builder) error { return WriteExplanation(b, &x) },
		} {
			var b strings.Builder
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), evil) {
				t.Errorf("%s: %q is in %q", what, evil, b.String())
			}
		}
	}
	if got := text("Grüße, 日本"); got != "Grüße, 日本" {
		t.Errorf("a good name is written as %s", got)
	}
}
