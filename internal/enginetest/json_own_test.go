package enginetest

import (
	"encoding"
	"encoding/json"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

type (
	// event has the JSON of the time that it embeds: {"2026-…"}, whatever the amount.
	event struct {
		time.Time
		Amount int `json:"amount"`
	}
	pointedEvent struct {
		*time.Time
		Amount int
	}
	// level has a text of its own, and no JSON.
	level   int
	levelOf struct {
		level
		Of string
	}
	anyJSON struct {
		json.Marshaler
		Amount int
	}
	anyText struct {
		encoding.TextMarshaler
		Amount int
	}
	deepEvent   struct{ event }
	deeperEvent struct {
		Tag string
		deepEvent
	}
	sum struct {
		big.Int
		Currency string
	}
	// twoJSONs has none: neither of the two is nearer.
	twoJSONs struct {
		time.Time
		cents
	}
	details struct {
		time.Time
		account
	}
	onlyPrice struct{ price }
	Page      struct {
		Event event
		Next  *Page
	}

	// stamp embeds one that writes itself, and nothing else.
	stamp  struct{ time.Time }
	tagged struct {
		time.Time
		Amount int `json:"-"`
	}
	// ownEvent and ownSum write themselves, with all that they have.
	ownEvent struct {
		time.Time
		Amount int
	}
	ownSum struct {
		*big.Int
		Currency string
	}
	// boxed has the JSON of its time, and ownBoxed one of its own.
	boxed[T any] struct {
		time.Time
		Value T
	}
	ownBoxed[T any] struct {
		time.Time
		Value T
	}
	base  struct{ ID string }
	named struct {
		base
		Name string
	}
	namedTime struct {
		time.Time `json:"at"`
		Amount    int
	}
)

func (l level) MarshalText() ([]byte, error) { return []byte(strconv.Itoa(int(l))), nil }

func (e ownEvent) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"at": e.Time, "amount": e.Amount})
}

func (e *ownEvent) UnmarshalJSON(data []byte) error {
	var parts struct {
		At     time.Time `json:"at"`
		Amount int       `json:"amount"`
	}
	err := json.Unmarshal(data, &parts)
	e.Time, e.Amount = parts.At, parts.Amount
	return err
}

func (b ownBoxed[T]) MarshalJSON() ([]byte, error) { return json.Marshal([]any{b.Time, b.Value}) }

func (b *ownBoxed[T]) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&b.Time, &b.Value})
}

func (s *ownSum) MarshalJSON() ([]byte, error) { return json.Marshal(s.String() + s.Currency) }

func (s *ownSum) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	s.Int, s.Currency = new(big.Int), text[len(text)-3:]
	s.SetString(text[:len(text)-3], 10)
	return err
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// What embeds a type that writes itself has that one's JSON, which says nothing of the other fields: two requests must not be
// taken for one, and a duplicate not get a part for the whole.
func TestTheJSONOfWhatIsEmbedded(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	at := noon
	checkBorrowed(t, r, "a time and more", event{noon, 1})
	checkBorrowed(t, r, "of a generic type", boxed[int]{noon, 1})
	checkBorrowed(t, r, "a pointer to it", &event{noon, 1})
	checkBorrowed(t, r, "a pointer in it", pointedEvent{&at, 1})
	checkBorrowed(t, r, "with the name of a field", namedTime{noon, 1})
	checkBorrowed(t, r, "a text", levelOf{1, "x"})
	checkBorrowed(t, r, "an interface", anyJSON{cents{1}, 1})
	checkBorrowed(t, r, "an interface of a text", anyText{level(1), 1})
	checkBorrowed(t, r, "embedded twice", deepEvent{event{noon, 1}})
	checkBorrowed(t, r, "embedded three times", deeperEvent{"x", deepEvent{event{noon, 1}}})
	checkBorrowed(t, r, "with what else is embedded", details{noon, account{B: 1}})
	checkBorrowed(t, r, "by its address alone", &sum{*big.NewInt(1), "EUR"})
	checkBorrowed(t, r, "without its address", sum{*big.NewInt(1), "EUR"})
	checkBorrowed(t, r, "two of them", twoJSONs{noon, cents{1}})
	checkBorrowed(t, r, "in a list", []event{{noon, 1}})
	checkBorrowed(t, r, "in an array of pointers", [1]*event{{noon, 1}})
	checkBorrowed(t, r, "in a map", map[string]event{"a": {noon, 1}})
	checkBorrowed(t, r, "as a map's key", map[event]int{{noon, 1}: 1})
	checkBorrowed(t, r, "in a field", struct{ E event }{event{noon, 1}})
	checkBorrowed(t, r, "in what is embedded", struct {
		base
		Page
	}{base{"x"}, Page{Event: event{noon, 1}}})
	checkBorrowed(t, r, "behind a pointer of its own kind", &Page{Next: &Page{Event: event{noon, 1}}})
	checkBorrowed(t, r, "in an interface", struct{ V any }{event{noon, 1}})
	checkBorrowed(t, r, "nothing exported is embedded", onlyPrice{price{1}})
}

func checkBorrowed[T any](t *testing.T, r *everonce.Receiver, name string, v T) {
	t.Helper()
	checkKept(t, name, v, false)
	for _, f := range []everonce.Fingerprint{everonce.FingerprintOf("id", v), everonce.FingerprintJSON(v)} {
		do(t, r, keyOf(name), never(t), everonce.Invalid, everonce.ErrInvalidArgument, f)
	}
}

// A type whose JSON is its own, or says all that there is, is kept, and told from others.
func TestAJSONThatSaysAll(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	checkOwn(t, r, "its own", ownEvent{noon, 1}, ownEvent{noon, 2})
	checkOwn(t, r, "its own, by a pointer", &ownSum{big.NewInt(1), "EUR"}, &ownSum{big.NewInt(1), "USD"})
	checkOwn(t, r, "its own, of a generic type", ownBoxed[int]{noon, 1}, ownBoxed[int]{noon, 2})
	checkOwn(t, r, "in a list", []ownEvent{{noon, 1}}, []ownEvent{{noon, 2}})
	checkOwn(t, r, "a time alone", stamp{noon}, stamp{noon.Add(1)})
	checkOwn(t, r, "what is not of JSON", tagged{noon, 0}, tagged{noon.Add(1), 0})
	checkOwn(t, r, "embedded fields", named{base{"1"}, "x"}, named{base{"2"}, "x"})
	checkOwn(t, r, "zero", event{}, event{})
	checkOwn(t, r, "no pointer", &Page{}, &Page{Next: &Page{}})
}

func checkOwn[T any](t *testing.T, r *everonce.Receiver, name string, v, other T) {
	t.Helper()
	checkKept(t, name, v, true)
	for _, of := range []func(T) everonce.Fingerprint{
		func(v T) everonce.Fingerprint { return everonce.FingerprintOf(v) }, func(v T) everonce.Fingerprint { return everonce.FingerprintJSON(v) },
	} {
		f := of(v)
		do(t, r, keyOf(name+f.Alg), returns("v", nil), everonce.Executed, nil, f)
		want, err := everonce.Replayed, error(nil)
		if name != "zero" {
			want, err = everonce.Mismatch, everonce.ErrMismatch
		}
		do(t, r, keyOf(name+f.Alg), never(t), want, err, of(other))
	}
}
