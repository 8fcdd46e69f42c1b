package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/everonce/everonce"
)

// ofRides is how the scopes of this route end. They begin with the account.
var ofRides = "/" + string(everonce.ScopeOf(http.MethodPost, "/rides"))

// finish sends again what has been idle for that long: its client may never come back. Call it once a minute, in one
// process or in several. It returns how many it has found.
func (s *service) finish(ctx context.Context, idle time.Duration) (found int, err error) {
	list := everonce.ListRequest{States: []everonce.State{everonce.StateReleased, everonce.StateAbandoned}}
	for {
		page, err := s.store.List(ctx, list)
		if err != nil {
			return found, err
		}
		for _, rec := range page.Records {
			switch {
			case !strings.HasSuffix(string(rec.Scope), ofRides): // another route's
				continue
			case rec.UnknownStep != "": // a person has to settle it
				continue
			case page.Now.Sub(rec.UpdatedAt) < idle: // its client may still be at it
				continue
			}
			found++
			key := everonce.Key{Scope: rec.Scope, ID: rec.Name}
			err := s.again(ctx, key)
			if errors.Is(err, sql.ErrNoRows) {
				err = s.drop(ctx, key, everonce.Settlement{Verdict: everonce.SettleNotDone, Token: rec.Token, By: "finish"})
			}
			if err != nil {
				return found, err
			}
		}
		if page.Next == (everonce.RecordID{}) {
			return found, nil
		}
		list.After = page.Next
	}
}

// again is the request of a record once more: an ordinary repetition, which gets as far as it gets.
func (s *service) again(ctx context.Context, key everonce.Key) error {
	var account, header string
	var body []byte
	err := s.store.DB().QueryRowContext(ctx, `SELECT account, key, body FROM ride WHERE scope = ? AND name = ?`, key.Scope, key.ID).
		Scan(&account, &header, &body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(as(ctx, account), http.MethodPost, "/rides", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", header)
	w := httptest.NewRecorder()
	if s.protects.ServeHTTP(w, req); w.Code >= http.StatusBadRequest { // it will be found again, or somebody has to look
		log.Printf("%s: %d", key.ID, w.Code)
	}
	return nil
}

// drop is for a process that died before its first step: nothing was done, and only the client knows what it had asked
// for. If that comes back, its request runs. Without this the record would be unknown for ever.
func (s *service) drop(ctx context.Context, key everonce.Key, notDone everonce.Settlement) error {
	err := s.receiver.Settle(ctx, key, notDone)
	if errors.Is(err, everonce.ErrNotUnknown) || errors.Is(err, everonce.ErrInProgress) || errors.Is(err, everonce.ErrLeaseLost) {
		return nil // it is released already, or its client has just come back
	}
	return err
}
