package oncetest

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

var noon = time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC)

type (
	money struct {
		Currency string
		cents    int
	}
	debit    struct{ Account string }
	credit   struct{ Account string }
	transfer struct {
		debit
		credit
		ID string
	}
	// stamped has the JSON of its time.
	stamped struct {
		time.Time
		Amount int
	}
	envelope struct {
		ID   string
		Data any
	}
	node struct {
		Name   string
		Next   *node
		Parent *node `json:"-"`
	}
	// deadline encodes itself, with all that it holds.
	deadline struct{ at time.Time }
	// amount encodes itself, and looks different each time that it is decoded.
	amount  struct{ cents, read int }
	invoice struct{ Sum amount }
)

func (d deadline) MarshalJSON() ([]byte, error)     { return json.Marshal(d.at) }
func (d *deadline) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &d.at) }

func (a *amount) MarshalJSON() ([]byte, error)    { return json.Marshal(a.cents) }
func (a *amount) UnmarshalJSON(data []byte) error { a.read++; return json.Unmarshal(data, &a.cents) }
func (a amount) Equal(b amount) bool              { return a.cents == b.cents } //nolint:revive // a value is asked

func TestRoundTripFindsLostFields(t *testing.T) {
	checkLost(t, "unexported field", money{"EUR", 5}, "value.cents: 5 became 0")
	checkLost(t, "unexported field in a list", []money{{"EUR", 0}, {"EUR", 5}}, "value[1].cents: 5 became 0")
	checkLost(t, "unexported field in a map", map[string]*money{"a": {"EUR", 5}}, `value["a"].cents: 5 became 0`)
	checkLost(t, "no exported field", struct{ cents int }{5}, "cannot be encoded")
	checkLost(t, "clashing fields", transfer{debit{"a"}, credit{"b"}, "7"}, `value.debit.Account: "a" became ""`, `value.credit.Account: "b" became ""`)
	checkLost(t, "embedded marshaler", stamped{noon, 5}, "value.Amount: 5 became 0")
	checkLost(t, "int in an interface", envelope{"7", 5}, "value.Data: int 5 became float64 5")
	checkLost(t, "struct in an interface", envelope{"7", money{"EUR", 0}}, `value.Data: oncetest.money{Currency:"EUR", cents:0} became map[string]interface {}{"Currency":"EUR"}`)
	checkLost[any](t, "interface itself", 5, "type interface {}", "value: int 5 became float64 5")
	checkLost[error](t, "interface with methods", &time.ParseError{Layout: "x"}, "cannot be decoded")
	checkLost(t, "field left out by its tag", &node{Parent: &node{Name: "b"}}, `value.Parent: oncetest.node{Name:"b"`, "became nil")
	checkLost(t, "empty list left out", struct {
		List []int `json:",omitempty"`
	}{[]int{}}, "value.List: []int{} became []int(nil)")
	checkLost(t, "empty map left out", struct {
		Map map[string]int `json:",omitempty"`
	}{map[string]int{}}, "value.Map: map[string]int{} became map[string]int(nil)")
	checkLost(t, "text that is not UTF-8", "\xff", "cannot be encoded", "UTF-8")
	checkLost(t, "no JSON", make(chan int), "cannot be encoded", "ErrResultElided", "chan int")
	checkLost(t, "unexported time", struct {
		Name string
		at   time.Time
	}{"x", noon}, "value.at: time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC) became time.Date(1, time.January")
}

func checkLost[T any](t *testing.T, name string, v T, want ...string) {
	t.Run(name, func(t *testing.T) {
		r := recorded(t, func(tb testing.TB) { RoundTrip(tb, nil, v) })
		if !r.Failed() {
			t.Error("not found")
		}
		for _, part := range want {
			if !strings.Contains(r.text(), part) {
				t.Errorf("%s\nwant %s", r.text(), part)
			}
		}
	})
}

func TestRoundTripAcceptsEqualValues(t *testing.T) {
	local := time.FixedZone("CEST", 7200)
	RoundTrip(t, nil, money{Currency: "EUR"}, money{})
	RoundTrip(t, nil, &node{Name: "a", Next: &node{Name: "b"}}, nil)
	RoundTrip(t, nil, noon.In(local), time.Now())
	RoundTrip(t, nil, deadline{time.Now()}, deadline{noon.In(local)})
	RoundTrip(t, nil, struct{ time.Time }{time.Now()})
	RoundTrip(t, nil, &invoice{amount{cents: 5}})
	RoundTrip(t, nil, big.NewInt(7), new(big.Int))
	RoundTrip(t, nil, [2][]string{{"a"}, nil}, [2][]string{{}, {""}})
	RoundTrip(t, nil, map[int]map[string]bool{1: {"a": true}, 2: nil})
	RoundTrip(t, nil, []byte("\xff"))
	RoundTrip(t, nil, json.RawMessage("{\"a\": 1}\n"))
	RoundTrip[any](t, nil, nil, 5.0, "a", []any{true, nil, map[string]any{"a": "b"}})
	RoundTrip(t, everonce.Raw(), "\xff", "")
	RoundTrip(t, gobCodec{}, complex(3, 4))
}

// RoundTrip compares the value that comes back with the given value, using the given codec.
func TestRoundTripUsesTheCodec(t *testing.T) {
	for name, codec := range map[string]everonce.Codec{"other keys": fixed{data: `{"b":1,"c":2}`}, "more": fixed{data: `{"a":1,"b":1,"c":1}`}, "unreadable": fixed{data: "{"}, "failing": fixed{err: errors.New("broken")}} {
		r := recorded(t, func(tb testing.TB) { RoundTrip(tb, codec, map[string]int{"a": 1, "b": 1}) })
		if !r.Failed() {
			t.Errorf("%s: not found", name)
		}
	}
}

func TestRoundTripReports(t *testing.T) {
	for name, c := range map[string]struct {
		values []any
		want   string
	}{
		"nothing to test": {nil, "needs a value"},
		"every value":     {[]any{"a", 5, "b", 6}, "int 6 became float64 6"},
		"the encoding":    {[]any{5}, "encoded: `5`"},
		"a long part":     {[]any{[]string{strings.Repeat("é", 1000)}}, strings.Repeat("é", 100)},
		"many parts":      {[]any{manyInts(25)}, "and 5 more"},
	} {
		r := recorded(t, func(tb testing.TB) { RoundTrip(tb, nil, c.values...) })
		if text := r.text(); !r.Failed() || !strings.Contains(text, c.want) || strings.Count(text, "became") > 20 || strings.Count(text, "é") > 1400 {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func manyInts(n int) (list []any) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// A value that leads back to itself is compared once.
func TestRoundTripOfARing(t *testing.T) {
	RoundTrip(t, ringCodec{}, newRing(1))
	r := recorded(t, func(tb testing.TB) { RoundTrip(tb, ringCodec{}, newRing(2)) })
	if !strings.Contains(r.text(), "value.n: 2 became 1") {
		t.Error(r.text())
	}
}

type ring struct {
	n    int
	next *ring
}

func newRing(n int) *ring {
	r := &ring{n: n}
	r.next = r
	return r
}

// ringCodec always reads the ring of one.
type ringCodec struct{}

func (ringCodec) Marshal(any) ([]byte, error) { return nil, nil }

func (ringCodec) Unmarshal(_ []byte, v any) error {
	p, ok := v.(**ring)
	if !ok {
		return errors.New("no ring")
	}
	*p = newRing(1)
	return nil
}

type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// fixed writes the same for every value.
type fixed struct {
	data string
	err  error
}

func (f fixed) Marshal(any) ([]byte, error) { return []byte(f.data), f.err }

func (fixed) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
