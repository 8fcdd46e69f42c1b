package oncetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// A gateway charges, and its answer is lost. The policy decides about the next delivery.
func ExampleGateway() {
	ctx := context.Background()
	key := everonce.Key{Scope: "payments", ID: "order-7"}
	for _, policy := range []everonce.Policy{everonce.Refuse, everonce.Reexecute} {
		gateway := oncetest.NewGateway(&oncetest.GatewayOptions{
			Deduplicates: true,
			Plan:         oncetest.At(oncetest.OpEffect, 1, oncetest.FailAfter),
		})
		recv, err := everonce.NewReceiver(memstore.New(nil), policy, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for range 2 {
			res, _ := everonce.Do(ctx, recv, key, func(ctx context.Context, a *everonce.Attempt) (oncetest.Receipt, error) {
				return gateway.Call(ctx, a.DownstreamKey("charge"), "12.50 EUR")
			})
			fmt.Printf("%v: %v, %d effect\n", policy, res.Outcome, gateway.Total())
		}
	}
	// Output:
	// refuse: unknown, 1 effect
	// refuse: unknown, 1 effect
	// reexecute: failed, 1 effect
	// reexecute: executed, 1 effect
}

// The completion's answer is lost: everonce asks again, and hears that it is done.
func ExampleFaultStore() {
	store := oncetest.FaultStore(memstore.New(nil), oncetest.At(oncetest.OpComplete, 1, oncetest.FailAfter))
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := everonce.Key{Scope: "mails", ID: "welcome-7"}
	for range 2 {
		res, err := everonce.Do(context.Background(), recv, key, func(context.Context, *everonce.Attempt) (string, error) {
			return "sent", nil
		})
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// executed sent <nil>
	// replayed sent <nil>
}

// Every point where a call can fail is tried, one after the other, until none is left.
func ExampleAtCall() {
	for point := 1; ; point++ {
		gateway := oncetest.NewGateway(nil)
		reached := false
		plan := func(c oncetest.Call) oncetest.Fault {
			fault := oncetest.AtCall(point, oncetest.FailBefore)(c)
			reached = reached || fault != oncetest.Pass
			return fault
		}
		recv, err := everonce.NewReceiver(oncetest.FaultStore(memstore.New(nil), plan), everonce.Refuse, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		key := everonce.Key{Scope: "mails", ID: "welcome-7"}
		for range 2 {
			_, err = everonce.Do(context.Background(), recv, key, func(ctx context.Context, a *everonce.Attempt) (oncetest.Receipt, error) {
				return gateway.Call(ctx, a.DownstreamKey("mail"), "welcome")
			})
		}
		if !reached {
			break
		}
		fmt.Printf("call %d failed: %d mail, injected error seen: %v\n", point, gateway.Total(), errors.Is(err, oncetest.ErrInjected))
	}
	// Output:
	// call 1 failed: 1 mail, injected error seen: false
	// call 2 failed: 1 mail, injected error seen: false
	// call 3 failed: 1 mail, injected error seen: false
	// call 4 failed: 1 mail, injected error seen: false
}
