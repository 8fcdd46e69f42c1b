package producer_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/everonce/everonce/session/producer"
)

// stateVector is a state of epoch 3, whose two batches of 2 and 300 records are at 7 and 1000.
const stateVector = "0103ae020202070aac02e807ffffffffffffffffff01"

func exampleState() producer.State {
	var s producer.State
	s.Append(&producer.Batch{Producer: 1, Epoch: 3, Count: 2, Sum: 10}, 7, 5)
	s.Append(&producer.Batch{Producer: 1, Epoch: 3, First: 2, Count: 300, Sum: 1<<64 - 1}, 1000, 5)
	return s
}

// TestFormatOfStates: the encoding is the encoding of every version, and a truncated or changed one is refused, or is
// another state.
func TestFormatOfStates(t *testing.T) {
	s := exampleState()
	b := s.AppendTo(nil)
	if got := hex.EncodeToString(b); got != stateVector {
		t.Errorf("%s, want %s", got, stateVector)
	}
	again, err := producer.ParseState(b)
	if err != nil {
		t.Fatal(err)
	}
	copied := producer.Batch{Producer: 1, Epoch: 3, First: 2, Count: 300, Sum: 1<<64 - 1}
	if a := again.Check(&copied); a != (producer.Decision{Duplicate: true, Position: 1000}) {
		t.Errorf("%+v", a)
	}
	for n := range b {
		if _, err := producer.ParseState(b[:n]); !errors.Is(err, producer.ErrEncoding) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for what, text := range map[string]string{
		"one byte more": stateVector + "00", "another version": "02" + stateVector[2:], "an epoch above all": "01ffff7f0000", "an empty batch": "010001010007 00",
		"more in the window than was sent": "01000101020700", "numbers without a batch": "01000500",
	} {
		raw, _ := hex.DecodeString(string(bytes.ReplaceAll([]byte(text), []byte(" "), nil)))
		if _, err := producer.ParseState(raw); !errors.Is(err, producer.ErrEncoding) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAnyPositions: a host's positions may count batches, or be offsets.
func TestAnyPositions(t *testing.T) {
	var s producer.State
	for i, position := range []int64{5, 6, -1, 1<<63 - 1} {
		b := producer.Batch{Producer: 1, First: int32(2 * i), Count: 2} //nolint:gosec // few
		s.Append(&b, position, 5)
		again, err := producer.ParseState(s.AppendTo(nil))
		if a := again.Check(&b); err != nil || a != (producer.Decision{Duplicate: true, Position: position}) {
			t.Errorf("%d: %+v, %v", position, a, err)
		}
	}
}

// FuzzParseState: what is read is written as what is read again, and answers as before.
func FuzzParseState(f *testing.F) {
	s := exampleState()
	f.Add(s.AppendTo(nil))
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := producer.ParseState(b)
		if err != nil {
			if !errors.Is(err, producer.ErrEncoding) {
				t.Fatal(err)
			}
			return
		}
		written := s.AppendTo(nil)
		again, err := producer.ParseState(written)
		if err != nil || !bytes.Equal(again.AppendTo(nil), written) || len(written) > len(b) {
			t.Fatalf("%x becomes %x, %v", b, written, err)
		}
		epoch, next := s.Next()
		batch := producer.Batch{Producer: 1, Epoch: epoch, First: next, Count: 1}
		if a := s.Check(&batch); a != (producer.Decision{}) {
			t.Fatalf("%x: the next batch: %+v", b, a)
		}
	})
}
