package inspect

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce/driver"
)

// Text that someone else wrote reaches a terminal as text, and never as a terminal command: a summary and a result may
// hold any bytes.
func TestNothingCommandsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{"\x1b[2J", "\x9b2J", "a\xc2\x9b2J", "a\u202eb", "a\nb"} {
		done := driver.Record{State: driver.StateCompleted, Scope: "s", Name: "i", Owner: evil}
		done.Result = driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte(`"` + evil + `"`), Summary: []byte(evil)}
		left := driver.Record{State: driver.StateAbandoned, Format: driver.FormatVersion, Steps: []driver.StepRecord{{Name: evil, State: driver.StepOpen, Attempt: 1}}}
		for _, rec := range []driver.Record{done, left} {
			r := Of(&rec, time.Time{}, true)
			x := Explain(&rec, time.Time{}, "")
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
					t.Errorf("%s of what is %v: %q is in %q", what, rec.State, evil, b.String())
				}
			}
		}
	}
	if got := printable("Grüße, 日本"); got != "Grüße, 日本" {
		t.Errorf("a good name is written as %s", got)
	}
}

// The explanation of each step, when the operation runs again, depends on how the step ended.
func TestAnExplanationTellsOfTheSteps(t *testing.T) {
	t.Parallel()
	rec := driver.Record{State: driver.StateAbandoned, Format: driver.FormatVersion, Attempt: 2, Steps: []driver.StepRecord{
		{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}},
		{Name: "mail", State: driver.StepOpen, Attempt: 2},
		{Name: "stock", State: driver.StepNotDone, Attempt: 2},
		{Name: "damaged", Attempt: 2},
	}}
	x := Explain(&rec, time.Time{}, "")
	var b strings.Builder
	if err := WriteExplanation(&b, &x); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nIts steps, when it runs:\n", "  charge: replayed: attempt 1 finished it", "  mail: depends: attempt 2 began it",
		"  stock: executed: it did not happen in attempt 2; it runs.", "  damaged: unknown: its result cannot be read",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in %s", want, b.String())
		}
	}
}

// A step's name may come from someone else's input. In a suggested command it is one word, and never a command.
func TestASuggestedCommandNamesTheStep(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{
		"mail":               "--step mail",
		"item-7/a.b:c":       "--step item-7/a.b:c",
		"send mail":          "--step 'send mail'",
		"x; rm -r $(echo ~)": "--step 'x; rm -r $(echo ~)'",
		"it's":               `--step 'it'\''s'`,
		"a\u202eb":           `--step '"a\u202eb"'`,
	} {
		rec := driver.Record{State: driver.StateAbandoned, UnknownStep: step, Format: driver.FormatVersion}
		x := Explain(&rec, time.Time{}, "")
		if notes := strings.Join(x.Notes, "\n"); !strings.Contains(notes, want+" --done") {
			t.Errorf("%q: %s; want %s", step, notes, want)
		}
	}
}

// A result that is not UTF-8 is no JSON, which the output would not be any more.
func TestDataThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	rec := driver.Record{State: driver.StateCompleted, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("\"\xff\"")}}
	out, err := json.Marshal(Of(&rec, time.Time{}, true))
	if err != nil || !utf8.Valid(out) || !strings.Contains(string(out), `"data":"Iv8i"`) {
		t.Errorf("%q, %v", out, err)
	}
}

// A damaged record may have any time. It is written all the same: a listing has others too.
func TestATimeThatCanNotBeWritten(t *testing.T) {
	t.Parallel()
	for _, us := range []int64{math.MinInt64, math.MaxInt64, -1, 253402300800000000} {
		at := time.UnixMicro(us).UTC()
		rec := driver.Record{
			State: driver.StateClaimed, CreatedAt: at, ClaimedAt: at, UpdatedAt: at, LeaseUntil: at, CompletedAt: at, ResultUntil: at, PurgeAt: at,
			Previous: driver.Previous{State: driver.StateReleased, ClaimedAt: at}, Steps: []driver.StepRecord{{Name: "mail", BeganAt: at, EndedAt: at}},
		}
		r := Of(&rec, time.Time{}, true)
		if out, err := json.Marshal(r); err != nil || strings.Contains(string(out), "created_at") != (us == -1) {
			t.Errorf("%d µs: %s, %v", us, out, err)
		}
		if err := WriteRecord(io.Discard, &r, time.Time{}); err != nil {
			t.Error(err)
		}
	}
}
