package consume_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
)

// The fingerprint of a message is the same in every version: a repetition after a deploy must not be a mismatch.
func TestMessageFingerprintsAreStable(t *testing.T) {
	m := first()
	m.Body = []byte(`{ "id": "o-1", "cents": 9007199254740993 }`)
	m.Headers = map[string]string{"tenant": "a"}
	for _, c := range []struct {
		consume.Compare
		alg, sum string
	}{
		{consume.Compare{}, "parts/1", "8638abb613523755"},
		{consume.Compare{Headers: []string{"tenant", "currency"}}, "message/1+92eecb49c794af56", "dd484bd6973eaac5"},
		{consume.Compare{JSON: true}, "message/1+36d56db3aefe70a7", "a464784733b24061"},
		{consume.Compare{JSONOnly: []string{"/id"}}, "message/1+d9236bba866000cb", "fc3b517f10e58f22"},
		{consume.Compare{JSONExcept: []string{"/sent_at"}, Headers: []string{"tenant"}}, "message/1+3c090fd226b7f292", "e1e5735557a62881"},
	} {
		r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare = c.Compare })
		r.wants(m, everonce.Executed, consume.Ack)
		got, err := r.store.Get(t.Context(), driver.GetRequest{ID: everonce.Key{Scope: everonce.ScopeOf("billing"), ID: "m-1"}.RecordID()})
		if err != nil {
			t.Fatal(err)
		}
		if f := got.Record.Fingerprint; f.Alg != c.alg || hexOf(f.Sum) != c.sum {
			t.Errorf("%+v: {%q, %q}", c.Compare, f.Alg, hexOf(f.Sum))
		}
	}
}

func hexOf(sum [32]byte) string { return hex.EncodeToString(sum[:8]) }

// A producer that sends a message again may encode it differently, with a new time: it is the same message if these
// are not compared, and a mismatch if something else differs.
func TestMessagesThatAreEncodedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		fingerprint consume.Compare
		again       string
		equal       bool
	}{
		"by default, another spelling":        {consume.Compare{}, `{"sent_at":1,"id":"o-1","cents":1200}`, false},
		"another spelling":                    {consume.Compare{JSON: true}, ` {"cents":1200, "sent_at":1, "\u0069d":"o-1"} `, true},
		"another time":                        {consume.Compare{JSON: true}, `{"id":"o-1","cents":1200,"sent_at":2}`, false},
		"another time, left out":              {consume.Compare{JSONExcept: []string{"/sent_at"}}, `{"cents":1200,"sent_at":2,"id":"o-1"}`, true},
		"no time, left out":                   {consume.Compare{JSONExcept: []string{"/sent_at"}}, `{"cents":1200,"id":"o-1"}`, true},
		"another amount":                      {consume.Compare{JSONExcept: []string{"/sent_at"}}, `{"id":"o-1","cents":1201,"sent_at":1}`, false},
		"the same amount, as a fraction":      {consume.Compare{JSONExcept: []string{"/sent_at"}}, `{"id":"o-1","cents":1200.0,"sent_at":1}`, false},
		"another time, of which one counts":   {consume.Compare{JSONOnly: []string{"/id"}}, `{"id":"o-1","cents":7,"sent_at":2}`, true},
		"another ID, the only field compared": {consume.Compare{JSONOnly: []string{"/id"}}, `{"id":"o-2","cents":1200,"sent_at":1}`, false},
		"a field that occurs twice":           {consume.Compare{JSON: true}, `{"id":"o-1","cents":1200,"sent_at":1,"sent_at":1}`, false},
		"another header, also compared":       {consume.Compare{JSON: true, Headers: []string{"content-language"}}, `{"id":"o-1","cents":1200,"sent_at":1}`, false},
		"another header, which is not named":  {consume.Compare{JSON: true}, `{"id":"o-1","cents":1200,"sent_at":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for kind, handle := range map[string]func(*consume.Message) consume.Decision{
				"guarded": func() func(*consume.Message) consume.Decision {
					r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare = c.fingerprint })
					return func(m *consume.Message) consume.Decision { return r.c.Handle(t.Context(), m) }
				}(),
				"in a batch": func() func(*consume.Message) consume.Decision {
					b := booking(t, l, func(s *txSpec) { s.Compare = c.fingerprint })
					return func(m *consume.Message) consume.Decision { return b.HandleBatch(t.Context(), []*consume.Message{m})[0] }
				}(),
			} {
				m := first()
				m.Body = []byte(`{"id":"o-1","cents":1200,"sent_at":1}`)
				again := *m
				again.Body, again.Headers = []byte(c.again), map[string]string{"content-language": "de"}
				want := everonce.Mismatch
				if c.equal {
					want = everonce.Replayed
				}
				if v := handle(m); v.Outcome != everonce.Executed {
					t.Fatalf("%s: %v, %v", kind, v.Outcome, v.Err)
				}
				if v := handle(&again); v.Outcome != want {
					t.Errorf("%s: %v, %v; want %v", kind, v.Outcome, v.Err, want)
				}
			}
		})
	}
}

// After a deploy that compares other parts, a redelivery of a handled message is no dead letter. The order of names
// does not matter.
func TestAnotherFingerprintIsNoMismatch(t *testing.T) {
	m := first()
	m.Headers = map[string]string{"a": "1", "b": "2"}
	prints := []consume.Compare{
		{},
		{Headers: []string{"a"}},
		{Headers: []string{"a", "b"}},
		{Headers: []string{"ab"}},
		{JSON: true},
		{JSONOnly: []string{"/id"}},
		{JSONExcept: []string{"/id"}},
		{JSONExcept: []string{"/at"}},
		{JSON: true, Headers: []string{"a"}},
	}
	for i, before := range prints {
		r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare = before })
		r.wants(m, everonce.Executed, consume.Ack)
		for k, after := range prints {
			other := *m
			other.Body = []byte(`{"id":"another"}`)
			c, err := consume.New(r.recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done, Compare: after})
			if err != nil {
				t.Fatal(err)
			}
			if v := c.Handle(t.Context(), &other); i != k && v.Outcome != everonce.Replayed {
				t.Errorf("%+v, then %+v: %v, %v", before, after, v.Outcome, v.Err)
			}
		}
	}
	r := rigged(t, done, func(s *consume.Spec[order]) { s.Compare.Headers = []string{"a", "b"} })
	r.wants(m, everonce.Executed, consume.Ack)
	c, err := consume.New(r.recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done, Compare: consume.Compare{Headers: []string{"b", "a", "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	m.Headers["b"] = "3"
	if v := c.Handle(t.Context(), m); v.Outcome != everonce.Mismatch {
		t.Errorf("in another order: %v, %v", v.Outcome, v.Err)
	}
}

// Invalid fields to compare are rejected when the consumer is made.
func TestFingerprintsThatAreRefused(t *testing.T) {
	r := rigged(t, done, nil)
	for text, f := range map[string]consume.Compare{
		"exclude each other":           {JSONOnly: []string{"/a"}, JSONExcept: []string{"/b"}},
		`JSONOnly: "a" is no JSON`:     {JSONOnly: []string{"a"}},
		"JSONExcept is empty":          {JSONExcept: []string{}},
		`JSONExcept: "/a~2" is no JSO`: {JSONExcept: []string{"/a~2"}},
	} {
		_, err := consume.New(r.recv, consume.Spec[order]{Consumer: "billing", Key: consume.ProducerID(), Handle: done, Compare: f})
		if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
