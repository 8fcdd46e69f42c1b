package mongostore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
)

// Codes of the server's errors.
const (
	codeDuplicateKey  = 11000
	codeTooLarge      = 10334 // BSONObjectTooLarge
	codeOutOfDisk     = 14031
	codeWriteConflict = 112
	// codeNotImplemented is what FerretDB answers to an option that it does not have.
	codeNotImplemented = 238
)

// tooLargeCodes are the codes for a document that an insert, or an update, would make larger than the server's limit.
var tooLargeCodes = []int{codeTooLarge, 17280, 17419, 17420}

// wrapError names the store, the call and the class of an error. Of a record the server's text holds the hash, and no
// value.
func wrapError(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("mongostore: %s: %w: %w", what, ctx.Err(), err)
	case tooLarge(err):
		return fmt.Errorf("mongostore: %s: %w: %w", what, driver.ErrTooLarge, err)
	case hasCode(err, codeOutOfDisk):
		return fmt.Errorf("mongostore: %s: %w: %w", what, driver.ErrStoreFull, err)
	}
	return fmt.Errorf("mongostore: %s: %w", what, err)
}

func tooLarge(err error) bool {
	if strings.Contains(err.Error(), "an inserted document is too large") { // the driver's own, which it does not export
		return true
	}
	for _, code := range tooLargeCodes {
		if hasCode(err, code) {
			return true
		}
	}
	return false
}

func hasCode(err error, code int) bool {
	se, ok := errors.AsType[mongo.ServerError](err)
	return ok && se.HasErrorCode(code)
}

// duplicate is what a server reports about a violated unique index: MongoDB reports the pattern of its keys and, in the
// text, its name; other servers report only the text.
type duplicate struct {
	name string // empty where the text does not tell
	keys bson.D // nil where the server does not tell
}

// duplicateOf returns what the server reports about the violated index, if err is a duplicate-key error.
func duplicateOf(err error) (d duplicate, ok bool) {
	if we, is := errors.AsType[mongo.WriteException](err); is {
		if we.WriteConcernError != nil {
			return d, false // beside the duplicate, it is not known to be kept
		}
		for _, e := range we.WriteErrors {
			if e.Code == codeDuplicateKey {
				return parseDuplicate(e.Message, e.Raw), true
			}
		}
	}
	if ce, is := errors.AsType[mongo.CommandError](err); is && ce.Code == codeDuplicateKey {
		return parseDuplicate(ce.Message, ce.Raw), true
	}
	return d, false
}

const indexIs = " index: "

// parseDuplicate reads "E11000 duplicate key error collection: shop.event index: event_id dup key: { … }". The
// application's values come after "dup key", so that none of them can pass for a name.
func parseDuplicate(text string, raw bson.Raw) (d duplicate) {
	if head, _, ok := strings.Cut(text, " dup key:"); ok {
		head, _, _ = strings.Cut(head, " collation: {")
		if at := strings.LastIndex(head, indexIs); at >= 0 {
			d.name = head[at+len(indexIs):]
		}
	}
	if pattern, ok := raw.Lookup("keyPattern").DocumentOK(); ok {
		if bson.Unmarshal(pattern, &d.keys) != nil {
			d.keys = nil
		}
	}
	return d
}

// of reports whether the error is about that index: every part that the server reports must match, and at least one
// must be present.
func (d duplicate) of(index Index) bool {
	if d.name == "" && d.keys == nil {
		return false
	}
	return (d.name == "" || d.name == index.Name) && (d.keys == nil || sameKeys(d.keys, index.Keys))
}

// primary is the index that every collection has.
var primary = Index{Name: "_id_", Keys: bson.D{{Key: "_id", Value: 1}}}

// taken reports whether a claim or a release found an existing record.
func taken(err error) bool {
	d, ok := duplicateOf(err)
	return ok && d.of(primary)
}
