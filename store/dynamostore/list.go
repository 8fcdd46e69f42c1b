package dynamostore

import (
	"context"
	"slices"
	"strings"

	"github.com/everonce/everonce/driver"
)

// defaultPage is the limit of a page that names none.
const defaultPage = 100

// List implements [driver.Lister]. Within a scope it queries the scope's partitions. Without one, each page reads the
// whole table, because DynamoDB keeps partitions in no order: it is for tools, which should ask for long pages.
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
	res.Now = s.now()
	wanted := func(rec *driver.Record) bool {
		told := rec.State != 0 && rec.Format <= driver.FormatVersion
		return compare(&rec.ID, &req.After) > 0 && !rec.GoneAt(res.Now) && (req.Name == "" || rec.Name == req.Name) &&
			(req.KeyHash == driver.KeyHash{} || rec.ID.Hash() == req.KeyHash) && (len(req.States) == 0 || !told || slices.Contains(req.States, rec.StateAt(res.Now)))
	}
	add := func(item attributes) {
		rec, _ := item.record() //nolint:errcheck // what cannot be read must be found to be dealt with
		if !wanted(rec) {
			return
		}
		if rec.Result = (driver.SavedResult{}); !req.Steps {
			rec.Steps = nil
		}
		res.Records = place(res.Records, rec, limit+1) // one more: there is a next page
	}
	if req.Scope != "" {
		first, last := bounds(req.Scope, req.KeyHash, req.After)
		err = s.inScope(ctx, req.Scope, first, last, func(item attributes) bool {
			add(item)
			return len(res.Records) <= limit
		})
	} else {
		err = s.scan(ctx, nil, filter{}, func(item attributes, _ bool) bool {
			add(item)
			return true
		})
	}
	if len(res.Records) > limit {
		res.Records = res.Records[:limit]
		res.Next = res.Records[limit-1].ID
	}
	return res, err
}

func compare(a, b *driver.RecordID) int { return strings.Compare(string(a[:]), string(b[:])) }

// place puts a record into a page of the first ones in the order of IDs.
func place(page []driver.Record, rec *driver.Record, limit int) []driver.Record {
	i, _ := slices.BinarySearchFunc(page, rec.ID, func(r driver.Record, id driver.RecordID) int { return compare(&r.ID, &id) })
	if i == limit {
		return page
	}
	if len(page) == limit {
		page = page[:limit-1]
	}
	return slices.Insert(page, i, *rec)
}
