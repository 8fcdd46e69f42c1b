package consume_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
)

// A dead letter matches only if it matches each field of the filter: what is discarded is gone.
func TestFilter(t *testing.T) {
	t.Parallel()
	last := time.Unix(1_700_000_000, 0)
	letter := consume.DeadLetter{
		ID: "00112233", Queue: "orders",
		Death: consume.Death{Reason: consume.Rejected, KeyHash: "aabbccdd", First: last.Add(-time.Hour), Last: last},
	}
	yes, no := func(*consume.DeadLetter) bool { return true }, func(*consume.DeadLetter) bool { return false }
	never := func(*consume.DeadLetter) bool { t.Error("asked about a dead letter that is not meant"); return true }
	for name, c := range map[string]struct {
		filter consume.Filter
		want   bool
	}{
		"all":                        {consume.Filter{}, true},
		"a limit":                    {consume.Filter{Limit: 1}, true},
		"one of its reasons":         {consume.Filter{Reasons: []consume.Reason{consume.NoKey, consume.Rejected}}, true},
		"another reason":             {consume.Filter{Reasons: []consume.Reason{consume.NoKey}}, false},
		"its queue":                  {consume.Filter{Queue: "orders"}, true},
		"the beginning of a queue":   {consume.Filter{Queue: "order"}, false},
		"its ID":                     {consume.Filter{ID: "00112233"}, true},
		"the beginning of its ID":    {consume.Filter{ID: "0011"}, true},
		"another ID":                 {consume.Filter{ID: "0012"}, false},
		"the end of its ID":          {consume.Filter{ID: "2233"}, false},
		"its key":                    {consume.Filter{KeyHash: "aabbccdd"}, true},
		"the beginning of its key":   {consume.Filter{KeyHash: "aa"}, true},
		"another key":                {consume.Filter{KeyHash: "ab"}, false},
		"its ID, and another key":    {consume.Filter{ID: "0011", KeyHash: "ab"}, false},
		"before a later time":        {consume.Filter{Before: last.Add(1)}, true},
		"before its time":            {consume.Filter{Before: last}, false},
		"before an earlier time":     {consume.Filter{Before: last.Add(-time.Minute)}, false},
		"after an earlier time":      {consume.Filter{After: last.Add(-1)}, true},
		"after its time":             {consume.Filter{After: last}, false},
		"after a later time":         {consume.Filter{After: last.Add(1)}, false},
		"within a span":              {consume.Filter{After: last.Add(-1), Before: last.Add(1)}, true},
		"its key, but before it was": {consume.Filter{KeyHash: "aa", Before: last.Add(-1)}, false},
		"chosen":                     {consume.Filter{KeyHash: "aa", Only: yes}, true},
		"not chosen":                 {consume.Filter{KeyHash: "aa", Only: no}, false},
		"chosen, and another key":    {consume.Filter{KeyHash: "ab", After: last.Add(-1), Only: never}, false},
		"chosen, after its time":     {consume.Filter{After: last, Only: never}, false},
	} {
		if got := c.filter.Matches(&letter); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
