package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

type (
	amount   int32
	currency string
	flag     bool
	body     []byte
	when     time.Time
	account  struct {
		B int   `json:"b"`
		A []int `json:"a"`
	}
	cents struct{ n int }
)

func (c cents) MarshalJSON() ([]byte, error) { return json.Marshal(c.n) }

// The sums were computed by another implementation.
func TestFingerprintOfVectors(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 7, time.UTC)
	for _, c := range []struct {
		name  string
		parts []any
		want  string
	}{
		{"nothing", nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"nil", []any{nil}, "594e519ae499312b29433b7dd8a97ff068defcba9755b6d5d00e84c524d67b06"},
		{"strings", []any{"ab", "c"}, "16cfe7ba6140ff84325c74b24c7336b2d503a0500e553d6c6ebe75d5eb873544"},
		{"strings with another border", []any{"a", "bc"}, "68b4237dd807c5a1cbe5a1ff9b75429f8d0fec41dcca164341ab33785ce4b0b4"},
		{"bytes", []any{[]byte("ab")}, "0f722ba11bf19ee72b21044e614da8dc07af99e4d3be54d40718d7c4a36f09bb"},
		{"named bytes", []any{body("ab")}, "0f722ba11bf19ee72b21044e614da8dc07af99e4d3be54d40718d7c4a36f09bb"},
		{"int", []any{1}, "c4301e8aaf94fa472f44437799d09b1d7d1097297db3b978611674c06093f189"},
		{"int8", []any{int8(1)}, "c4301e8aaf94fa472f44437799d09b1d7d1097297db3b978611674c06093f189"},
		{"int32", []any{int32(1)}, "c4301e8aaf94fa472f44437799d09b1d7d1097297db3b978611674c06093f189"},
		{"int64", []any{int64(1)}, "c4301e8aaf94fa472f44437799d09b1d7d1097297db3b978611674c06093f189"},
		{"named int", []any{amount(1)}, "c4301e8aaf94fa472f44437799d09b1d7d1097297db3b978611674c06093f189"},
		{"duration", []any{time.Duration(1)}, "c4301e8aaf94fa472f44437799d09b1d7d1097297db3b978611674c06093f189"},
		{"negative", []any{-1}, "7f24dc3b6d75f4db3e7154a6d32f23271f133db55ce3c4582bd02f1b0e7542c1"},
		{"2^53+1", []any{int64(1<<53 + 1)}, "554eb7ddc8520df15c9a9693aba20d7d6bb0eea4aaed181fc60467d1d39d791c"},
		{"uint", []any{uint(1)}, "0b50d412cd93c2817a0887aa04f98628723657f922cc5ce10fe95dd5c8affd09"},
		{"uint8", []any{uint8(1)}, "0b50d412cd93c2817a0887aa04f98628723657f922cc5ce10fe95dd5c8affd09"},
		{"uint32", []any{uint32(1)}, "0b50d412cd93c2817a0887aa04f98628723657f922cc5ce10fe95dd5c8affd09"},
		{"uint64", []any{uint64(1)}, "0b50d412cd93c2817a0887aa04f98628723657f922cc5ce10fe95dd5c8affd09"},
		{"string of it", []any{"1"}, "393d93d857e3fe04dcf387f143da964eddb029ec0ced66e9cf1ea248327e7fb6"},
		{"named string", []any{currency("1")}, "393d93d857e3fe04dcf387f143da964eddb029ec0ced66e9cf1ea248327e7fb6"},
		{"json.Number", []any{json.Number("1")}, "393d93d857e3fe04dcf387f143da964eddb029ec0ced66e9cf1ea248327e7fb6"},
		{"bools", []any{true, false}, "8541c2d149faea7b7e534fcd56f5d352c7ed5a620d81394c002a17f07e18a567"},
		{"named bools", []any{flag(true), flag(false)}, "8541c2d149faea7b7e534fcd56f5d352c7ed5a620d81394c002a17f07e18a567"},
		{"float64", []any{1.5}, "3e230c337144fa90267e8cb99b440c8b1f28f6b38db35fa4bdae13862a67e947"},
		{"float32", []any{float32(1.5)}, "3e230c337144fa90267e8cb99b440c8b1f28f6b38db35fa4bdae13862a67e947"},
		{"time", []any{at}, "f801c9dcff410a565bcffd7acdb3aefbc231e77c35513493ececbd67c61ec56a"},
		{"the same instant elsewhere", []any{at.In(time.FixedZone("", 7200))}, "f801c9dcff410a565bcffd7acdb3aefbc231e77c35513493ececbd67c61ec56a"},
		{"named time", []any{when(at)}, "f801c9dcff410a565bcffd7acdb3aefbc231e77c35513493ececbd67c61ec56a"},
		{"struct", []any{account{B: 1, A: []int{2}}}, "0c62b0ad3500ffb44191db581ce40b078dee2e929088c9a119ecc94a09a23788"},
		{"pointer to it", []any{&account{B: 1, A: []int{2}}}, "0c62b0ad3500ffb44191db581ce40b078dee2e929088c9a119ecc94a09a23788"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := everonce.FingerprintOf(c.parts...)
			checkEqual(t, "Alg", f.Alg, "parts/1")
			checkEqual(t, "Sum", hex.EncodeToString(f.Sum[:]), c.want)
		})
	}
}

func TestFingerprintOfTellsApart(t *testing.T) {
	at := time.Unix(1, 0)
	seen := map[[32]byte]int{}
	for i, parts := range [][]any{
		{},
		{nil},
		{nil, nil},
		{""},
		{"", ""},
		{[]byte{}},
		{[]byte{}, []byte{}},
		{"a"},
		{[]byte("a")},
		{"a", nil},
		{"ab", "c"},
		{"a", "bc"},
		{"abc"},
		{0},
		{uint(0)},
		{0.0},
		{math.Copysign(0, -1)},
		{"0"},
		{false},
		{true},
		{1},
		{"1"},
		{1.0},
		{uint64(math.MaxUint64)},
		{-1},
		{int64(1 << 53)},
		{int64(1<<53 + 1)},
		{at},
		{at.Add(1)},
		{account{}},
		{account{A: []int{}}},
		{cents{5}},
		{cents{6}},
		{[]string{"a"}},
		{[]string{"a", "b"}},
		{"a", "b"},
		{map[string]int{"a": 1}},
		{json.RawMessage(`{"a":2}`)},
		{struct{ X int }{1}},
	} {
		f := everonce.FingerprintOf(parts...)
		if driver.Fingerprint(f).IsZero() {
			t.Errorf("%#v has no fingerprint", parts)
		}
		if j, twice := seen[f.Sum]; twice {
			t.Errorf("number %d and %d (%#v) have one sum", i, j, parts)
		}
		seen[f.Sum] = i
	}
}

func TestFingerprintOfIsInjectiveOverStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00s")), 0, 4, -1), 0, 4)
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		toAny := func(list []string) (parts []any) {
			for _, s := range list {
				parts = append(parts, s)
			}
			return parts
		}
		equal := len(a) == len(b) && strings.Join(a, "\x01") == strings.Join(b, "\x01")
		if (everonce.FingerprintOf(toAny(a)...) == everonce.FingerprintOf(toAny(b)...)) != equal {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestFingerprintJSON(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"2^53+1", json.RawMessage(`{"n": 9007199254740993}`), "4ac8309cc76123ef6c5325ef925fc873e9b5856ec4f844ef1462f9303960378a"},
		{"2^53", []byte("{\n\t\"n\": 9007199254740992\n}"), "66c87d9cb3014e05a11baa97df62282d89d425f22ee15816577c84534e2ef1bb"},
		{"struct", struct {
			N int64 `json:"n"`
		}{1<<53 + 1}, "4ac8309cc76123ef6c5325ef925fc873e9b5856ec4f844ef1462f9303960378a"},
		{"fields in their order", json.RawMessage(`{"b":1,"a":2}`), "a1d46c3cdb4e5795c8d637f80daeb578ebb1a9a65dc1ed5f11f51794c3c89f3a"},
		{"nil", nil, "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := everonce.FingerprintJSON(c.v)
			checkEqual(t, "Alg", f.Alg, "json/1")
			checkEqual(t, "Sum", hex.EncodeToString(f.Sum[:]), c.want)
		})
	}
	if a, b := everonce.FingerprintJSON(map[string]int{"x": 1, "y": 2}), everonce.FingerprintJSON(map[string]int{"y": 2, "x": 1}); a != b {
		t.Error("the order of a map's keys changes the sum")
	}
	if a, b := everonce.FingerprintJSON([]byte(`{"a":1,"b":2}`)), everonce.FingerprintJSON([]byte(`{"b":2,"a":1}`)); a == b {
		t.Error("raw JSON lost the order of its fields")
	}
}

func TestFingerprintThatCanNotBeComputedRefusesTheCall(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for name, f := range map[string]everonce.Fingerprint{
		"a function":       everonce.FingerprintOf("ok", func() {}),
		"a channel":        everonce.FingerprintOf(make(chan int)),
		"NaN in a struct":  everonce.FingerprintOf(struct{ F float64 }{math.NaN()}),
		"broken raw part":  everonce.FingerprintOf(json.RawMessage(`{"a":`)),
		"JSON of a chan":   everonce.FingerprintJSON(make(chan int)),
		"broken raw JSON":  everonce.FingerprintJSON([]byte(`{"a":`)),
		"an Alg too long":  {Alg: strings.Repeat("x", driver.MaxFingerprintAlgLen+1)},
		"a raw message":    everonce.FingerprintJSON(json.RawMessage(`tru`)),
		"no JSON whatever": everonce.FingerprintJSON([]byte(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			do(t, r, keyOf(name), never(t), everonce.Invalid, everonce.ErrInvalidArgument, f)
			do(t, r, keyOf(name), never(t), everonce.Invalid, everonce.ErrInvalidArgument, f, everonce.WithWait(time.Second))
		})
	}
}

func TestFingerprintConflicts(t *testing.T) {
	a, b := everonce.FingerprintOf(1), everonce.FingerprintOf(2)
	other := everonce.Fingerprint{Alg: "parts/2", Sum: a.Sum}
	none := everonce.Fingerprint{}
	for _, c := range []struct {
		f, saved everonce.Fingerprint
		want     bool
	}{
		{a, a, false},
		{a, b, true},
		{a, other, false},
		{a, none, false},
		{none, a, false},
		{none, none, false},
	} {
		if got := driver.Fingerprint(c.f).Conflicts(driver.Fingerprint(c.saved)); got != c.want {
			t.Errorf("%v, %v: %v", c.f, c.saved, got)
		}
	}
}

// Parts that are spread over two fingerprints would be compared by one of them: the amount, and not the currency, say.
func TestFingerprintsOfOneCall(t *testing.T) {
	s := newMapStore()
	r, x := newReceiver(t, s, everonce.Refuse, nil), newTxReceiver(t, s, nil)
	prepared, err := r.Prepare(everonce.WithWait(time.Second))
	checkErr(t, err, nil)
	amount, currency := everonce.FingerprintOf(5), everonce.FingerprintOf("EUR")
	for name, opts := range map[string][]everonce.CallOption{
		"two": {amount, currency}, "a pointer": {amount, &currency}, "the same": {amount, amount}, "behind others": {prepared, amount, everonce.WithWait(1), currency},
	} {
		res, err := everonce.Do(context.Background(), r, keyOf(name), never(t), opts...)
		checkOutcome(t, res, err, everonce.Invalid, everonce.ErrInvalidArgument)
	}
	res, err := everonce.Transact(context.Background(), x, keyOf("x"), txNever(t), amount, currency)
	checkOutcome(t, res, err, everonce.Invalid, everonce.ErrInvalidArgument)
	do(t, r, keyOf("one"), returns("v", nil), everonce.Executed, nil, prepared, amount)
}
