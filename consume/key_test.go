package consume_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce/consume"
)

// Every strategy finds its key or returns an error: never an empty key, and never one by chance.
func TestKeyStrategies(t *testing.T) {
	event := `{"specversion":"1.0","source":"/shop","id":"a:1","data":{"order":{"id":12345678901234567890}}}`
	for name, c := range map[string]struct {
		key  consume.Key
		m    consume.Message
		want string // empty: none
	}{
		"producer's ID":                    {consume.ProducerID(), consume.Message{ID: "m-1", BrokerID: "b"}, "m-1"},
		"hash of the body":                 {consume.ContentHash(), consume.Message{ID: "m-1", Body: []byte(`{"id":"7"}`)}, "sha256:db2dab8eb163b43327b1f4375f397a6474a1410b073f0979e03302c5ee9edb3b"}, // in every version
		"no producer's ID":                 {consume.ProducerID(), consume.Message{BrokerID: "b"}, ""},
		"broker's ID":                      {consume.BrokerID(), consume.Message{ID: "m-1", BrokerID: "b"}, "b"},
		"no broker's ID":                   {consume.BrokerID(), consume.Message{ID: "m-1"}, ""},
		"header":                           {consume.Header("x-id"), consume.Message{Headers: map[string]string{"x-id": "7"}}, "7"},
		"header, empty":                    {consume.Header("x-id"), consume.Message{Headers: map[string]string{"x-id": ""}}, ""},
		"header of another case":           {consume.Header("x-id"), consume.Message{Headers: map[string]string{"X-Id": "7"}}, ""},
		"header that is a table":           {consume.Header("x-id"), consume.Message{OmittedHeaders: []string{"x-id"}}, ""},
		"string in the body":               {consume.JSONPointer("/id"), consume.Message{Body: []byte(event)}, "a:1"},
		"integer beyond 2^53":              {consume.JSONPointer("/data/order/id"), consume.Message{Body: []byte(event)}, "12345678901234567890"},
		"element of an array":              {consume.JSONPointer("/0/id"), consume.Message{Body: []byte(`[{"id":"x"},{"id":"y"}]`)}, "x"},
		"name with a slash":                {consume.JSONPointer("/a~1b"), consume.Message{Body: []byte(`{"a/b":"x"}`)}, "x"},
		"number with a fraction":           {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":1.0}`)}, ""},
		"number with an exponent":          {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":1e2}`)}, ""},
		"number with an exponent, E":       {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":1E2}`)}, ""},
		"element with a zero before it":    {consume.JSONPointer("/01"), consume.Message{Body: []byte(`["x","y"]`)}, ""},
		"negative zero":                    {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":-0}`)}, ""},
		"null":                             {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":null}`)}, ""},
		"true":                             {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":true}`)}, ""},
		"object":                           {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":{"id":"x"}}`)}, ""},
		"array":                            {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":["x"]}`)}, ""},
		"empty string":                     {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":""}`)}, ""},
		"missing":                          {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"di":"x"}`)}, ""},
		"twice":                            {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":"x","id":"y"}`)}, ""},
		"twice, elsewhere":                 {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":"x","a":{"b":1,"b":2}}`)}, ""},
		"two values":                       {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":"x"} {"id":"y"}`)}, ""},
		"cut short":                        {consume.JSONPointer("/id"), consume.Message{Body: []byte(`{"id":"x"`)}, ""},
		"no JSON":                          {consume.JSONPointer("/id"), consume.Message{Body: []byte("\x1f\x8b")}, ""},
		"empty body":                       {consume.JSONPointer("/id"), consume.Message{}, ""},
		"CloudEvent, structured":           {consume.CloudEvent(), consume.Message{ContentType: "application/cloudevents+json; charset=utf-8", Body: []byte(event)}, "/shop:a%3A1"},
		"CloudEvent, in HTTP's headers":    {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-source": "/shop", "ce-id": "1"}}, "/shop:1"},
		"CloudEvent, encoded for HTTP":     {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-source": "/caf%C3%A9", "ce-id": "50%25"}}, "/café:50%25"},
		"CloudEvent, quoted for HTTP":      {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-source": `"/shop"`, "ce-id": `"a\"b"`}}, `/shop:a"b`},
		"CloudEvent, not encoded for HTTP": {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-source": "/shop", "ce-id": "50% off"}}, "/shop:50%25 off"},
		"CloudEvent, not encoded, but so":  {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-source": "/shop", "ce-id": "a%20b"}}, "/shop:a b"},
		"CloudEvent, in Kafka's headers":   {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce_source": "/shop", "ce_id": "1"}}, "/shop:1"},
		"CloudEvent, in AMQP's headers":    {consume.CloudEvent(), consume.Message{Headers: map[string]string{"cloudEvents:source": "/shop", "cloudEvents:id": "1"}}, "/shop:1"},
		"CloudEvent without source":        {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-id": "1"}}, ""},
		"CloudEvent of two bindings mixed": {consume.CloudEvent(), consume.Message{Headers: map[string]string{"ce-id": "1", "ce_source": "/shop"}}, ""},
		"business composite":               {consume.Composite("Order", consume.JSONPointer("/id"), consume.ProducerID()), consume.Message{ID: "msg-7", Body: []byte(`{"id":12345}`)}, "Order:12345:msg-7"},
		"composite with a part missing":    {consume.Composite("Order", consume.JSONPointer("/id"), consume.ProducerID()), consume.Message{Body: []byte(`{"id":12345}`)}, ""},
		"the first that is found":          {consume.FirstOf(consume.ProducerID(), consume.Header("x-id")), consume.Message{Headers: map[string]string{"x-id": "7"}}, "7"},
		"none that is found":               {consume.FirstOf(consume.ProducerID(), consume.Header("x-id")), consume.Message{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.key(&c.m)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
			if err != nil && !errors.Is(err, consume.ErrNoKey) {
				t.Errorf("%v does not wrap ErrNoKey", err)
			}
		})
	}
}

// An invalid pointer gives a nil Key, as do keys made from it: a consumer's constructor rejects it.
func TestAnInvalidPointerGivesNoKey(t *testing.T) {
	for name, key := range map[string]consume.Key{
		"no slash": consume.JSONPointer("id"), "all": consume.JSONPointer(""), "half an escape": consume.JSONPointer("/a~"),
		"in a composite": consume.Composite("Order", consume.ProducerID(), consume.JSONPointer("id")),
		"one of several": consume.FirstOf(consume.ProducerID(), consume.JSONPointer("id")),
	} {
		if key != nil {
			t.Errorf("%s: it is a key", name)
		}
	}
}

// The content's hash depends only on the body, which a retry does not change.
func TestContentHashIsOfTheBodyAlone(t *testing.T) {
	hash := consume.ContentHash()
	of := func(m consume.Message) string {
		t.Helper()
		k, err := hash(&m)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := of(consume.Message{ID: "1", Body: []byte("x")})
	if again := of(consume.Message{ID: "2", Body: []byte("x"), Retries: 3, Deliveries: 4, Headers: map[string]string{"x-death": "1"}}); again != first {
		t.Errorf("the same body: %s and %s", first, again)
	}
	if other := of(consume.Message{ID: "1", Body: []byte("y")}); other == first || !strings.HasPrefix(other, "sha256:") {
		t.Errorf("another body: %s and %s", first, other)
	}
}

// To find a key takes as little memory in a large body as in a small one.
func TestJSONPointerTakesNoMoreMemoryForALargeBody(t *testing.T) {
	key := consume.JSONPointer("/order/id")
	allocs := func(lines int) float64 {
		m := &consume.Message{Body: []byte(`{"lines":[` + strings.Repeat(`{"sku":"x","price":{"cents":1}},`, lines) + `0],"order":{"id":"o-1"}}`)}
		return testing.AllocsPerRun(10, func() {
			if id, err := key(m); id != "o-1" || err != nil {
				t.Fatal(id, err)
			}
		})
	}
	if small, large := allocs(1), allocs(10_000); large > small+10 {
		t.Errorf("%v allocations for a small body, %v for a large one", small, large)
	}
}

// Messages that a broker makes repeatedly from one message share its ID: the occurrence distinguishes them, whatever
// the key reads.
func TestKeysOfOccurrences(t *testing.T) {
	t.Parallel()
	m := consume.Message{ID: "7", Body: []byte("x")}
	keys := map[string]bool{}
	for _, occurrence := range []string{"", "timers.each 12:00", "timers.each 12:01"} {
		m.Occurrence = occurrence
		for _, key := range []consume.Key{consume.ProducerID(), consume.ContentHash(), consume.Composite("7", consume.ProducerID())} {
			id, err := key.Of(&m)
			if err != nil || keys[id] {
				t.Errorf("%q, %v: %v", occurrence, id, err)
			}
			keys[id] = true
		}
	}
	if _, err := consume.Header("none").Of(&m); !errors.Is(err, consume.ErrNoKey) {
		t.Error(err)
	}
}
