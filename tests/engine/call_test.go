package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// Of an option of another type the error names both types, also where the result is an interface.
func TestOptionOfAnotherTypeIsNamed(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for _, o := range []everonce.CallOption{
		everonce.WithSummary(func(string) []byte { return nil }),
		everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[string], error) {
			return everonce.StillUnknown[string](), nil
		}),
	} {
		_, err := everonce.Do(t.Context(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (error, error) { return nil, nil }, o)
		checkErr(t, err, everonce.ErrInvalidArgument)
		if err != nil && (!strings.HasSuffix(err.Error(), "the result is of the type error") || !strings.Contains(err.Error(), "string")) {
			t.Errorf("got %q", err)
		}
	}
}
