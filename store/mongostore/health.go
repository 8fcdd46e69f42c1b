package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/everonce/everonce/driver"
)

// Health implements [driver.HealthChecker] with one aggregation over all records and one query of the server's
// settings.
func (s *Store) Health(ctx context.Context, _ driver.HealthRequest) (h driver.HealthResult, err error) {
	ctx = alone(ctx)
	if h, err = s.count(ctx); err != nil {
		return driver.HealthResult{}, wrapError(ctx, "health", err)
	}
	if h.Notes, err = s.notes(ctx); err != nil {
		return driver.HealthResult{}, wrapError(ctx, "health", err)
	}
	return h, nil
}

// The states that the aggregation gives to a document that is not a record, or is gone, and to one whose state is
// unknown.
const (
	stateNone       = int32(0)
	stateUnreadable = int32(-1)
)

// group is the result of the aggregation for the records of one state.
type group struct {
	State  int32         `bson:"_id"`
	Count  int64         `bson:"n"`
	Oldest bson.DateTime `bson:"old"`
	Now    bson.DateTime `bson:"now"`
}

func (s *Store) count(ctx context.Context) (h driver.HealthResult, err error) {
	isRecord := bson.D{{Key: "$ne", Value: bson.A{"$_id", once}}}
	newer := bson.D{{Key: "$gt", Value: bson.A{"$f", int32(driver.FormatVersion)}}}
	state := when(all(is(driver.StateClaimed), lapsed), int32(driver.StateAbandoned), "$st")
	state = when(gone, stateNone, when(newer, stateUnreadable, state))
	state = when(isRecord, when(either(newer, readable), state, stateUnreadable), stateNone)
	docs, err := s.aggregate(ctx,
		stage{{Key: "$project", Value: bson.D{{Key: "state", Value: state}, {Key: "u", Value: when(isDate(updated), updated, nil)}, {Key: "now", Value: "$$NOW"}}}},
		stage{{Key: "$group", Value: bson.D{
			{Key: "_id", Value: "$state"},
			{Key: "n", Value: bson.D{{Key: "$sum", Value: int64(1)}}},
			{Key: "old", Value: bson.D{{Key: "$min", Value: "$u"}}},
			{Key: "now", Value: bson.D{{Key: "$max", Value: "$now"}}},
		}}})
	if err != nil {
		return h, err
	}
	for _, raw := range docs {
		var g group
		if err := bson.Unmarshal(raw, &g); err != nil {
			return h, err
		}
		if now := at(g.Now); now.After(h.Now) {
			h.Now = now
		}
		switch driver.State(g.State) { //nolint:gosec // small
		case driver.StateClaimed:
			h.Claimed = g.Count
		case driver.StateReleased:
			h.Released = g.Count
		case driver.StateCompleted:
			h.Completed = g.Count
		case driver.StateAbandoned:
			h.Abandoned, h.OldestAbandoned = g.Count, at(g.Oldest)
		default:
			if g.State == stateUnreadable {
				h.Unreadable = g.Count
			}
		}
	}
	if h.Now.IsZero() {
		return h, errGone
	}
	return h, nil
}

// server is a server's description of itself.
type server struct {
	Set    string   `bson:"setName"`
	Router string   `bson:"msg"`
	Hosts  []string `bson:"hosts"`
}

// server asks by both names of the command: a client with a strict version of the API may not use the old one, and not
// every server knows the new one.
func (s *Store) server(ctx context.Context) (is server, err error) {
	err = s.coll.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&is)
	if hasCode(err, codeNoCommand) {
		err = s.coll.Database().RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&is)
	}
	return is, err
}

const codeNoCommand = 59

func (is *server) isRouter() bool { return is.Router == "isdbgrid" }

func (is *server) hasTransactions() bool { return is.Set != "" || is.isRouter() }

// notes say what the server's kind means for what it has acknowledged.
func (s *Store) notes(ctx context.Context) ([]string, error) {
	is, err := s.server(ctx)
	switch {
	case err != nil:
		return nil, err
	case is.isRouter():
		return nil, nil
	case is.Set == "":
		return []string{"The server is no replica set: a majority is this one server, and what its disk loses is lost."}, nil
	case len(is.Hosts) == 1:
		return []string{"The replica set has one member: what its disk loses is lost."}, nil
	}
	return nil, nil
}
