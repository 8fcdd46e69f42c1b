package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Purge implements [driver.Store]. A Limit of 0 is 1000. A whole purge reads the whole table, once or twice; where the
// table's TTL is on, it is needed only for results whose retention is over and for claims whose process died under
// everonce.Reexecute.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	left := req.Limit
	if left <= 0 {
		left = defaultBatch
	}
	var from attributes
	if p := s.purged.Load(); p != nil {
		from = *p
	}
	err = s.purge(ctx, from, &left, &res)
	if err == nil && !res.More && from != nil { // what has become due in front of it
		if res.More = left == 0; !res.More {
			err = s.purge(ctx, nil, &left, &res)
		}
	}
	return res, wrapError("purge", err)
}

// purge goes through the table from a key on, until its end, or until nothing is left of the limit. Then More is set,
// and the next call goes on there.
func (s *Store) purge(ctx context.Context, from attributes, left *int, res *driver.PurgeResult) (err error) {
	now := s.now()
	s.purged.Store(nil)
	due := filter{
		text:   aws.String("#pu <= :now OR #ru <= :now"),
		names:  map[string]string{"#pu": attrPurge, "#ru": attrRetained},
		values: attributes{":now": number(micros(now))},
	}
	scanned := s.scan(ctx, from, due, func(item attributes, more bool) bool {
		var done bool
		rec, unreadable := item.record()
		action := transition.Keep
		switch {
		case unreadable == nil:
			action = transition.Purge(rec, now)
		case item.over(now):
			action = transition.Remove
		}
		switch action {
		case transition.Keep:
			return true
		case transition.Remove:
			if done, err = s.remove(ctx, item); done {
				res.Records++
			}
		case transition.DropResult:
			if _, done, err = s.put(ctx, transition.Drop(rec), item); done {
				res.Results++
			}
		}
		if done {
			*left--
		}
		if err != nil || *left == 0 && more {
			res.More = err == nil
			at := attributes{attrPartition: item[attrPartition], attrSort: item[attrSort]}
			s.purged.Store(&at)
			return false
		}
		return true
	})
	if err == nil {
		err = scanned
	}
	return err
}
