package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// Order is what a producer sends: an order, or the correction of one.
type Order struct {
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
	// Corrects is the ID of an earlier event. That one is final: a correction is a new event.
	Corrects string `json:"corrects,omitempty"`
}

// Event is what is kept of it: whole at its first insert, and never changed.
type Event struct {
	ID       string `bson:"event_id"`
	Customer string `bson:"customer"`
	Country  string `bson:"country"`
	Cents    int64  `bson:"cents"`
	Class    string `bson:"class"`
	Corrects string `bson:"corrects,omitempty"`
}

// eventOf makes the event of a message: valid, enriched and classified.
func eventOf(ctx context.Context, customers *directory, m *consume.Message, o Order) (Event, error) {
	e := Event{ID: m.ID, Customer: o.Customer, Cents: o.Cents, Corrects: o.Corrects}
	if err := validate(m.ID, o); err != nil {
		return e, err
	}
	var err error
	if e.Country, err = customers.country(ctx, o.Customer); err != nil {
		return e, err
	}
	e.Class = classify(o)
	return e, nil
}

// validate refuses for good what no retry makes better.
func validate(id string, o Order) error {
	switch {
	case o.Customer == "":
		return everonce.Permanent("no_customer", errors.New("an order has a customer"), nil)
	case o.Cents <= 0:
		return everonce.Permanent("not_positive", errors.New("an order has a positive amount"), nil)
	case o.Corrects == id:
		return everonce.Permanent("corrects_itself", errors.New("a correction must be a new event"), nil)
	}
	return nil
}

// directory knows the customers, and remembers whom it has looked up.
type directory struct {
	customers *mongo.Collection
	known     sync.Map
}

// country looks a customer up. One that is not known may be known later: a retry, or a replay of the dead letter, finds
// it.
func (d *directory) country(ctx context.Context, customer string) (string, error) {
	if country, ok := d.known.Load(customer); ok {
		return country.(string), nil //nolint:forcetypeassert // nothing else is stored
	}
	var found struct {
		Country string `bson:"country"`
	}
	err := d.customers.FindOne(ctx, bson.D{{Key: "_id", Value: customer}}).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return "", errors.New("the customer is not known yet")
	case err != nil: // of the database, and not of this message
		return "", fmt.Errorf("looking up a customer: %w: %w", everonce.ErrStore, err)
	}
	d.known.Store(customer, found.Country)
	return found.Country, nil
}

// classify says what kind of order it is.
func classify(o Order) string {
	switch {
	case o.Corrects != "":
		return "correction"
	case o.Cents >= 100_00:
		return "large"
	}
	return "small"
}
