package dynamostore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Complete implements [driver.Store]: one call.
func (s *Store) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	if err := fits("complete", len(req.Result.Data)); err != nil {
		return res, err
	}
	now := s.now()
	w := write{drop: []string{attrUnknown, attrLease, attrCodec, attrData, attrSummary}, put: attributes{
		attrState: number(driver.StateCompleted), attrUpdated: number(micros(now)), attrCompleted: number(micros(now)),
		attrRetained: number(micros(now.Add(req.Lifetime.Retention))),
	}}
	w.put.putResult(&req.Result)
	w.expires(true, now.Add(req.Lifetime.Total()))
	return res, wrapError("complete", s.update(ctx, &req.ID, req.Token, req.Nonce, &w, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Complete(rec, req, now)
	}))
}

// Release implements [driver.Store]: one call, and two for a release by nonce of an existing claim.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	decide := func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Release(rec, req, now)
		return next, err
	}
	if req.Token == 0 {
		return res, wrapError("release", s.change(ctx, nil, decide))
	}
	now := s.now()
	w := write{drop: []string{attrLease, attrUnknown, attrLastError}, put: attributes{attrState: number(req.State), attrUpdated: number(micros(now))}}
	w.put.putText(attrUnknown, req.Step)
	w.put.putText(attrLastError, req.ErrorClass)
	w.expires(req.State == driver.StateReleased || req.ExpireUnsettled, now.Add(req.Lifetime.Total()))
	err = s.update(ctx, &req.ID, req.Token, req.Nonce, &w, decide)
	return res, wrapError("release", err)
}

// write is the change of an update: it removes the attributes in drop that are not in put.
type write struct {
	put  attributes
	drop []string
}

// expires sets when the record goes, or that it does not.
func (w *write) expires(yes bool, at time.Time) {
	w.put[attrExpires] = flag(yes)
	if !yes {
		w.drop = append(w.drop, attrPurge, attrTTL)
		return
	}
	w.put[attrPurge], w.put[attrTTL] = number(micros(at)), number(ttl(at))
}

// update writes to the record that the attempt with that token and nonce holds. If the attempt does not hold it, or has
// already written this, the current record decides.
func (s *Store) update(ctx context.Context, id *driver.RecordID, token driver.Token, nonce driver.Nonce, w *write, decide decision) error {
	names := map[string]string{"#rev": attrRevision, "#tk": attrToken, "#n": attrNonce, "#st": attrState, "#v": attrFormat}
	values := attributes{
		":one": number(1), ":tk": number(token), ":n": bytes(nonce[:]), ":held": number(driver.StateClaimed), ":v": number(driver.FormatVersion),
	}
	var set, remove strings.Builder
	set.WriteString("SET #rev = #rev + :one")
	for name, value := range w.put {
		names["#p_"+name], values[":p_"+name] = name, value
		fmt.Fprintf(&set, ", #p_%s = :p_%s", name, name)
	}
	for _, name := range w.drop {
		if _, put := w.put[name]; put {
			continue
		}
		names["#p_"+name] = name
		fmt.Fprintf(&remove, ", #p_%s", name)
	}
	if remove.Len() > 0 {
		set.WriteString(" REMOVE" + remove.String()[1:])
	}
	update := set.String()
	held := condition{text: "#tk = :tk AND #n = :n AND #st = :held AND #v <= :v"}
	if _, renews := w.put[attrLease]; renews { // a late renewal must not shorten a lease
		held.text += " AND #p_" + attrLease + " <= :p_" + attrLease
	}
	err := patiently(ctx, func() error {
		_, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: s.table, Key: key(id), UpdateExpression: &update, ConditionExpression: held.expression(), ExpressionAttributeNames: names,
			ExpressionAttributeValues: values, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return err
	})
	found, written, err := conditionResult(err, false)
	if err != nil || written {
		return err
	}
	return s.change(ctx, found, decide)
}

// fits refuses what has no place in an item.
func fits(what string, size int) error {
	if size > MaxResult {
		return fmt.Errorf("dynamostore: %s: %w: %d bytes, the limit is %d", what, driver.ErrTooLarge, size, MaxResult)
	}
	return nil
}
