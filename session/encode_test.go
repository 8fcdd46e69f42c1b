package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/everonce/everonce/session"
)

var commands = []session.Command{
	{Op: session.Register, Nonce: nonce(1), Epoch: 3, Principal: "alice", Ordered: true},
	{Op: session.Request, Session: 1, Nonce: nonce(1), Epoch: 3, Number: 7, Mark: 5, Fingerprint: session.Fingerprint{1, 2, 3}, Payload: []byte("charge 10")},
	{Op: session.KeepAlive, Beats: []session.Beat{{Session: 1, Nonce: nonce(1), Epoch: 3, Mark: 5}, {Session: 1<<64 - 1, Mark: 1<<64 - 1}}},
	{Op: session.End, Session: 1, Nonce: nonce(1)},
	{Op: session.Tick},
}

// TestFormatOfCommands: later versions read what this one writes. Others may check theirs against the files.
func TestFormatOfCommands(t *testing.T) {
	var all [][]byte
	for i := range commands {
		b, err := commands[i].AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
		got, err := session.ParseCommand(b)
		if err != nil || !reflect.DeepEqual(got, commands[i]) {
			t.Errorf("%+v is parsed as %+v, %v", commands[i], got, err)
		}
		for n := range b[:len(b)-len(commands[i].Payload)] {
			if _, err := session.ParseCommand(b[:n]); !errors.Is(err, session.ErrEncoding) {
				t.Errorf("cut at %d: %v", n, err)
			}
		}
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	vector(t, "commands-1.json", append(text, '\n'))
}

// TestCommandsOverTheLimit are not encoded.
func TestCommandsOverTheLimit(t *testing.T) {
	for _, c := range []session.Command{{Principal: strings.Repeat("x", 256)}, {Beats: make([]session.Beat, session.MaxBeats+1)}} {
		if _, err := c.AppendTo(nil); !errors.Is(err, session.ErrEncoding) {
			t.Errorf("%v", err)
		}
	}
}

// FuzzParseCommand: what can be parsed is encoded as the same bytes, and does no harm to a machine.
func FuzzParseCommand(f *testing.F) {
	for i := range commands {
		b, err := commands[i].AppendTo(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := session.ParseCommand(b)
		if err != nil {
			return
		}
		again, err := c.AppendTo(nil)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("encoded as % x, %v", again, err)
		}
		m := newMachine(t, nil)
		m.register(1)
		m.do(c)
		if _, err := session.Restore(bytes.NewReader(saved(t, m.Machine)), ""); err != nil {
			t.Error(err)
		}
	})
}
