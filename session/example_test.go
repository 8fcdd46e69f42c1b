package session_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/everonce/everonce/session"
)

// A client's request arrives twice, and is executed once. The stamps come with the commands: from a leader, or a
// database.
func ExampleMachine_Apply() {
	m, err := session.New(session.Config{Lease: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	stamp := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	balance := 0

	registered := m.Apply(stamp, &session.Command{Op: session.Register, Nonce: session.Nonce{1}, Principal: "alice"}, nil)
	deposit := &session.Command{Op: session.Request, Session: registered.Session, Nonce: session.Nonce{1}, Number: 1, Payload: []byte("10")}
	for range 2 { // the answer was lost, and the client sends it again
		a := m.Apply(stamp, deposit, func() []byte {
			balance += 10
			return fmt.Append(nil, balance)
		})
		fmt.Printf("%s replayed: %t\n", a.Result, a.Replayed)
	}

	stamp += int64(2 * time.Minute)
	a := m.Apply(stamp, deposit, func() []byte { return nil })
	fmt.Println(a.Err)
	// Output:
	// 10 replayed: false
	// 10 replayed: true
	// session: the session has expired
}

// A snapshot holds all sessions, and restores a machine that goes on alike.
func ExampleRestore() {
	m, err := session.New(session.Config{Lease: time.Minute, Name: "bank"})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Apply(1, &session.Command{Op: session.Register, Nonce: session.Nonce{1}}, nil)
	snapshot, err := m.Snapshot()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer snapshot.Release()
	var file bytes.Buffer
	if _, err := snapshot.WriteTo(&file); err != nil {
		fmt.Println(err)
		return
	}
	again, err := session.Restore(&file, "bank")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Len())
	// Output: 1
}

// Commands travel in a binary encoding.
func ExampleParseCommand() {
	c := session.Command{Op: session.Request, Session: 1, Number: 7, Payload: []byte("pay")}
	b, err := c.AppendTo(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := session.ParseCommand(b)
	fmt.Println(got.Number, string(got.Payload), err)
	// Output: 7 pay <nil>
}
