package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/saga"
)

// participant is a service that takes part in the sagas of the order service: it does one action, and takes it back.
type participant struct {
	database *database
	half     *saga.Participant[*sql.Tx] // nil: built without
	work
}

// work is what a participant does, in its own database.
type work struct {
	tables []string
	// act returns a receipt, or an error of everonce.Permanent if it refuses.
	act  func(ctx context.Context, tx *sql.Tx, o *Order) (receipt string, err error)
	undo func(ctx context.Context, tx *sql.Tx, o *Order) error
}

// do does the action of a branch, or its compensation.
func (p *participant) do(ctx context.Context, b saga.Branch, o *Order) (receipt string, err error) {
	if p.half == nil {
		return p.doAnyway(ctx, b, o)
	}
	if b.Compensating {
		return "", p.half.Compensate(ctx, b, func(ctx context.Context, tx *sql.Tx) error { return p.undo(ctx, tx, o) })
	}
	res, err := saga.Action(ctx, p.half, b, func(ctx context.Context, tx *sql.Tx) (string, error) { return p.act(ctx, tx, o) })
	return res.Value, err
}

// ServeHTTP takes actions and compensations. 422 says that the action was refused for good, or was compensated before
// it came; after 503 the client asks again.
func (p *participant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := saga.ParseBranch(r.Header.Get)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, "there is no order in the body", http.StatusBadRequest)
		return
	}
	receipt, err := p.do(r.Context(), b, &o)
	var refused *everonce.PermanentError
	switch {
	case errors.As(err, &refused) && !errors.Is(err, everonce.ErrStore): // and the refusal is recorded
		http.Error(w, refused.Message, http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		fmt.Fprint(w, receipt)
	}
}
