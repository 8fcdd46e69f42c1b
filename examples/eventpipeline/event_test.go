package main

import (
	"errors"
	"testing"

	"github.com/everonce/everonce"
)

// An event that no retry can repair is refused permanently: it is a dead letter at once.
func TestValidate(t *testing.T) {
	t.Parallel()
	good := Order{Customer: "c", Cents: 1, Corrects: "order-1"}
	if err := validate("order-2", good); err != nil {
		t.Error(err)
	}
	for code, bad := range map[string]Order{
		"no_customer":     {Cents: 1},
		"not_positive":    {Customer: "c", Cents: -1},
		"corrects_itself": {Customer: "c", Cents: 1, Corrects: "order-2"},
	} {
		refused, ok := errors.AsType[*everonce.PermanentError](validate("order-2", bad))
		if !ok || refused.Code != code {
			t.Errorf("%+v: %v", bad, refused)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for want, order := range map[string]Order{
		"small":      {Cents: 99_99},
		"large":      {Cents: 100_00},
		"correction": {Cents: 100_00, Corrects: "order-1"},
	} {
		if got := classify(order); got != want {
			t.Errorf("%+v: %s, want %s", order, got, want)
		}
	}
}
