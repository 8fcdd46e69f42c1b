package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/retry"
)

// decision is a pure function of package transition: it returns the record to write, if there is one.
type decision func(rec *driver.Record, now time.Time) (next *driver.Record, err error)

// change reads a record, decides, and writes what was decided if the record is still as it was read; else it begins
// again. No decision is written over a write that it has not seen.
func (s *Store) change(ctx context.Context, id *driver.RecordID, decide decision) error {
	for try := 1; ; try++ {
		doc, now, err := s.read(ctx, id)
		if err != nil {
			return err
		}
		var rec *driver.Record
		if doc != nil {
			if rec, err = doc.record(); err != nil {
				return err
			}
		}
		next, err := decide(rec, now)
		if err != nil || next == nil {
			return err
		}
		var written bool
		if doc != nil {
			written, err = s.replace(ctx, doc, rec, next, now)
		} else {
			written, err = s.insert(ctx, next)
		}
		if err != nil || written {
			return err
		}
		if err := beforeRetry(ctx, try); err != nil {
			return err
		}
	}
}

const (
	firstWait = 200 * time.Microsecond
	lastWait  = 20 * time.Millisecond
	// tries bounds how often one change is tried, for some four seconds: all steps of an attempt may be saved at once.
	tries = driver.MaxSteps
)

var errChanges = errors.New("other writes changed the document before each try (try again)")

// beforeRetry waits a little, and longer each time: for a write of others, which may not be on a majority yet, and is
// not seen until it is.
func beforeRetry(ctx context.Context, try int) error {
	if try == tries {
		return errChanges
	}
	return retry.Pause(ctx, retry.Within(firstWait, lastWait, try))
}

// insert inserts a record where none was found, and reports whether it did.
func (s *Store) insert(ctx context.Context, rec *driver.Record) (bool, error) {
	_, err := s.coll.InsertOne(ctx, documentOf(rec, 1))
	if taken(err) {
		return false, nil
	}
	return err == nil, err
}

// replace writes the next record over the one that was read, if that is unchanged and, where a time has decided, still
// abandoned.
func (s *Store) replace(ctx context.Context, doc *document, rec, next *driver.Record, now time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: doc.ID}, {Key: "n", Value: doc.Nonce}, {Key: "rev", Value: doc.Rev}}
	if rec.State == driver.StateClaimed && rec.Nonce != next.Nonce && rec.StateAt(now) == driver.StateAbandoned {
		filter = append(filter, bson.E{Key: "$expr", Value: lapsed})
	}
	res, err := s.coll.ReplaceOne(ctx, filter, documentOf(next, doc.Rev+1))
	if err != nil {
		return false, err
	}
	return res.MatchedCount == 1, nil
}

// Expressions that the server evaluates, by its clock. For the meaning of a missing date see document.
var (
	updated = ifNull("$u", "$c")
	lapsed  = past(ifNull("$lb", updated), "$lm")
	// gone is [driver.Record.GoneAt]. The last part keeps tokens growing: a key that is inserted again is so at a later
	// time.
	gone = all(
		bson.D{{Key: "$eq", Value: bson.A{"$xu", true}}},
		past(ifNull("$pb", updated), "$pm"),
		either(bson.D{{Key: "$ne", Value: bson.A{"$st", int32(driver.StateClaimed)}}}, lapsed),
		inserted,
	)
	inserted = bson.D{{Key: "$lt", Value: bson.A{ifNull("$ti", "$c"), "$$NOW"}}}
	// tombstone is a completed record of this version, or one before it, whose retention is over.
	tombstone = all(known, is(driver.StateCompleted), past(ifNull("$cp", updated), "$rt"))
	// known is true of what this version, or one before it, wrote.
	known = within("$f", 1, driver.FormatVersion)
	// ended is true of a record that is certainly not a live claim. It is false of one that cannot be read well enough
	// to exclude a live claim.
	ended = either(is(driver.StateReleased), is(driver.StateAbandoned), is(driver.StateCompleted), all(is(driver.StateClaimed), lapsed))
)

func is(state driver.State) bson.D {
	return bson.D{{Key: "$eq", Value: bson.A{"$st", int32(state)}}}
}

func ifNull(date, otherwise any) bson.D {
	return bson.D{{Key: "$ifNull", Value: bson.A{date, otherwise}}}
}

// past reports whether the time ms milliseconds after the date has passed. It is false of a value that is not a date or
// a number, or that no version has written: an expression that cannot be evaluated fails for all the documents that it
// is evaluated for.
func past(date any, ms string) bson.D {
	over := bson.D{{Key: "$lte", Value: bson.A{bson.D{{Key: "$add", Value: bson.A{date, ms}}}, "$$NOW"}}}
	return all(when(all(within(date, bson.DateTime(1), bson.DateTime(lastDate)), within(ms, 0, int64(lastDate))), over, false))
}

func when(cond, yes, no any) bson.D { return bson.D{{Key: "$cond", Value: bson.A{cond, yes, no}}} }

// isDate, and within, tell types by the order that the server has of them: null, numbers, texts, objects, lists, binary
// data, …, booleans, dates, timestamps.
func isDate(value any) bson.D {
	return all(bson.D{{Key: "$gt", Value: bson.A{value, true}}}, bson.D{{Key: "$lt", Value: bson.A{value, bson.Timestamp{}}}})
}

// within is true of values from low to high, and of no other type.
func within(value, low, high any) bson.D {
	return all(bson.D{{Key: "$gte", Value: bson.A{value, low}}}, bson.D{{Key: "$lte", Value: bson.A{value, high}}})
}

func all(parts ...any) bson.D { return bson.D{{Key: "$and", Value: bson.A(parts)}} }

func either(parts ...any) bson.D { return bson.D{{Key: "$or", Value: bson.A(parts)}} }
