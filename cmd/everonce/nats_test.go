package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce/internal/testserver"
)

// natsStream makes a stream with a subject of its name, and a stream of dead letters.
func natsStream(t *testing.T, url string) (name string, js jetstream.JetStream) {
	t.Helper()
	name = "cli-" + strings.ToLower(rand.Text())
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	for stream, subject := range map[string]string{name: name, name + "-dead": name + "-dead.>"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { js.DeleteStream(context.Background(), stream) }) //nolint:errcheck // it is best effort
	}
	return name, js
}

// first waits for the first message of a stream.
func first(t *testing.T, js jetstream.JetStream, stream string) *nats.Msg {
	t.Helper()
	c, err := js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}
}

// The dead letters of NATS are shown, replayed and discarded by the same commands.
func TestDeadLettersOfNATS(t *testing.T) {
	t.Parallel()
	url := testserver.URL(t, "nats")
	stream, js := natsStream(t, url)
	for _, id := range []string{"m-1", "m-2"} {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: stream + "-dead.billing", Data: []byte(id), Header: nats.Header{
			"x-everonce-reason": {"exhausted"}, "x-everonce-queue": {stream}, "x-everonce-subject": {stream}, "x-everonce-key-hash": {"aa" + id[2:]},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"--broker", url, "--queue", stream, "--json"}
	if out, _ := dlqOut(t, append(at, "list", "--count")...); out != `{"letters":2,"reasons":{"exhausted":2}}`+"\n" {
		t.Error(out)
	}
	if out, _ := dlqOut(t, append(at, "replay", "--yes", "--key", "aa1")...); out != `{"done":1}`+"\n" {
		t.Error(out)
	}
	if m := first(t, js, stream); string(m.Data) != "m-1" || m.Header.Get("x-everonce-replays") != "1" {
		t.Errorf("%+v", m)
	}
	if out, _ := dlqOut(t, append(at, "discard", "--yes", "--all")...); out != `{"done":1}`+"\n" {
		t.Error(out)
	}
}

// NATS gets an event at the subject that is its topic. The server is the test's own, so the subject is free.
func TestRelayToNATS(t *testing.T) {
	t.Parallel()
	url := testserver.Start(t, "nats").URL
	stream, js := natsStream(t, url)
	if _, err := js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{"orders"}}); err != nil {
		t.Fatal(err)
	}
	cmd, _, log := startRelay(t, "--to", url)
	if m := first(t, js, stream); m.Header.Get(jetstream.MsgIDHeader) == "" || m.Subject != "orders" {
		t.Errorf("%+v", m)
	}
	endRelay(t, cmd, log)
}
