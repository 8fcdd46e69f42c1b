// Command publish puts a message into a JetStream stream, which it creates: publish STREAM ID BODY. It takes
// BROKER_URL.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: publish STREAM ID BODY")
	}
	if err := publish(context.Background(), os.Getenv("BROKER_URL"), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

// publish returns nil when the stream has the message. After an error it may be there or not: publish it again, with
// the same ID.
func publish(ctx context.Context, broker, stream, id, body string) error {
	conn, err := nats.Connect(broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	const remembered = 14 * 24 * time.Hour // is a handled message by default: what the stream has is recognised then, however it comes again
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".*"}, MaxAge: remembered}); err != nil {
		return err
	}
	_, err = js.Publish(ctx, stream+".placed", []byte(body), jetstream.WithMsgID(id), jetstream.WithExpectStream(stream))
	return err
}
