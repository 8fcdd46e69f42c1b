package kafkaonce_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce/consume"
)

// Dead letters that were written in a transaction are read, although the last record of the topic is the transaction's
// end marker, which readers get only on request.
func TestDeadLettersOfTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	r := b.run(specOf(nothing), nil)
	b.send(&kgo.Record{Topic: b.topic.Name, Value: []byte("no JSON"), Headers: record("m-1", "k").Headers})
	r.wants(0)
	r.stop()
	l := b.open()
	if n := len(b.all(l, consume.Filter{})); n != 1 {
		t.Fatalf("%d dead letters", n)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.TrimPrefix(b.url, "kafka://")), kgo.TransactionalID(b.topic.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(b.ctx, &kgo.Record{Topic: b.letters(), Key: []byte("other"), Value: []byte("x"), Headers: record("m-2", "k").Headers}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(b.ctx, end); err != nil {
			t.Fatal(err)
		}
		if n := len(b.all(l, consume.Filter{})); n != 1 {
			t.Errorf("%d dead letters, want 1: the other record is not a dead letter", n)
		}
	}
}
