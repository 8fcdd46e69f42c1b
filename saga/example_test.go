package saga_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/saga"
)

// A step needs a compensation, or has to say that it is final.
func ExampleDefine() {
	book := func(context.Context, *saga.Call[string]) (any, error) { return nil, nil }
	unbook := func(context.Context, *saga.Call[string]) error { return nil }
	_, err := saga.Define("journey", 1,
		saga.Step[string, *sql.Tx]{Name: "flight", Action: book, Compensation: unbook},
		saga.Step[string, *sql.Tx]{Name: "hotel", Action: book, Compensation: unbook, Concurrent: true},
		saga.Step[string, *sql.Tx]{Name: "ticket", Action: book, Final: true},
	)
	fmt.Println(err)
	_, err = saga.Define("journey", 1, saga.Step[string, *sql.Tx]{Name: "flight", Action: book})
	fmt.Println(errors.Is(err, everonce.ErrInvalidArgument))
	// Output:
	// <nil>
	// true
}

// A branch travels in headers.
func ExampleParseBranch() {
	sent := make(http.Header)
	for name, value := range (saga.Branch{Saga: "order-7", Step: "charge", Compensating: true}).Headers() {
		sent.Set(name, value)
	}
	b, err := saga.ParseBranch(sent.Get)
	fmt.Println(b.Saga, b.Step, b.Compensating, err)
	// Output: order-7 charge true <nil>
}
