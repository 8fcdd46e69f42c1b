package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/redisstore"
)

// exampleServer is your own server. Here it is the server that the tests use.
func exampleServer() rueidis.ClientOption {
	return rueidis.MustParseURL(os.Getenv("EVERONCE_TEST_REDIS_URL"))
}

// A mail that is sent once, however many times the message arrives.
func Example() {
	ctx := context.Background()
	client, err := rueidis.NewClient(exampleServer())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := redisstore.New(ctx, client, &redisstore.Options{KeyPrefix: "example:"})
	if err != nil {
		log.Fatal(err) // it says what to set on the server
	}
	defer cleanUp(ctx, store)

	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := everonce.Do(ctx, receiver, everonce.Key{Scope: "mail", ID: "order-7"},
			func(context.Context, *everonce.Attempt) (string, error) { return "sent", nil })
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// executed sent <nil>
	// replayed sent <nil>
	// replayed sent <nil>
}

// A hosted server without an append-only file is refused. Accept the risk in the options, and Health repeats it.
func ExampleNew() {
	ctx := context.Background()
	client, err := rueidis.NewClient(exampleServer())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = redisstore.New(ctx, client, &redisstore.Options{
		Accept:   redisstore.RiskNoLog, // a restart of this server forgets
		Replicas: 1,                    // and so every write waits for a replica
	})
	fmt.Println(errors.Is(err, redisstore.ErrRisk), err)
	// Output: false <nil>
}

// A readiness probe asks again what New has asked: settings change, and nodes fail over.
func ExampleStore_Check() {
	ctx := context.Background()
	client, err := rueidis.NewClient(exampleServer())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := redisstore.New(ctx, client, &redisstore.Options{KeyPrefix: "example:"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(store.Check(ctx))
	// Output: <nil>
}
