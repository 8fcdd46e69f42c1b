package mongostore_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// A record's times are whole milliseconds, in UTC, and what is shorter is rounded up: no lease and no lifetime is
// shorter than was asked for.
func TestTimesAreMilliseconds(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(t.Context(), database(t), &mongostore.Options{Collection: newCollection(t)})
	noErr(t, err)
	key := everonce.Key{Scope: "times", ID: "1"}
	res, err := s.Claim(t.Context(), driver.ClaimRequest{
		ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Owner: "test", Lease: time.Hour + time.Microsecond,
		Lifetime: driver.Lifetime{Retention: time.Hour + time.Nanosecond, Remember: time.Hour}, ExpireUnsettled: true,
	})
	noErr(t, err)
	rec := res.Record
	if lease, kept := rec.LeaseUntil.Sub(rec.UpdatedAt), rec.PurgeAt.Sub(rec.UpdatedAt); lease != time.Hour+time.Millisecond || kept != 2*time.Hour+time.Millisecond {
		t.Errorf("a lease of %v, and kept for %v", lease, kept)
	}
	for _, at := range []time.Time{rec.CreatedAt, rec.ClaimedAt, rec.UpdatedAt, rec.LeaseUntil, rec.PurgeAt} {
		if at.Location() != time.UTC || !at.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("a time is %v", at)
		}
	}
}
