package copies_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/internal/copies"
)

func TestANoteIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	want := copies.Note{
		Retries: 3, Replays: 2, First: at, Queue: "orders", Dropped: []string{"a, b", "c"},
		Death: consume.Death{
			Reason: consume.Exhausted, Detail: "no", Consumer: "billing", Source: "orders", KeyHash: "aa", Attempts: 4, First: at, Last: at.Add(time.Hour),
		},
	}
	headers := map[string]string{"mine": "1", copies.Reason: "forged", copies.Prefix + "other": "forged"}
	want.Write(headers)
	if got := copies.Read(headers); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if headers["mine"] != "1" || headers[copies.Prefix+"other"] != "" {
		t.Errorf("the headers are %v", headers)
	}
	(&copies.Note{}).Write(headers)
	if !maps.Equal(headers, map[string]string{"mine": "1"}) {
		t.Errorf("an empty note leaves %v", headers)
	}
}

func TestInvalidHeadersCountAsMissing(t *testing.T) {
	got := copies.Read(map[string]string{copies.Retries: "-1", copies.Replays: "99999999999", copies.First: "yesterday", copies.Dropped: "a,b", copies.Attempts: "x"})
	if !reflect.DeepEqual(got, copies.Note{}) {
		t.Errorf("%+v", got)
	}
}

func TestFitDropsTheLargestOfTheProducers(t *testing.T) {
	headers := map[string]string{"small": "1", "large": strings.Repeat("x", 5000), "larger": strings.Repeat("y", 6000), copies.Detail: strings.Repeat("z", copies.MaxDetail)}
	if dropped := copies.Fit(headers, 1<<20, 8); dropped != nil {
		t.Errorf("dropped %q without need", dropped)
	}
	dropped := copies.Fit(headers, 8000, 8)
	if !reflect.DeepEqual(dropped, []string{"larger"}) || headers["larger"] != "" || len(headers) != 3 {
		t.Errorf("dropped %q", dropped)
	}
	if dropped := copies.Fit(headers, 1000, 8); !reflect.DeepEqual(dropped, []string{"large", "small"}) || headers[copies.Detail] == "" {
		t.Errorf("dropped %q", dropped)
	}
}
