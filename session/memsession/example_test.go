package memsession_test

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// A request arrives twice, and is executed once. The work changes memory too.
func ExampleHost_Apply() {
	balance := 100
	host, err := memsession.New(&balance, session.Config{Lease: time.Minute}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	withdraw := func(_ context.Context, balance *int, _ []byte) ([]byte, error) {
		*balance -= 10
		return fmt.Append(nil, *balance), nil
	}
	ctx := context.Background()
	registered, err := host.Apply(ctx, &session.Command{Op: session.Register, Nonce: session.Nonce{1}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	command := session.Command{Op: session.Request, Session: registered.Session, Nonce: session.Nonce{1}, Number: 1}
	for range 2 {
		answer, err := host.Apply(ctx, &command, withdraw)
		fmt.Println(string(answer.Result), answer.Replayed, answer.Err.Or(), err)
	}
	// Output:
	// 90 false <nil> <nil>
	// 90 true <nil> <nil>
}
