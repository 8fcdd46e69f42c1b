package mongostore

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
)

// An error that every document would get comes from the store. An error of one document does not.
func TestWhatIsOfTheServerAndNotOfTheDocument(t *testing.T) {
	write := func(code int) error {
		return mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: code, Message: "m"}}}
	}
	for name, tc := range map[string]struct {
		err   error
		store bool
	}{
		"no connection":          {errors.New("server selection timeout"), true},
		"out of time":            {context.DeadlineExceeded, true},
		"cut":                    {mongo.CommandError{Labels: []string{"NetworkError"}}, true},
		"an election":            {mongo.CommandError{Code: 189}, true},
		"to be tried again":      {mongo.WriteException{Labels: []string{"RetryableWriteError"}}, true},
		"no majority":            {mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64}}, true},
		"a majority, unknown":    {mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 1}}, true},
		"not allowed":            {mongo.CommandError{Code: 13}, true},
		"a full disk":            {write(codeOutOfDisk), true},
		"not valid":              {write(121), false},
		"another index":          {write(codeDuplicateKey), false},
		"larger than the server": {wrapError(t.Context(), "insert once", write(codeTooLarge)), false},
	} {
		if got := errors.Is(markUnavailable(tc.err), driver.ErrStore); got != tc.store {
			t.Errorf("%s: of the store %v, want %v", name, got, tc.store)
		}
	}
}
