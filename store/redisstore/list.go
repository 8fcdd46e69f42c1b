package redisstore

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// defaultPage is the limit of a page that names none.
const defaultPage = 100

// List implements [driver.Lister]. There is no index, because it would slow down every write: each page scans all
// keys of the server (SCAN), and reads the records of the scope. It is for tools, and may take minutes.
func (s *Store) List(ctx context.Context, req driver.ListRequest) (res driver.ListResult, err error) {
	if res, err = s.list(ctx, &req); err != nil {
		return driver.ListResult{}, wrapError("list", err)
	}
	return res, nil
}

func (s *Store) list(ctx context.Context, req *driver.ListRequest) (res driver.ListResult, err error) {
	limit := req.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	if res.Now, err = s.now(ctx); err != nil {
		return res, err
	}
	wanted := func(rec *driver.Record) bool {
		unread := rec.Scope == "" // it may be of this one
		return (req.Scope == "" || unread || rec.Scope.Within(req.Scope)) && (req.Name == "" || rec.Name == req.Name) && !rec.GoneAt(res.Now) &&
			(len(req.States) == 0 || rec.State == 0 || rec.Format > driver.FormatVersion || slices.Contains(req.States, rec.StateAt(res.Now)))
	}
	err = s.scan(ctx, s.pattern(req.Scope, req.KeyHash), func(ids []driver.RecordID) (bool, error) {
		ids = slices.DeleteFunc(ids, func(id driver.RecordID) bool {
			full := len(res.Records) == limit
			return bytes.Compare(id[:], req.After[:]) <= 0 || req.KeyHash != (driver.KeyHash{}) && id.Hash() != req.KeyHash || full && bytes.Compare(id[:], res.Records[limit-1].ID[:]) >= 0
		})
		if len(ids) == 0 {
			return true, nil
		}
		texts, err := s.heads(ctx, ids, "GET")
		if err != nil {
			return false, err
		}
		for i, text := range texts {
			if text == nil {
				continue
			}
			var rec driver.Record
			if _, err := decode(&ids[i], *text, &rec); err != nil { // it must be found to be dealt with
				rec = driver.Record{ID: ids[i], Scope: rec.Scope, Name: rec.Name, Format: rec.Format}
			}
			if wanted(&rec) {
				res.Records = place(res.Records, rec, limit)
			}
		}
		return true, nil
	})
	if err != nil {
		return res, err
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

// place puts a record into a page of the first ones in the order of IDs.
func place(page []driver.Record, rec driver.Record, limit int) []driver.Record {
	i, there := slices.BinarySearchFunc(page, rec.ID, func(r driver.Record, id driver.RecordID) int { return bytes.Compare(r.ID[:], id[:]) })
	if there || i == limit {
		return page
	}
	if len(page) == limit {
		page = page[:limit-1]
	}
	return slices.Insert(page, i, rec)
}

// listSteps reads the steps of a page. A record that has none may have those beside it of one that was evicted, or
// removed by hand.
func (s *Store) listSteps(ctx context.Context, res *driver.ListResult) error {
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
		if err != nil || strings.Trim(count, "\x00") == "" || rec.Format > driver.FormatVersion {
			continue
		}
		hash, err := answers[2*i+1].AsStrMap()
		if err != nil && !isWrongType(err) {
			return err
		}
		if len(hash) == 0 || rec.StateAt(res.Now) == driver.StateTombstone {
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
