package producer_test

import (
	"strconv"
	"testing"

	"github.com/everonce/everonce/session/producer"
)

// BenchmarkAppend is the check and the record of a batch, of 1000 producers in 8 streams.
func BenchmarkAppend(b *testing.B) {
	t := producer.NewTable(0)
	var streams [8]string
	for i := range streams {
		streams[i] = "orders-" + strconv.Itoa(i)
	}
	const producers = 1000
	for range producers {
		if err := t.Admit("", t.Next("")); err != nil {
			b.Fatal(err)
		}
	}
	send := func(i int) {
		n := i / len(streams)
		batch := producer.Batch{Producer: producer.ID(n%producers + 1), First: int32(n / producers & 0x7fffffff), Count: 1}
		if !t.Append(streams[i%len(streams)], &batch, int64(i)) {
			b.Fatalf("%+v", batch)
		}
	}
	i := 0
	for ; i < 10*producers*len(streams); i++ { // until all windows are full
		send(i)
	}
	b.ReportAllocs()
	for ; b.Loop(); i++ {
		send(i)
	}
}

// BenchmarkDuplicate is the answer to the oldest batch of a window.
func BenchmarkDuplicate(b *testing.B) {
	t := producer.NewTable(0)
	if err := t.Admit("", t.Next("")); err != nil {
		b.Fatal(err)
	}
	for i := range 5 {
		t.Append("orders", &producer.Batch{Producer: 1, First: int32(i), Count: 1}, int64(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		if a := t.Check("orders", &producer.Batch{Producer: 1, Count: 1}); !a.Duplicate {
			b.Fatalf("%+v", a)
		}
	}
}
