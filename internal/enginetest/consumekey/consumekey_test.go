package consumekey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/envelope"
	"github.com/everonce/everonce/store/memstore"
)

var (
	// awkward is text in which separators and escapes are likely.
	awkward = rapid.StringOfN(rapid.RuneFrom([]rune(`ab:%3A25/~01".é`)), 1, 6, -1)
	name    = rapid.SampledFrom([]string{"order-id", "tenant", "ce-id", "ce-source", "x-id"})
	// brokers are headers that a broker, a retry or a dead letter adds.
	brokers = rapid.SampledFrom([]string{
		"x-death", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange", "x-delivery-count", "x-acquired-count",
		"x-everonce-retries", "x-everonce-first", "x-opt-redelivered", "traceparent",
	})
)

func drawMessage(t *rapid.T) consume.Message {
	m := consume.Message{
		ID: rapid.OneOf(rapid.Just(""), awkward).Draw(t, "id"), BrokerID: rapid.OneOf(rapid.Just(""), awkward).Draw(t, "broker's id"),
		ContentType: rapid.SampledFrom([]string{"", "application/json", "application/cloudevents+json"}).Draw(t, "content type"),
		Headers:     rapid.MapOfN(name, awkward, 0, 5).Draw(t, "headers"), OmittedHeaders: rapid.SliceOfN(name, 0, 1).Draw(t, "odd"),
	}
	m.Body = []byte(rapid.SampledFrom([]string{
		`{}`, `{"id":"7"}`, `{"id":7,"source":"/shop"}`, `{"source":"/shop","id":"a:b"}`, `{"id":"x","id":"y"}`, `{"id":1.0}`, `[`, ``, `"7"`, `{"a":{"id":"z"}}`,
	}).Draw(t, "body"))
	return m
}

// drawKey draws a strategy: any that is here, and composites of them.
func drawKey(t *rapid.T, depth int) consume.Key {
	most := 5
	if depth > 0 {
		most = 7
	}
	switch rapid.IntRange(0, most).Draw(t, "strategy") {
	case 0:
		return consume.ProducerID()
	case 1:
		return consume.Header(name.Draw(t, "header"))
	case 2:
		return consume.JSONPointer(rapid.SampledFrom([]string{"/id", "/a/id", "/source"}).Draw(t, "pointer"))
	case 3:
		return consume.CloudEvent()
	case 4:
		return consume.ContentHash()
	case 5:
		return consume.BrokerID()
	case 6:
		return consume.Composite(awkward.Draw(t, "name"), drawKey(t, depth-1), drawKey(t, depth-1))
	}
	return consume.FirstOf(drawKey(t, depth-1), drawKey(t, depth-1))
}

// A key is found in the message or it is not: the same at every look, never empty, and never one by chance; a message
// without one is not handled.
func TestKeysAreNeverByChance(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		key, m := drawKey(t, 2), drawMessage(t)
		copied := m
		k, err := key(&m)
		again, errAgain := key(&copied)
		if k != again || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("%q (%v), and then %q (%v)", k, err, again, errAgain)
		}
		if (k == "") != (err != nil) || err != nil && !errors.Is(err, consume.ErrNoKey) {
			t.Fatalf("%q, %v", k, err)
		}
		ran := false
		c, newErr := consume.New(recv, consume.Spec[json.RawMessage]{
			Consumer: "billing", Key: key, Decode: func(*consume.Message) (json.RawMessage, error) { return nil, nil },
			Handle: func(context.Context, *consume.Message, json.RawMessage) error { ran = true; return nil },
		})
		if newErr != nil {
			t.Fatal(newErr)
		}
		v := c.Handle(context.Background(), &m)
		if err != nil && (ran || v.Disposition != consume.SetAside || v.Death.Reason != consume.NoKey || v.KeyHash != "") {
			t.Fatalf("there is no key (%v), and it ran: %v; %+v", err, ran, v)
		}
		if err == nil && v.KeyHash == "" {
			t.Fatalf("the key is %q, and the error lacks its hash: %+v", k, v)
		}
	})
}

// unjoin takes a composite apart: if that gives back what was put in, no two lists of values give one key.
func unjoin(key string) []string {
	parts := strings.Split(key, ":")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("%3A", ":", "%25", "%").Replace(part)
	}
	return parts
}

// A composite can be taken apart again, its name and each of its values, nested ones too: so no two give one key.
func TestCompositesOfAllShapesAreInjective(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab:%3A25")), 0, 6, -1)
	join := func(t *rapid.T, name string, values []string) string {
		keys := make([]consume.Key, 0, len(values))
		for _, value := range values {
			keys = append(keys, func(*consume.Message) (string, error) { return value, nil })
		}
		k, err := consume.Composite(name, keys...)(&consume.Message{})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	rapid.Check(t, func(t *rapid.T) {
		inner := append([]string{text.Draw(t, "inner name")}, rapid.SliceOfN(text, 1, 3).Draw(t, "inner values")...)
		outer := append([]string{text.Draw(t, "name")}, rapid.SliceOfN(text, 1, 3).Draw(t, "values")...)
		outer = append(outer, join(t, inner[0], inner[1:]))
		apart := unjoin(join(t, outer[0], outer[1:]))
		if !slices.Equal(apart, outer) || !slices.Equal(unjoin(apart[len(apart)-1]), inner) {
			t.Fatalf("%q with %q inside came back as %q", outer, inner, apart)
		}
	})
}

// The content's hash tells bodies apart, and differs from other hashes of them: from the bare SHA-256, which a
// producer may have put into a header, and from the hash of a body that begins as the domain does.
func TestContentHashHasASeparateDomain(t *testing.T) {
	const domain = "everonce/consume/content/1\x00"
	hash := func(t *rapid.T, body []byte) string {
		k, err := consume.ContentHash()(&consume.Message{Body: body})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	rapid.Check(t, func(t *rapid.T) {
		bodies := rapid.SliceOfN(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.Just([]byte(domain))), 2, 2).Draw(t, "bodies")
		if bytes.Equal(bodies[0], bodies[1]) != (hash(t, bodies[0]) == hash(t, bodies[1])) {
			t.Fatalf("%q and %q", bodies[0], bodies[1])
		}
		bare := sha256.Sum256(bodies[0])
		prefixed := append([]byte(domain), bodies[0]...)
		if k := hash(t, bodies[0]); k == "sha256:"+hex.EncodeToString(bare[:]) || k == hash(t, prefixed) {
			t.Fatalf("%q: %s", bodies[0], k)
		}
	})
}

// tree is a JSON value: an object with the path to one leaf, and other members around it.
type tree struct {
	path []string
	leaf any // a string, or a json.Number of digits
	body map[string]any
}

func drawTree(t *rapid.T) tree {
	var v tree
	v.path = rapid.SliceOfN(awkward, 1, 4).Draw(t, "path")
	if rapid.Bool().Draw(t, "number") {
		v.leaf = json.Number(rapid.StringMatching(`-?[1-9][0-9]{0,30}`).Draw(t, "digits"))
	} else {
		v.leaf = awkward.Draw(t, "text")
	}
	inside := v.leaf
	for i := len(v.path) - 1; i >= 0; i-- {
		level := map[string]any{}
		for k, other := range rapid.MapOfN(awkward, rapid.SampledFrom([]any{nil, true, "x", json.Number("1e5"), []any{"y", map[string]any{}}}), 0, 3).Draw(t, "others") {
			level[k] = other
		}
		level[v.path[i]] = inside
		inside = level
	}
	v.body, _ = inside.(map[string]any)
	return v
}

// pointer writes a path as RFC 6901 does.
func pointer(path []string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}

// A JSON pointer finds the value that it names, however deep, with all of its digits, whatever stands around it;
// and however the body is spaced, which a relay may change.
func TestJSONPointerFindsTheNamedValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawTree(t)
		compact, err := json.Marshal(v.body)
		if err != nil {
			t.Fatal(err)
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, compact, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		for _, body := range [][]byte{compact, spaced.Bytes()} {
			if k, err := consume.JSONPointer(pointer(v.path))(&consume.Message{Body: body}); k != fmt.Sprint(v.leaf) || err != nil {
				t.Fatalf("%s at %q: %q, %v; want %q", body, pointer(v.path), k, err, v.leaf)
			}
			if k, err := consume.JSONPointer(pointer(append(v.path, "behind")))(&consume.Message{Body: body}); err == nil {
				t.Fatalf("%s has nothing behind %q, and %q was found", body, pointer(v.path), k)
			}
		}
	})
}

// eventBindings write the same CloudEvent in each way that there is.
func eventBindings(source, id string) []consume.Message {
	structured, err := json.Marshal(map[string]string{"specversion": "1.0", "source": source, "id": id, "type": "order.placed"})
	if err != nil {
		panic(err)
	}
	all := []consume.Message{{ContentType: "application/cloudevents+json", Body: structured}}
	for _, prefix := range []string{"ce-", "ce_", "cloudEvents:", "cloudEvents_"} {
		value := func(text string) string { return text }
		if prefix == "ce-" {
			value = envelope.HTTP.Value
		}
		all = append(all, consume.Message{Headers: map[string]string{prefix + "source": value(source), prefix + "id": value(id)}})
	}
	return all
}

// A CloudEvent's key is its source and its id together, the same in each binding, and can be split again: no two
// events share one.
func TestCloudEventIsItsSourceAndID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source, id := awkward.Draw(t, "source"), awkward.Draw(t, "id")
		for _, m := range eventBindings(source, id) {
			k, err := consume.CloudEvent()(&m)
			if err != nil || !slices.Equal(unjoin(k), []string{source, id}) {
				t.Fatalf("%q, %q in %v %s: %q, %v", source, id, m.Headers, m.Body, k, err)
			}
		}
	})
}

// The changes that a broker, a retry queue or a dead letter makes to a message never make it another operation or
// another request: they enter neither the key nor the fingerprint. The producer's content does.
func TestBrokersHeadersNeverEnterKeyOrFingerprint(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		c, err := consume.New(recv, consume.Spec[struct{}]{
			Consumer: "billing", Key: consume.Composite(fmt.Sprint("run-", n), consume.ProducerID(), consume.JSONPointer("/id")), Compare: consume.Compare{Headers: []string{"tenant"}},
			Handle: func(context.Context, *consume.Message, struct{}) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		m := consume.Message{ID: awkward.Draw(t, "id"), Headers: map[string]string{"tenant": awkward.Draw(t, "tenant")}, Body: []byte(`{"id":"7"}`)}
		if v := c.Handle(context.Background(), &m); v.Outcome != everonce.Executed {
			t.Fatal(v)
		}
		again := m
		again.BrokerID, again.Source, again.Subject = awkward.Draw(t, "broker's id"), awkward.Draw(t, "queue"), awkward.Draw(t, "routing key")
		again.Deliveries, again.Redelivered, again.Retries = rapid.IntRange(0, 30).Draw(t, "deliveries"), rapid.Bool().Draw(t, "redelivered"), rapid.IntRange(0, 30).Draw(t, "retries")
		again.First = time.Unix(rapid.Int64Range(0, 2e9).Draw(t, "first"), 0)
		again.OmittedHeaders = rapid.SliceOfN(brokers, 0, 2).Draw(t, "odd")
		again.Headers = rapid.MapOfN(brokers, awkward, 0, 5).Draw(t, "headers")
		again.Headers["tenant"] = m.Headers["tenant"]
		first, err := c.KeyOf(&m)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := c.KeyOf(&again); err != nil || second != first {
			t.Fatalf("the key is %v, %v; it was %v", second, err, first)
		}
		if v := c.Handle(context.Background(), &again); v.Outcome != everonce.Replayed {
			t.Fatalf("%v (%v): the same message is another request", v.Outcome, v.Err)
		}
		body, tenant := again, again
		body.Body = []byte(`{"id":"7","cents":1}`)
		tenant.Headers = map[string]string{"tenant": m.Headers["tenant"] + "x"}
		for _, other := range []consume.Message{body, tenant} {
			if v := c.Handle(context.Background(), &other); v.Outcome != everonce.Mismatch {
				t.Fatalf("%v: another body, or another tenant, under the same key", v.Outcome)
			}
		}
	})
}
