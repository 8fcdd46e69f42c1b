// Command smallest charges once, however often it is run.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

func main() {
	store, err := sqlitestore.Open(context.Background(), "once.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		log.Fatal(err)
	}
	key := everonce.Key{Scope: everonce.ScopeOf("shop", "charge"), ID: "order-7"}
	for range 3 { // the same request, three times
		res, err := everonce.Do(context.Background(), receiver, key, charge, everonce.FingerprintOf(1200, "EUR"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Outcome, res.Value)
	}
}

// charge stands for a call of a gateway. The downstream key is the same in every attempt.
func charge(_ context.Context, a *everonce.Attempt) (string, error) {
	fmt.Println("charging, downstream key", a.DownstreamKey("charge"))
	return "receipt-1", nil
}
