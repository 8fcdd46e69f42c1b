package entries_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/sqsonce/internal/entries"
	"github.com/everonce/everonce/outbox"
)

// A call that is refused as a whole is refused for one of its events, which is set aside; the others are published. Where the service
// is away, no event is to blame.
func TestARefusedCallIsForOneOfItsEvents(t *testing.T) {
	for code, others := range map[string]bool{"InvalidMessageContents": true, "ValidationException": true, "InternalError": false} {
		var calls, sent []string
		errs := entries.Publish(t.Context(), []outbox.Event{{ID: "1", Payload: []byte("a")}, {ID: "2", Payload: []byte("bad")}, {ID: "3", Payload: []byte("c")}}, entries.SQS,
			func(e *outbox.Event) (entries.Entry[string], error) {
				return entries.Entry[string]{Is: string(e.Payload), Size: len(e.Payload)}, nil
			},
			func(_ context.Context, list []string) ([]error, error) {
				calls = append(calls, fmt.Sprint(list))
				if slices.Contains(list, "bad") {
					return nil, &smithy.GenericAPIError{Code: code}
				}
				sent = append(sent, list...)
				return make([]error, len(list)), nil
			})
		_, aside := errors.AsType[*everonce.PermanentError](errs[1])
		if aside != others || errors.Is(errs[1], outbox.ErrUnavailable) == others || (errs[0] == nil && errs[2] == nil) != others || slices.Equal(sent, []string{"a", "c"}) != others {
			t.Errorf("%s: the errors are %v, after the calls %v", code, errs, calls)
		}
	}
}
