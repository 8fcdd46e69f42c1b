package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/everonce/everonce"
)

// finish sends again what has been idle for that long: its client may never come back. Call it once a minute, in one
// process or in several.
func (s *service) finish(ctx context.Context, idle time.Duration) (sent int, err error) {
	list := everonce.ListRequest{States: []everonce.State{everonce.StateReleased, everonce.StateAbandoned}}
	for {
		page, err := s.store.List(ctx, list)
		if err != nil {
			return sent, err
		}
		for _, rec := range page.Records {
			if rec.UnknownStep != "" || page.Now.Sub(rec.UpdatedAt) < idle {
				continue // a person has to settle it; or its client may still be at it
			}
			switch err := s.again(ctx, &rec); {
			case err == nil:
				sent++
			case !errors.Is(err, sql.ErrNoRows): // it did not get as far as its first step: there is nothing to finish
				return sent, err
			}
		}
		if page.Next == (everonce.RecordID{}) {
			return sent, nil
		}
		list.After = page.Next
	}
}

// again is the request of a record once more: an ordinary repetition, which gets as far as it gets.
func (s *service) again(ctx context.Context, rec *everonce.Record) error {
	var account, key string
	var body []byte
	err := s.store.DB().QueryRowContext(ctx, `SELECT account, key, body FROM ride WHERE scope = ? AND name = ?`, rec.Scope, rec.Name).
		Scan(&account, &key, &body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(as(ctx, account), http.MethodPost, "/rides", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", key)
	s.protects.ServeHTTP(httptest.NewRecorder(), req)
	return nil
}
