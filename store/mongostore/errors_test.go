package mongostore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// The meaning of a server's error to the engine: a result that is too large is elided, a full disk is reported as such,
// and after the end of a context the error says so, whatever the driver makes of it.
func TestWhatAServersErrorMeans(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	none := errors.New("none")
	for what, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a case's
		err  error
		want error
	}{
		"too large for the server":         {t.Context(), mongo.CommandError{Code: 10334}, driver.ErrTooLarge},
		"too large, of an update":          {t.Context(), mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 17419}}}, driver.ErrTooLarge},
		"too large for the driver":         {t.Context(), errors.New("an inserted document is too large"), driver.ErrTooLarge},
		"the disk is full":                 {t.Context(), mongo.CommandError{Code: 14031}, driver.ErrStoreFull},
		"the context is over":              {over, errors.New("the connection was closed"), context.Canceled},
		"the context is over, and says so": {over, context.Canceled, context.Canceled},
		"anything else":                    {t.Context(), mongo.CommandError{Code: 13}, none},
	} {
		err := mongostore.Failed(c.ctx, "claim", c.err)
		if !strings.HasPrefix(err.Error(), "mongostore: claim: ") || !strings.Contains(err.Error(), c.err.Error()) {
			t.Errorf("%s: %v does not say what failed, and why", what, err)
		}
		for _, class := range []error{driver.ErrTooLarge, driver.ErrStoreFull, context.Canceled} {
			if errors.Is(err, class) != errors.Is(c.want, class) {
				t.Errorf("%s: %v; want %v", what, err, c.want)
			}
		}
	}
	if err := mongostore.Failed(over, "claim", nil); err != nil {
		t.Errorf("what has not failed: %v", err)
	}
}
