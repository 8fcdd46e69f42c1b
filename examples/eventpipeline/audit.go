package main

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// Report is what a run printed by -json.
type Report struct {
	Published          int `json:"published"`           // messages that the broker has confirmed, duplicates included
	Distinct           int `json:"distinct"`            // events
	Deliveries         int `json:"deliveries"`          // as the workers counted them
	Kills              int `json:"kills"`               // of workers, by SIGKILL
	BrokerRestarts     int `json:"broker_restarts"`     // by SIGKILL
	Documents          int `json:"documents"`           // events with a document
	DuplicatesAbsorbed int `json:"duplicates_absorbed"` // deliveries that found their document there
	DeadLettered       int `json:"dead_lettered"`       // events that are dead letters, and have no document
	Stranded           int `json:"stranded"`            // the valid ones among them, which should have a document
	Lost               int `json:"lost"`                // events that are neither
	Doubled            int `json:"doubled"`             // documents beside the first of their event
}

// audit counts what is in the database and among the dead letters.
func (r *run) audit(ctx context.Context) (Report, error) {
	docs, err := documents(ctx, r.events)
	if err != nil {
		return Report{}, err
	}
	dead, err := r.deadLetters(ctx)
	if err != nil {
		return Report{}, err
	}
	f := r.fleet
	f.mu.Lock()
	rep := Report{
		Published: r.producer.published, Distinct: len(r.sent), Deliveries: f.counts[delivered], Kills: f.kills,
		BrokerRestarts: r.restarts, DuplicatesAbsorbed: f.counts[absorbed],
	}
	f.mu.Unlock()
	return rep, rep.count(r.sent, docs, dead)
}

// count counts what has become of each event.
func (r *Report) count(all []sent, docs map[string][]Event, dead map[string]bool) error {
	for _, s := range all {
		found := docs[s.id]
		switch {
		case len(found) > 0:
			r.Documents++
			r.Doubled += len(found) - 1
		case dead[s.id]:
			r.DeadLettered++
			if s.valid() {
				r.Stranded++
			}
		default:
			r.Lost++
		}
		for _, e := range found {
			if s.order == nil || e != s.event() {
				return fmt.Errorf("the document of %s is not what was sent", s.id)
			}
		}
		delete(docs, s.id)
	}
	if len(docs) > 0 {
		return fmt.Errorf("%d documents are for events that were never sent", len(docs))
	}
	return nil
}

// documents returns the documents of each event.
func documents(ctx context.Context, events *mongo.Collection) (map[string][]Event, error) {
	cursor, err := events.Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var all []Event
	if err := cursor.All(ctx, &all); err != nil {
		return nil, err
	}
	found := map[string][]Event{}
	for _, e := range all {
		found[e.ID] = append(found[e.ID], e)
	}
	return found, nil
}

// deadLetters returns the IDs of the events that are dead letters, or that an inbox has set aside.
func (r *run) deadLetters(ctx context.Context) (ids map[string]bool, err error) {
	letters, err := rabbitonce.DialDeadLetters(ctx, r.servers.rabbitURL, queueOf(r.fleet.orders.Queue), nil)
	if err != nil {
		return nil, err
	}
	defer letters.Close() //nolint:errcheck // they were read
	list, err := letters.List(ctx, consume.Filter{})
	if err != nil {
		return nil, err
	}
	ids = map[string]bool{}
	for _, l := range list {
		ids[l.Message.ID] = true
	}
	if r.backlog == nil {
		return ids, nil
	}
	entries, err := r.backlog.List(ctx, setAside)
	for _, e := range entries {
		ids[e.ID] = true
	}
	return ids, err
}
