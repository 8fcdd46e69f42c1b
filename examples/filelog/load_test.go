//go:build unix

package filelog

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/everonce/everonce/session/producer"
)

// FuzzLoad: whatever a file has, it is refused, or read as what is read again from its whole records.
func FuzzLoad(f *testing.F) {
	load := func(b []byte) (*Log, int, error) {
		l := &Log{table: producer.NewTable(0), streams: map[string][][]byte{}}
		_, at, err := l.load(b)
		return l, at, err
	}
	record := func(e *entry) []byte {
		b, err := e.encode()
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	whole := record(&entry{Grant: &producer.Grant{Producer: 1}})
	whole = append(whole, record(&entry{Batch: &Batch{Stream: "orders", Producer: 1, Records: [][]byte{[]byte("a"), nil}}})...)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		l, at, err := load(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		again, end, err := load(b[:at])
		if err != nil || end != at || fmt.Sprint(again.streams) != fmt.Sprint(l.streams) {
			t.Fatalf("%q, and then %q at %d of %d, %v", l.streams, again.streams, end, at, err)
		}
		if bytes.Equal(b, whole) && len(l.streams["orders"]) != 2 {
			t.Fatal("it is blind")
		}
	})
}
