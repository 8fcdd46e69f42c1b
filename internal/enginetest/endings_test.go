package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

func TestPermanent(t *testing.T) {
	detail := []byte(`{"limit":5}`)
	err := everonce.Permanent("card_declined", errors.New("no funds"), detail)
	detail[0] = 'x'
	p := asPermanent(t, err)
	checkEqual(t, "failure", *p, everonce.PermanentError{Code: "card_declined", Message: "no funds", Detail: []byte(`{"limit":5}`)})
	checkEqual(t, "text", err.Error(), "card_declined: no funds")

	p = asPermanent(t, everonce.Permanent("", nil, nil))
	checkEqual(t, "without anything", *p, everonce.PermanentError{Code: "failed"})
	checkEqual(t, "its text", p.Error(), "failed")
	checkEqual(t, "an empty detail", asPermanent(t, everonce.Permanent("x", nil, []byte{})).Detail, []byte(nil))
}

// A permanent failure is the same to the first caller and to every duplicate, whatever is in it.
func TestPermanentErrorFirstEqualsReplay(t *testing.T) {
	const limit = 1000
	long := strings.Repeat("ü", 1000)
	for _, c := range []struct {
		name      string
		err       error
		truncated bool
		code      string
		message   string
		detail    int
	}{
		{"plain", everonce.Permanent("declined", errors.New("no funds"), []byte("detail")), false, "declined", "no funds", 6},
		{"bare", &everonce.PermanentError{}, false, "failed", "", 0},
		{"wrapped", fmt.Errorf("charge: %w", everonce.Permanent("declined", nil, nil)), false, "declined", "", 0},
		{"joined", errors.Join(errors.New("log"), everonce.Permanent("declined", nil, nil)), false, "declined", "", 0},
		{"long code", everonce.Permanent(long, nil, nil), true, long[:64], "", 0},
		{"long message", everonce.Permanent("c", errors.New("x"+long), nil), true, "c", ("x" + long)[:1023], 0},
		{"largest detail", everonce.Permanent("c", nil, make([]byte, limit)), false, "c", "", limit},
		{"detail too large", everonce.Permanent("c", nil, make([]byte, limit+1)), true, "c", "", 0},
		{"not UTF-8", everonce.Permanent("c\xff", errors.New("\xffm"), []byte{0xff, 0}), true, "c\uFFFD", "\uFFFDm", 2},
		{"what JSON escapes", everonce.Permanent("<&>", errors.New("\u2028\x00\"\\"), nil), false, "<&>", "\u2028\x00\"\\", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{MaxResult: limit})
			_, first := do(t, r, keyOf("x"), returns("dropped", c.err), everonce.Rejected, errAny)
			res, second := do(t, r, keyOf("x"), never(t), everonce.Rejected, errAny)
			p := asPermanent(t, first)
			checkEqual(t, "replay", *asPermanent(t, second), *p)
			if first.Error() != second.Error() || second.Error() != p.Error() {
				t.Errorf("texts %q and %q", first, second)
			}
			checkEqual(t, "Truncated", p.Truncated, c.truncated)
			checkEqual(t, "Code", p.Code, c.code)
			checkEqual(t, "Message", p.Message, c.message)
			checkEqual(t, "len(Detail)", len(p.Detail), c.detail)
			checkEqual(t, "the replay's attempt", res.Attempt, 0)
			if !utf8.ValidString(p.Code) || !utf8.ValidString(p.Message) {
				t.Errorf("%q is not UTF-8", p)
			}
		})
	}
}

func TestNotDone(t *testing.T) {
	err := everonce.NotDone(errWork)
	checkErr(t, err, errWork)
	checkEqual(t, "text", err.Error(), errWork.Error())
	if everonce.NotDone(nil) == nil {
		t.Error("NotDone(nil) is no error")
	}
	nested := &everonce.Error{Outcome: everonce.Failed, Cause: everonce.NotDone(errWork)}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"unmarked", errWork, false},
		{"marked", err, true},
		{"NotDone(nil)", everonce.NotDone(nil), true},
		{"wrapped", fmt.Errorf("charge: %w", err), true},
		{"joined", errors.Join(errWork, err), true},
		{"of many", fmt.Errorf("%w: %w", errWork, err), true},
		{"around a permanent failure", everonce.NotDone(everonce.Permanent("x", nil, nil)), true},
		{"permanent", everonce.Permanent("x", nil, nil), false},
		{"of another operation", nested, false},
		{"of another operation, wrapped", fmt.Errorf("inner: %w", nested), false},
	} {
		if got := everonce.IsNotDone(c.err); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Of several errors that are joined the first mark counts, for all of them.
func TestTheFirstOfSeveralMarksCounts(t *testing.T) {
	notDone, refused := everonce.NotDone(errWork), everonce.Permanent("declined", nil, nil)
	for _, c := range []struct {
		name string
		err  error
		want everonce.Outcome
	}{
		{"not done, then refused", errors.Join(errWork, notDone, refused), everonce.Failed},
		{"refused, then not done", errors.Join(errWork, refused, notDone), everonce.Rejected},
		{"refused, then not done, in one text", fmt.Errorf("%w: %w", refused, notDone), everonce.Rejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			do(t, newReceiver(t, memstore.New(nil), everonce.Refuse, nil), keyOf("x"), returns("", c.err), c.want, errAny)
			checkEqual(t, "IsNotDone", everonce.IsNotDone(c.err), c.want == everonce.Failed)
		})
	}
}

// A nil *PermanentError in an error is a mistake that the compiler does not find.
func TestNilPermanentErrorSaysNothing(t *testing.T) {
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	var p *everonce.PermanentError
	do(t, r, keyOf("x"), func(_ context.Context, _ *everonce.Attempt) (string, error) { return "", p }, everonce.Unknown, everonce.ErrOutcomeUnknown)
	checkEqual(t, "state", recordIn(t, s, keyOf("x")).State, driver.StateAbandoned)
	checkEqual(t, "its text", error(p).Error(), "everonce: a nil *PermanentError")
}

// Of an error that joins several, the failure that is saved is the one which made it final: not one of another
// operation, whose error is in it too.
func TestTheFailureThatCountsIsSaved(t *testing.T) {
	var none *everonce.PermanentError
	outer := everonce.Permanent("outer", nil, nil)
	s := memstore.New(nil)
	r := newReceiver(t, s, everonce.Refuse, nil)
	for name, inner := range map[string]error{
		"of an operation inside": everonce.NotDone(everonce.Permanent("inner", nil, nil)),
		"of another operation":   &everonce.Error{Outcome: everonce.NotRecorded, Cause: everonce.Permanent("inner", nil, nil)},
		"nil":                    none,
	} {
		work := func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			if name == "of an operation inside" {
				_, inner = everonce.Do(ctx, r, keyOf("inside"), returns("", inner))
			}
			return "", errors.Join(inner, outer)
		}
		for range 2 {
			_, err := do(t, r, keyOf(name), work, everonce.Rejected, errAny)
			checkEqual(t, name, asPermanent(t, err).Code, "outer")
		}
	}
}

func TestErrorTexts(t *testing.T) {
	for _, c := range []struct {
		err  everonce.Error
		want string
	}{
		{everonce.Error{Outcome: everonce.Unknown}, "everonce: unknown"},
		{everonce.Error{Outcome: everonce.Failed, Cause: errWork}, "everonce: failed: the gateway did not answer"},
		{everonce.Error{Sentinel: everonce.ErrInProgress, KeyHash: "0123", RetryAfter: 1500e6}, "everonce: operation in progress (key 0123), retry after 1.5s"},
		{
			everonce.Error{Sentinel: everonce.ErrOutcomeUnknown, Step: "mail", KeyHash: "0123", Cause: errWork},
			`everonce: outcome unknown: step "mail" (key 0123): the gateway did not answer`,
		},
	} {
		checkEqual(t, "text", c.err.Error(), c.want)
		if s := c.err.Sentinel; s != nil && !errors.Is(&c.err, s) || c.err.Cause != nil && !errors.Is(&c.err, c.err.Cause) {
			t.Errorf("%v is not what it wraps", &c.err)
		}
	}
	if errors.Is(&everonce.Error{}, everonce.ErrStore) || len((&everonce.Error{}).Unwrap()) != 0 {
		t.Error("an empty error wraps something")
	}
}
