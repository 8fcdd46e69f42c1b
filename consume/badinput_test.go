package consume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
)

// A wrong message becomes a dead letter that says so, without its key or its body in the text, and without a record;
// the next message is handled.
func TestBadInputIsADeadLetter(t *testing.T) {
	const secret = "s3cret-5551234"
	byPointer := consume.JSONPointer("/id")
	for name, c := range map[string]struct {
		key  consume.Key
		m    consume.Message
		want consume.Reason
	}{
		"ID missing":               {consume.ProducerID(), consume.Message{Body: []byte(`{}`)}, consume.NoKey},
		"ID in a header missing":   {consume.Header("id"), consume.Message{ID: secret, Body: []byte(`{}`)}, consume.NoKey},
		"ID empty":                 {byPointer, consume.Message{Body: []byte(`{"id":""}`)}, consume.NoKey},
		"ID huge":                  {consume.ProducerID(), consume.Message{ID: strings.Repeat(secret, 100), Body: []byte(`{}`)}, consume.NoKey},
		"ID huge in the body":      {byPointer, consume.Message{Body: []byte(`{"id":"` + strings.Repeat(secret, 100) + `"}`)}, consume.NoKey},
		"ID not UTF-8":             {consume.ProducerID(), consume.Message{ID: secret + "\xff", Body: []byte(`{}`)}, consume.NoKey},
		"ID twice":                 {byPointer, consume.Message{Body: []byte(`{"id":"` + secret + `","id":"b"}`)}, consume.NoKey},
		"ID a float":               {byPointer, consume.Message{Body: []byte(`{"id":1.5}`)}, consume.NoKey},
		"ID null":                  {byPointer, consume.Message{Body: []byte(`{"id":null}`)}, consume.NoKey},
		"ID an object":             {byPointer, consume.Message{Body: []byte(`{"id":{"` + secret + `":1}}`)}, consume.NoKey},
		"ID a table in a header":   {consume.Header("id"), consume.Message{OmittedHeaders: []string{"id"}, Body: []byte(`{}`)}, consume.NoKey},
		"no JSON, key in the body": {byPointer, consume.Message{Body: []byte(secret)}, consume.NoKey},
		"no JSON":                  {consume.ProducerID(), consume.Message{ID: "m", Body: []byte(secret)}, consume.Undecodable},
		"JSON cut short":           {consume.ProducerID(), consume.Message{ID: "m", Body: []byte(`{"ID":"` + secret)}, consume.Undecodable},
		"JSON of another shape":    {consume.ProducerID(), consume.Message{ID: "m", Body: []byte(`{"ID":["` + secret + `"]}`)}, consume.Undecodable},
		"two JSON values":          {consume.ProducerID(), consume.Message{ID: "m", Body: []byte(`{} {}`)}, consume.Undecodable},
		"null":                     {consume.ProducerID(), consume.Message{ID: "m", Body: []byte(" null\n")}, consume.Undecodable},
		"no body":                  {consume.ProducerID(), consume.Message{ID: "m"}, consume.Undecodable},
		"content encoding unknown": {consume.ProducerID(), consume.Message{ID: "m", ContentEncoding: "br", Body: []byte(`{}`)}, consume.Undecodable},
		"content encoding gzip":    {consume.ProducerID(), consume.Message{ID: "m", ContentEncoding: "gzip", Body: []byte("\x1f\x8b")}, consume.Undecodable},
		"another charset":          {consume.ProducerID(), consume.Message{ID: "m", ContentEncoding: "utf-16", Body: []byte(`{}`)}, consume.Undecodable},
		"body over the limit":      {consume.ProducerID(), consume.Message{ID: "m", Body: []byte(`{"ID":"` + strings.Repeat("x", 10_000) + `"}`)}, consume.TooLarge},
		"a strategy that panics":   {func(*consume.Message) (string, error) { panic(secret) }, consume.Message{Body: []byte(`{}`)}, consume.NoKey},
		"a strategy's own error":   {func(*consume.Message) (string, error) { return "", errors.New("no") }, consume.Message{Body: []byte(`{}`)}, consume.NoKey},
		"an error beside a value":  {func(*consume.Message) (string, error) { return "a part", errors.New("no") }, consume.Message{Body: []byte(`{}`)}, consume.NoKey},
		"a strategy that has none": {func(*consume.Message) (string, error) { return "", nil }, consume.Message{Body: []byte(`{}`)}, consume.NoKey},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			r := rigged(t, func(context.Context, *consume.Message, order) error { ran++; return nil }, func(s *consume.Spec[order]) {
				s.Key, s.MaxBody = c.key, 8000
			})
			m := c.m
			m.Source = "orders"
			v := r.wantsDeadLetter(&m, 0, c.want)
			if strings.Contains(v.Death.Detail, secret) {
				t.Errorf("it quotes the message: %s", v.Death.Detail)
			}
			if noKey := c.want == consume.NoKey; ran != 0 || noKey && !errors.Is(v.Err, consume.ErrNoKey) {
				t.Errorf("ran %d times, %v", ran, v.Err)
			}
			if health, err := r.store.Health(t.Context(), everonce.HealthRequest{}); err != nil || health.Claimed+health.Abandoned+health.Released+health.Completed != 0 {
				t.Errorf("%+v, %v; want no record", health, err)
			}
		})
	}
}

// A body null is a payload only if the type can be nil: for a struct or a number encoding/json would return the zero
// value, and the producer did not send a charge of 0.
func TestABodyThatIsNull(t *testing.T) {
	isNull[order](t, false)
	isNull[int](t, false)
	isNull[string](t, false)
	isNull[[2]int](t, false)
	isNull[*order](t, true)
	isNull[map[string]any](t, true)
	isNull[[]int](t, true)
	isNull[any](t, true)
	isNull[json.RawMessage](t, true)
	isNull[readsItself](t, true)
}

// readsItself unmarshals JSON itself, and records what it got for null.
type readsItself struct{ read string }

func (r *readsItself) UnmarshalJSON(text []byte) error { r.read = string(text); return nil }

func isNull[T any](t *testing.T, taken bool) {
	t.Helper()
	ran := false
	c, err := consume.NewNatural(consume.NaturalSpec[T]{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(_ context.Context, _ *consume.Message, v T) (bool, error) {
			ran = true
			if r, ok := any(v).(readsItself); ok && r.read != "null" {
				t.Errorf("it was given %q", r.read)
			}
			return true, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := c.Handle(t.Context(), &consume.Message{ID: "m", Body: []byte("null")})
	if ran != taken || !taken && (v.Death.Reason != consume.Undecodable || !strings.Contains(v.Death.Detail, reflect.TypeFor[T]().String())) {
		t.Errorf("%v: handled %v, %+v", reflect.TypeFor[T](), ran, v)
	}
}

// picky unmarshals JSON itself, and its error quotes the body.
type picky struct{}

func (*picky) UnmarshalJSON(text []byte) error { return fmt.Errorf("%s is not what I like", text) }

// The error text of a payload that rejects a body is left out: it may quote the body.
func TestABodyThatItsPayloadRefusesIsNotQuoted(t *testing.T) {
	c, err := consume.NewNatural(consume.NaturalSpec[picky]{
		Consumer: "billing", Key: consume.ProducerID(),
		Handle: func(context.Context, *consume.Message, picky) (bool, error) {
			t.Error("it was handled")
			return true, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := c.Handle(t.Context(), &consume.Message{ID: "m", Body: []byte(`"s3cret"`)})
	if v.Disposition != consume.SetAside || v.Death.Reason != consume.Undecodable || strings.Contains(fmt.Sprint(v.Death, v.Err), "s3cret") {
		t.Errorf("%+v", v)
	}
}

// Content encodings that change nothing, like utf-8, are accepted: Spring and Celery set them on each message.
func TestAContentEncodingThatChangesNothing(t *testing.T) {
	for _, encoding := range []string{"", "identity", "Identity", "utf-8", "UTF-8"} {
		m := first()
		m.ContentEncoding = encoding
		rigged(t, done, nil).wants(m, everonce.Executed, consume.Ack)
	}
}

// Headers without a text form are named in OmittedHeaders, and cannot be a key.
func TestAMessageWithOddHeadersIsHandled(t *testing.T) {
	r := rigged(t, done, nil)
	m := first()
	m.OmittedHeaders = []string{"x-death", "nested"}
	r.wants(m, everonce.Executed, consume.Ack)
}

// A body of MaxBody bytes, by default 16 MiB, is handled, and one that is a byte longer is not.
func TestTheLargestBody(t *testing.T) {
	unread := func(*consume.Message) (order, error) { return order{}, nil }
	for limit, largest := range map[int]int{0: 16 << 20, 100: 100} {
		r := rigged(t, done, func(s *consume.Spec[order]) { s.MaxBody, s.Decode = limit, unread })
		m := first()
		m.Body = make([]byte, largest)
		r.wants(m, everonce.Executed, consume.Ack)
		m.Body = make([]byte, largest+1)
		r.wantsDeadLetter(m, 0, consume.TooLarge)
	}
}

// A decoder that panics on a message is a decoder that cannot read it.
func TestADecoderThatPanics(t *testing.T) {
	r := rigged(t, done, func(s *consume.Spec[order]) {
		s.Decode = func(m *consume.Message) (order, error) { return order{ID: string(m.Body[100:])}, nil }
	})
	r.wantsDeadLetter(first(), 0, consume.Undecodable)
}

// A wrong message does not block those behind it.
func TestPoisonBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigged(t, func(context.Context, *consume.Message, order) error { return nil }, nil)
		bodies := []string{``, `{`, `[]`, `{"ID":"good"}`, "\xff", `{"ID":"good"}`}
		in := make(chan consume.Delivery, len(bodies))
		all := make([]*delivery, 0, len(bodies))
		for i, body := range bodies {
			d := &delivery{m: &consume.Message{ID: string(rune('a' + i)), Body: []byte(body)}}
			all = append(all, d)
			in <- d
		}
		close(in)
		if err := r.c.Serve(t.Context(), in, &consume.Workers{Concurrency: 1, Log: quiet}); err != nil {
			t.Fatal(err)
		}
		for i, d := range all {
			want := "set_aside undecodable"
			if strings.Contains(bodies[i], "good") {
				want = "ack"
			}
			if !slices.Equal(d.ended, []string{want}) {
				t.Errorf("%q ended as %v, want %s", bodies[i], d.ended, want)
			}
		}
	})
}
