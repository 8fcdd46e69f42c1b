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

// A call that is refused as a whole is refused for one of its events, which is set aside; the others are published. If
// the service is unavailable, no event is set aside.
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

// The client of the service refuses an event, as the service itself would: the others are published.
func TestTheClientRefuses(t *testing.T) {
	for _, refusal := range []error{smithy.InvalidParamsError{Context: "Input"}, &smithy.SerializationError{Err: errors.New("no")}} {
		errs := entries.Publish(t.Context(), []outbox.Event{{ID: "1", Payload: []byte("a")}, {ID: "2", Payload: []byte("bad")}}, entries.SQS,
			func(e *outbox.Event) (entries.Entry[string], error) {
				return entries.Entry[string]{Is: string(e.Payload)}, nil
			},
			func(_ context.Context, list []string) ([]error, error) {
				if slices.Contains(list, "bad") {
					return nil, &smithy.OperationError{ServiceID: "SQS", OperationName: "SendMessageBatch", Err: refusal}
				}
				return make([]error, len(list)), nil
			})
		if _, aside := errors.AsType[*everonce.PermanentError](errs[1]); !aside || errs[0] != nil {
			t.Errorf("%T: %v", refusal, errs)
		}
	}
}

// An event that is as large as the service takes is sent, and one of a byte more is refused; so are more attributes than ten.
func TestLimits(t *testing.T) {
	size := func(bytes int) error {
		return entries.Publish(t.Context(), []outbox.Event{{ID: "1", Payload: []byte("a")}}, entries.Limits{Entries: 10, Bytes: 100},
			func(*outbox.Event) (entries.Entry[int], error) { return entries.Entry[int]{Size: bytes}, nil },
			func(_ context.Context, list []int) ([]error, error) { return make([]error, len(list)), nil })[0]
	}
	if _, aside := errors.AsType[*everonce.PermanentError](size(101)); size(100) != nil || !aside {
		t.Errorf("100 bytes: %v; 101 bytes: %v", size(100), size(101))
	}
	e := outbox.Event{ID: "1", Type: "t", ContentType: "c", Headers: map[string]string{}}
	for n := range 8 {
		e.Headers[fmt.Sprint("h", n)] = "x"
		all, err := entries.Attributes(&e)
		if _, described := all[entries.AttributeEvent]; (err != nil) != (n >= 7) || described != (n < 6) {
			t.Errorf("%d headers: %v, %v", n+1, err, all)
		}
	}
}
