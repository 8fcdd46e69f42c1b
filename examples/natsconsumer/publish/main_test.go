package main

import (
	"crypto/rand"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/internal/testserver"
)

// A message that is published twice with one ID is stored once.
func TestPublish(t *testing.T) {
	broker, stream := testserver.URL(t, "nats"), "publish-"+rand.Text()
	for range 2 {
		if err := publish(t.Context(), broker, stream, "order-7", `{"id":"order-7","cents":1200}`); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := nats.Connect(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages", n)
	}
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Error(err)
	}
}
