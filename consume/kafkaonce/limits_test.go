package kafkaonce_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/outbox"
)

// A name that no topic can have is a fault of the event, and one that a topic could have is not. Texts of any length are published.
func TestNamesAndTextsOfAnyLength(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	p := newPublisher(t, b.url)
	name := b.topic.Name + strings.Repeat("x", 250)
	for topic, refused := range map[string]bool{name[:249]: false, name[:250]: true, "": true, ".": true, "a b": true, "é": true} {
		err := p.Publish(t.Context(), []outbox.Event{event(topic, "1", "")})[0]
		if _, permanent := errors.AsType[*everonce.PermanentError](err); err == nil || permanent != refused || errors.Is(err, outbox.ErrUnavailable) {
			t.Errorf("%.40q with %d bytes: %v", topic, len(topic), err)
		}
	}
	e := event(b.topic.Name, strings.Repeat("x", 70_000), strings.Repeat("k", 70_000))
	e.Type, e.ContentType, e.Headers = e.ID, e.ID, map[string]string{e.ID: e.ID, "": ""}
	if err := errors.Join(p.Publish(t.Context(), []outbox.Event{e})...); err != nil {
		t.Error(err)
	}
}
