package sqlproducer

import (
	"bytes"
	"errors"
	"testing"
)

// TestFormatOfRecords: what is in the log stays readable.
func TestFormatOfRecords(t *testing.T) {
	const vector = "\x01a\x00\x02bc"
	records := [][]byte{[]byte("a"), {}, []byte("bc")}
	if got := encode(records, 3); string(got) != vector {
		t.Errorf("%q, want %q", got, vector)
	}
	got, err := decode([]byte(vector), 3)
	if err != nil || len(got) != 3 || string(got[0]) != "a" || len(got[1]) != 0 || string(got[2]) != "bc" {
		t.Errorf("%q, %v", got, err)
	}
	for count := range int64(6) {
		if _, err := decode([]byte(vector), count); (err == nil) != (count == 3) {
			t.Errorf("%d records: %v", count, err)
		}
	}
}

// FuzzDecode: what is read is written as what is read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x01a\x00\x02bc"), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, count int64) {
		records, err := decode(b, count)
		if err != nil {
			if !errors.Is(err, errRecords) {
				t.Fatal(err)
			}
			return
		}
		written := encode(records, len(b))
		again, err := decode(written, count)
		if err != nil || !bytes.Equal(bytes.Join(again, []byte{0}), bytes.Join(records, []byte{0})) || len(written) > len(b) {
			t.Fatalf("%q becomes %q, %v", b, written, err)
		}
	})
}
