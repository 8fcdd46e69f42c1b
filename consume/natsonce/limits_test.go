package natsonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
)

// A server ends the connection after a publish to too long a subject, and does not answer one to a subject with an
// empty part. Such an event is refused, and others are published.
func TestSubjectsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.publisher(nil)
	prefix := b.queue.Stream + "."
	for _, c := range []struct {
		subject string
		refused bool
	}{
		{prefix + strings.Repeat("x", 4000-len(prefix)), false},
		{prefix + strings.Repeat("x", 4001-len(prefix)), true},
		{prefix + strings.Repeat("x", 5000), true},
		{prefix, true},
		{prefix + "a..b", true},
		{"." + prefix + "a", true},
		{prefix + "a b", true},
		{prefix + "*", true},
		{"", true},
		{"$JS.API.STREAM.PURGE." + b.queue.Stream, true},
		{"$SYS.REQ.USER.INFO", true},
	} {
		e := b.event("e-" + c.subject[:min(len(c.subject), 20)])
		e.Topic = c.subject
		errs := p.Publish(context.Background(), []outbox.Event{e, b.event("beside")})
		if _, permanent := errors.AsType[*everonce.PermanentError](errs[0]); permanent != c.refused || errs[0] != nil && !permanent || errs[1] != nil {
			t.Errorf("%.40q with %d bytes: %v", c.subject, len(c.subject), errs)
		}
	}
}
