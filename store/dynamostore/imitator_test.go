package dynamostore_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/dynamostore"
)

// refusal is what DynamoDB answers where a condition is false.
type refusal struct {
	Type    string          `json:"__type"`
	Message string          `json:"message"`
	Item    json.RawMessage `json:"Item,omitempty"`
	Reasons []struct {
		Code string
		Item json.RawMessage `json:",omitempty"`
	} `json:"CancellationReasons,omitempty"`
}

// answered passes what the server refused through change.
func answered(change func(body []byte) []byte) spoil {
	return func(send func() (*http.Response, error)) (*http.Response, error) {
		res, err := send()
		if err != nil || res.StatusCode != http.StatusBadRequest {
			return res, err
		}
		body, err := io.ReadAll(res.Body)
		if err == nil {
			err = res.Body.Close()
		}
		body = change(body)
		res.Header.Del("X-Amz-Crc32")
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return res, err
	}
}

// bare drops the item from every refusal, as servers do that do not know ReturnValuesOnConditionCheckFailure.
var bare = answered(func(body []byte) []byte {
	var r refusal
	if json.Unmarshal(body, &r) != nil {
		return body
	}
	r.Item = nil
	for i := range r.Reasons {
		r.Reasons[i].Item = nil
	}
	without, err := json.Marshal(&r)
	if err != nil {
		return body
	}
	return without
})

// recordOf is a commit that records the result of a key without a claim of it, as a guess that the key is new.
func recordOf(t testing.TB, s *dynamostore.TxStore, id string) error {
	t.Helper()
	h, _, err := s.Begin(t.Context(), driver.BeginRequest{})
	noErr(t, err)
	claim := claimOf(id)
	return errOf(h.Commit(t.Context(), driver.CommitRequest{Record: &claim, Complete: &driver.CompleteRequest{
		ID: claim.ID, Nonce: claim.Nonce, Lifetime: life, Result: driver.SavedResult{Kind: driver.ResultElided},
	}}))
}

// A server that refuses a condition and does not return the item is refused, and no call that needs the item goes on
// without it: no loop, and no answer (rule 7).
func TestAServerThatDoesNotReturnTheItem(t *testing.T) {
	t.Parallel()
	l, s := overLine(t, 1)
	rec := claimed(t, s, "7")
	noErr(t, writes[2].do(t.Context(), s.Store, rec))
	noErr(t, errOf(s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}})))
	for what, do := range map[string]func() error{
		"Claim": func() error { return errOf(s.Claim(t.Context(), claimOf("7"))) },
		"KeepIdentity": func() error {
			return errOf(s.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}}))
		},
		"Commit": func() error { return recordOf(t, s, "7") },
	} {
		l.spoilAll(bare)
		isFailure(t, what, do())
		if n := len(l.requests()); n != 1 {
			t.Errorf("%s: %d requests, want 1", what, n)
		}
	}
	table := newTable(t)
	for _, which := range []string{"a new table", "a table with settings"} {
		_, err := dynamostore.New(t.Context(), l.over(t, 1), &dynamostore.Options{Table: table})
		if !errors.Is(err, dynamostore.ErrServer) || !strings.Contains(err.Error(), "ReturnValuesOnConditionCheckFailure") {
			t.Errorf("New, %s: %v, want the parameter that the server ignores", which, err)
		}
	}
}

// New refuses a server that ignores conditions. Credentials that may only read are no reason to refuse, nor are writes
// that are throttled.
func TestTheWriteOfNew(t *testing.T) {
	t.Parallel()
	l, table := new(line), newTable(t)
	made := refusing(http.StatusOK, "{}")
	for _, c := range []struct {
		update []spoil
		want   error
	}{{[]spoil{made, made}, dynamostore.ErrServer}, {nil, nil}, {[]spoil{throttled("AccessDeniedException")}, nil}, {[]spoil{throttled("ProvisionedThroughputExceededException")}, nil}} {
		l.spoil(append([]spoil{nil}, c.update...)...)
		if _, err := dynamostore.New(t.Context(), l.over(t, 1), &dynamostore.Options{Table: table}); !errors.Is(err, c.want) {
			t.Errorf("New: %v, want %v", err, c.want)
		}
	}
}

// Migrate creates the table where the server reports its absence as moto does, and refuses a server without a TTL, as
// dynalite is.
func TestMigrateOnOtherServers(t *testing.T) {
	t.Parallel()
	l, opts := new(line), &dynamostore.Options{Table: "t" + rand.Text()}
	l.spoil(throttled("ResourceNotFound"), nil, nil, throttled("UnknownOperationException"))
	if err := dynamostore.Migrate(t.Context(), l.over(t, 1), opts); !errors.Is(err, dynamostore.ErrServer) || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("without a TTL: %v, want ErrServer; the requests were %v", err, l.requests())
	}
	_, err := client(t).DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &opts.Table})
	noErr(t, err)
}

// A write that is refused each time, because others keep changing the item, is a failure after more tries than steps
// may be saved at once, with pauses.
func TestAnItemThatChangesEachTime(t *testing.T) {
	t.Parallel()
	l, s := overLine(t, 1)
	noErr(t, release.do(t.Context(), s.Store, claimed(t, s, "7")))
	for what, do := range map[string]func() error{
		"Claim":  func() error { return errOf(s.Claim(t.Context(), claimOf("7"))) },
		"Commit": func() error { return recordOf(t, s, "7") },
	} {
		var first string
		l.spoilAll(func(send func() (*http.Response, error)) (*http.Response, error) {
			if first != "" {
				return refusing(http.StatusBadRequest, first)(nil)
			}
			return answered(func(body []byte) []byte { first = string(body); return body })(send)
		})
		began := time.Now()
		isFailure(t, what, do())
		if n := len(l.requests()); n < driver.MaxSteps/2 || n > 2*driver.MaxSteps || time.Since(began) < 500*time.Millisecond {
			t.Errorf("%s: %d requests in %v, want some, with pauses between them", what, n, time.Since(began))
		}
	}
}
