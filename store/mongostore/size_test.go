package mongostore_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/mongostore"
)

// The results of steps leave room in the document, so that what comes after them can be written, elided at the worst: a
// document that is full could neither be renewed nor completed, by anybody (rule 10).
func TestStepsLeaveRoomForWhatFollows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, name := database(t), newCollection(t)
	s, err := mongostore.New(ctx, db, &mongostore.Options{Collection: name})
	noErr(t, err)
	key := everonce.Key{Scope: "orders", ID: "many steps"}
	req := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	res, err := s.Claim(ctx, req)
	noErr(t, err)
	save := func(name string, size int) error {
		step := driver.StepRecord{Name: name, State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided, Codec: "raw"}}
		if size > 0 {
			step.Result.Kind, step.Result.Data = driver.ResultValue, make([]byte, size)
		}
		_, err := s.SaveStep(ctx, driver.SaveStepRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lease: time.Hour, Lifetime: req.Lifetime, Step: step})
		return err
	}
	noErr(t, save("first", 10<<20))
	noErr(t, save("second", 5<<20))
	if err := save("third", 1<<20-2000); !errors.Is(err, driver.ErrTooLarge) { // for which the document has room
		t.Errorf("a step that fills the document: %v, want ErrTooLarge", err)
	}
	noErr(t, save("third", 0))
	const limit = 16 << 20
	raw, err := db.Collection(name).FindOne(ctx, bson.D{{Key: "_id", Value: bson.Binary{Data: req.ID[:]}}}).Raw()
	noErr(t, err)
	if room := limit - len(raw); room < 512<<10 {
		t.Errorf("the document has room for %d bytes", room)
	}
	done := driver.CompleteRequest{
		ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Lifetime: req.Lifetime,
		Result: driver.SavedResult{Kind: driver.ResultElided, Codec: "raw", Summary: make([]byte, driver.MaxSummaryLen)},
	}
	_, err = s.Complete(ctx, done)
	noErr(t, err)
}
