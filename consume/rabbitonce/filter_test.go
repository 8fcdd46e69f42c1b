package rabbitonce_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
)

// A letter is meant by all that a filter says, or it is not: what is discarded is gone.
func TestWhatAFilterMeans(t *testing.T) {
	t.Parallel()
	last := time.Unix(1_700_000_000, 0)
	letter := rabbitonce.Letter{
		ID: "00112233", Queue: "orders",
		DeadLetter: consume.DeadLetter{Reason: consume.Rejected, KeyHash: "aabbccdd", First: last.Add(-time.Hour), Last: last},
	}
	yes, no := func(*rabbitonce.Letter) bool { return true }, func(*rabbitonce.Letter) bool { return false }
	never := func(*rabbitonce.Letter) bool { t.Error("asked about a letter that is not meant"); return true }
	for name, c := range map[string]struct {
		filter rabbitonce.Filter
		want   bool
	}{
		"all":                        {rabbitonce.Filter{}, true},
		"a limit":                    {rabbitonce.Filter{Limit: 1}, true},
		"one of its reasons":         {rabbitonce.Filter{Reasons: []consume.Reason{consume.NoKey, consume.Rejected}}, true},
		"another reason":             {rabbitonce.Filter{Reasons: []consume.Reason{consume.NoKey}}, false},
		"its queue":                  {rabbitonce.Filter{Queue: "orders"}, true},
		"the beginning of a queue":   {rabbitonce.Filter{Queue: "order"}, false},
		"its ID":                     {rabbitonce.Filter{ID: "00112233"}, true},
		"the beginning of its ID":    {rabbitonce.Filter{ID: "0011"}, true},
		"another ID":                 {rabbitonce.Filter{ID: "0012"}, false},
		"the end of its ID":          {rabbitonce.Filter{ID: "2233"}, false},
		"its key":                    {rabbitonce.Filter{KeyHash: "aabbccdd"}, true},
		"the beginning of its key":   {rabbitonce.Filter{KeyHash: "aa"}, true},
		"another key":                {rabbitonce.Filter{KeyHash: "ab"}, false},
		"its ID, and another key":    {rabbitonce.Filter{ID: "0011", KeyHash: "ab"}, false},
		"before a later time":        {rabbitonce.Filter{Before: last.Add(1)}, true},
		"before its time":            {rabbitonce.Filter{Before: last}, false},
		"before an earlier time":     {rabbitonce.Filter{Before: last.Add(-time.Minute)}, false},
		"after an earlier time":      {rabbitonce.Filter{After: last.Add(-1)}, true},
		"after its time":             {rabbitonce.Filter{After: last}, false},
		"after a later time":         {rabbitonce.Filter{After: last.Add(1)}, false},
		"within a span":              {rabbitonce.Filter{After: last.Add(-1), Before: last.Add(1)}, true},
		"its key, but before it was": {rabbitonce.Filter{KeyHash: "aa", Before: last.Add(-1)}, false},
		"chosen":                     {rabbitonce.Filter{KeyHash: "aa", Only: yes}, true},
		"not chosen":                 {rabbitonce.Filter{KeyHash: "aa", Only: no}, false},
		"chosen, and another key":    {rabbitonce.Filter{KeyHash: "ab", After: last.Add(-1), Only: never}, false},
		"chosen, after its time":     {rabbitonce.Filter{After: last, Only: never}, false},
	} {
		if got := c.filter.Matches(&letter); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
