package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A message that always fails holds up no other, not even behind it in its partition and with its record key.
func TestPoisonBlocksNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	r := b.run(specOf(func(_ context.Context, _ *consume.Message, o order) error {
		if o.ID == "poison" {
			panic("poison")
		}
		return nil
	}), nil)
	b.send(record("poison", "a"), record("m-1", "a"), record("m-2", "a"))
	r.wants(everonce.Unknown, everonce.Executed, everonce.Executed) // a panic may have had its effect
	r.stop()
	if at := b.committed(0); at != 3 {
		t.Errorf("%d is committed, want 3", at)
	}
}

// The end of a consumer loses nothing: started messages are done and committed, and the next consumer gets the others.
func TestDrainLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	const messages = 20
	store, begun, proceed := memstore.New(nil), make(chan struct{}, messages), make(chan struct{})
	first := b.runOn(store, specOf(func(ctx context.Context, _ *consume.Message, _ order) error {
		begun <- struct{}{}
		<-proceed
		return ctx.Err() // which does not end with the consumer
	}), nil)
	for i := range messages {
		b.send(record(fmt.Sprint("m-", i), fmt.Sprint("key-", i)))
	}
	await(t, begun, "the first")
	first.end()
	close(proceed)
	first.stop()
	done := len(first.decisions)
	for range done {
		first.wants(everonce.Executed)
	}
	second := b.runOn(store, specOf(nothing), nil)
	for done < messages {
		if v := await(t, second.decisions, "a decision"); v.Outcome == everonce.Executed {
			done++
		} else if v.Outcome != everonce.Replayed { // it was done, behind one that was not
			t.Fatalf("%v: %v", v.Outcome, v.Err)
		}
	}
	second.stop()
	if at := b.committed(0); at != messages {
		t.Errorf("%d is committed, want %d", at, messages)
	}
}

// only allows just these operations on a topic until ended is called. Once a rule exists, everything else is denied.
func (b *bench) only(topic string, operations ...kmsg.ACLOperation) (ended func()) {
	b.t.Helper()
	rule := kadm.NewACLs().Topics(topic).Operations(operations...).Allow("User:ANONYMOUS").AllowHosts().ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral)
	if _, err := b.admin.CreateACLs(b.ctx, rule); err != nil {
		b.t.Fatal(err)
	}
	for { // the broker answers before the rule is in force
		m, err := b.admin.Metadata(kadm.WithAuthorizedOps(b.ctx), topic)
		if err != nil {
			b.t.Fatal(err)
		}
		allowed := m.Topics[topic].AuthorizedOperations
		if !slices.ContainsFunc(allowed, func(op kmsg.ACLOperation) bool { return !slices.Contains(operations, op) }) {
			break
		}
	}
	return func() {
		if _, err := b.admin.DeleteACLs(b.ctx, rule); err != nil {
			b.t.Error(err)
		}
	}
}

// A user who may not read any more, as after the end of a lease, costs nothing but the time until he may again.
func TestRightsThatEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	log := make(logged, 10_000)
	opts := short()
	opts.Workers.Log = slog.New(slog.NewTextHandler(log, nil))
	r := b.run(specOf(nothing), opts)
	b.send(record("m-1", "a"))
	r.wants(everonce.Executed)
	ended := b.only(b.topic.Name, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe)
	for !strings.Contains(await(t, log, "a complaint"), "TOPIC_AUTHORIZATION_FAILED") {
	}
	b.send(record("m-2", "a"))
	ended()
	r.wants(everonce.Executed)
}

// If a dead letter may not be written, its message is retried until it may, and blocks no others.
func TestRefusedDeadLettersBlockNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	log := make(logged, 10_000)
	r := b.run(specOf(nothing), &kafkaonce.Options{Workers: consume.Workers{Concurrency: 1, Log: slog.New(slog.NewTextHandler(log, nil))}})
	ended := b.only(b.letters(), kmsg.ACLOperationRead, kmsg.ACLOperationDescribe)
	b.send(record("", "a"), record("m-1", "a"))
	for !strings.Contains(await(t, log, "a complaint"), "the dead-letter queue refuses a message") {
	}
	for await(t, r.decisions, "a decision").Outcome != everonce.Executed { // m-1
	}
	ended()
	l := b.open()
	for len(b.all(l, consume.Filter{Reasons: []consume.Reason{consume.NoKey}})) != 1 {
	}
}

// logged receives log messages.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// unusable is a store whose tables are missing, which its coming back would not mend.
type unusable struct{ *memstore.Store }

func (unusable) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// A consumer whose store has no tables ends, and says why.
func TestAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	recv, err := everonce.NewReceiver(unusable{memstore.New(nil)}, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := consume.New(recv, specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kafkaonce.Dial(b.ctx, b.url, b.topic, h, &kafkaonce.Options{Group: b.group})
	if err != nil {
		t.Fatal(err)
	}
	b.send(record("m-1", "a"))
	if err := c.Run(b.ctx); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
	if at := b.committed(0); at > 0 {
		t.Errorf("%d is committed", at)
	}
}
