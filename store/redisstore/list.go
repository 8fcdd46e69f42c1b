package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
)

// defaultPage is the limit of a page that names none.
const defaultPage = 100

// List implements [everonce.Lister]. There is no index, because every write would pay for it: the first page of a list scans every key of the
// server (SCAN), and reads the records too if more selects them than their scope's first part and a hash. It is for tools, and may take minutes. The second page scans once more,
// and keeps what it has found for the pages behind it on the same Store: they need another scan only after a minute, or a quarter of a million of records. What has
// come since is not listed. While a cluster moves slots from node to node, a record on its way may be missed.
func (s *Store) List(ctx context.Context, req everonce.ListRequest) (res everonce.ListResult, err error) {
	if res, err = s.list(ctx, &req); err != nil {
		return everonce.ListResult{}, failed("list", err)
	}
	return res, nil
}

func (s *Store) list(ctx context.Context, req *everonce.ListRequest) (res everonce.ListResult, err error) {
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	if res.Now, err = s.now(ctx); err != nil {
		return res, err
	}
	for after, more := req.After, true; more && len(res.Records) < limit; {
		w, err := s.window(ctx, req, after, limit, res.Now)
		if err != nil {
			return res, err
		}
		ids := w.behind(after)
		for len(ids) > 0 && len(res.Records) < limit {
			n := min(len(ids), limit-len(res.Records), readAtOnce)
			recs, err := s.records(ctx, req, ids[:n], res.Now)
			if err != nil {
				return res, err
			}
			res.Records = append(res.Records, recs...)
			after, ids = ids[n-1], ids[n:]
		}
		more = !w.whole
	}
	if len(res.Records) == limit {
		res.Next = res.Records[limit-1].ID
	}
	for i := range res.Records {
		fade(&res.Records[i], res.Now)
	}
	if req.Steps {
		err = s.listSteps(ctx, &res)
	}
	return res, err
}

// readAtOnce is how many records are read in one round trip.
const readAtOnce = 1000

// records reads those of the records that a request selects.
func (s *Store) records(ctx context.Context, req *everonce.ListRequest, ids []everonce.RecordID, now time.Time) (recs []everonce.Record, err error) {
	texts, err := s.heads(ctx, ids, "GET")
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		if text == nil {
			continue
		}
		var rec everonce.Record
		if _, err := decode(&ids[i], *text, &rec); err != nil { // it must be found to be dealt with
			rec = everonce.Record{ID: ids[i], Scope: rec.Scope, Name: rec.Name, Format: rec.Format}
		}
		unread := rec.Scope == "" // it may be of this one
		if (req.Scope == "" || unread || rec.Scope.Within(req.Scope)) && (req.Name == "" || rec.Name == req.Name) && !rec.GoneAt(now) &&
			(len(req.States) == 0 || rec.State == 0 || rec.Format > everonce.FormatVersion || slices.Contains(req.States, rec.StateAt(now))) {
			recs = append(recs, rec)
		}
	}
	return recs, nil
}

// listSteps reads the steps of a page. A record that has none may have those beside it of one that was evicted, or removed by hand.
func (s *Store) listSteps(ctx context.Context, res *everonce.ListResult) error {
	all := make(rueidis.Commands, 0, 2*len(res.Records))
	for i := range res.Records {
		k := s.keys(&res.Records[i].ID)
		all = append(all,
			s.client.B().Arbitrary("GETRANGE").Keys(k.record).Args(strconv.Itoa(offSteps), strconv.Itoa(offSteps+1)).Build(),
			s.client.B().Arbitrary("HGETALL").Keys(k.steps).Build())
	}
	if len(all) == 0 {
		return nil
	}
	answers := s.client.DoMulti(ctx, all...)
	for i := range res.Records {
		rec := &res.Records[i]
		count, err := answers[2*i].ToString()
		if err != nil && !isWrongType(err) {
			return err
		}
		if err != nil || strings.Trim(count, "\x00") == "" || rec.Format > everonce.FormatVersion {
			continue
		}
		hash, err := answers[2*i+1].AsStrMap()
		if err != nil && !isWrongType(err) {
			return err
		}
		if len(hash) == 0 || rec.StateAt(res.Now) == everonce.StateTombstone {
			continue
		}
		flat := make([]string, 0, 2*len(hash))
		for name, step := range hash {
			flat = append(flat, name, step)
		}
		rec.Steps = decodeSteps(&rec.ID, flat)
	}
	return nil
}
