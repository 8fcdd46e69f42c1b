package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// Each message is handled once, in the order of its record key. A duplicate that the producer sends has no effect.
func TestHandlesEachMessageOnceInTheOrderOfItsKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	var mu sync.Mutex
	handled := map[string][]string{}
	r := b.run(specOf(func(_ context.Context, m *consume.Message, o order) error {
		mu.Lock()
		defer mu.Unlock()
		handled[m.Subject] = append(handled[m.Subject], o.ID)
		return nil
	}), nil)
	for i := range 20 {
		for key := range int32(4) {
			m := record(fmt.Sprintf("%d-%02d", key, i), fmt.Sprint("key-", key))
			m.Partition = key % 2
			again := *m
			b.send(m, &again)
		}
	}
	for range 160 {
		await(t, r.decisions, "a decision")
	}
	r.stop()
	for key := range 4 {
		ids := handled[fmt.Sprint("key-", key)]
		for i := range 20 {
			if len(ids) != 20 || ids[i] != fmt.Sprintf("%d-%02d", key, i) {
				t.Fatalf("key %d: %v", key, ids)
			}
		}
	}
	for partition := range int32(2) {
		if at := b.committed(partition); at != 80 {
			t.Errorf("partition %d: %d is committed after the end, want 80", partition, at)
		}
	}
}

// Nothing behind a message that is not finished is committed, whatever is finished there.
func TestAnOffsetWaitsForTheMessagesBeforeIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	begun, finish := make(chan struct{}), make(chan struct{})
	r := b.run(specOf(func(_ context.Context, _ *consume.Message, o order) error {
		if o.ID == "slow" {
			close(begun)
			<-finish
		}
		return nil
	}), &kafkaonce.Options{CommitEvery: 10 * time.Millisecond})
	b.send(record("first", "a"), record("slow", "b"))
	for i := range 30 { // some of them are in another lane than the slow one
		b.send(record(fmt.Sprint(i), fmt.Sprint(i)))
	}
	await(t, begun, "the slow one")
	r.wants(everonce.Executed, everonce.Executed)
	if e := r.event(b, kafkaonce.Committed); e.Offset != 1 || e.Lag < 1 {
		t.Errorf("%d is committed, %d behind; want 1, and some", e.Offset, e.Lag)
	}
	close(finish)
	for e := r.event(b, kafkaonce.Committed); e.Offset != 32; e = r.event(b, kafkaonce.Committed) {
	}
}

// A partition with one slow message is paused when Buffer messages are fetched, and goes on afterwards.
func TestAFullPartitionIsPaused(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	finish := make(chan struct{})
	r := b.run(specOf(func(_ context.Context, _ *consume.Message, o order) error {
		if o.ID == "slow" {
			<-finish
		}
		return nil
	}), &kafkaonce.Options{Buffer: 10})
	b.send(record("slow", "slow"))
	for i := range 40 {
		b.send(record(fmt.Sprint(i), fmt.Sprint(i)))
	}
	r.event(b, kafkaonce.Paused)
	if n := len(r.decisions); n >= 20 {
		t.Errorf("%d were handled meanwhile", n)
	}
	close(finish)
	r.event(b, kafkaonce.Resumed)
	for range 41 {
		await(t, r.decisions, "a decision")
	}
	if n := len(r.decisions); n != 0 {
		t.Errorf("%d more", n)
	}
}

// short are options with which a member that does not answer is gone soon.
func short() *kafkaonce.Options {
	return &kafkaonce.Options{SessionTimeout: 3 * time.Second, RebalanceTimeout: 4 * time.Second, Buffer: 10}
}

// When a partition moves, its handlers finish, its offset is committed, and the new owner goes on from there. Other
// partitions go on.
func TestAPartitionThatMovesFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	for _, eager := range []bool{false, true} {
		t.Run(fmt.Sprint("eager=", eager), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2)
			opts := short()
			opts.Eager = eager
			begun, finish := make(chan struct{}, 2), make(chan struct{})
			first := b.run(specOf(func(context.Context, *consume.Message, order) error {
				begun <- struct{}{}
				<-finish
				return nil
			}), opts)
			one, two := record("one", "a"), record("two", "b")
			two.Partition = 1
			b.send(one, two)
			await(t, begun, "the first")
			await(t, begun, "the second")
			second := b.run(specOf(func(_ context.Context, m *consume.Message, _ order) error {
				t.Errorf("%s came to the second consumer", m.ID)
				return nil
			}), opts)
			close(finish)
			moved := first.event(b, kafkaonce.Revoked).Partition
			second.event(b, kafkaonce.Assigned)
			if at := b.committed(moved); at != 1 {
				t.Errorf("%d is committed when the partition has moved, want 1", at)
			}
			first.wants(everonce.Executed, everonce.Executed)
		})
	}
}

// When a partition moves, its handlers may not run for ever: their contexts end, and a handler that goes on finishes
// nothing. The new owner gets the message.
func TestAPartitionThatMovesGivesUpWhatHangs(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	opts := short()
	opts.Workers.DrainTimeout, opts.Workers.SettleTimeout = 100*time.Millisecond, 100*time.Millisecond
	begun, finish := make(chan struct{}, 10), make(chan struct{})
	first := b.run(specOf(func(ctx context.Context, _ *consume.Message, _ order) error {
		begun <- struct{}{}
		<-ctx.Done()
		<-finish
		return nil
	}), opts)
	one, two := record("one", "a"), record("two", "b")
	two.Partition = 1
	b.send(one, two)
	await(t, begun, "the first")
	await(t, begun, "the second")
	second := b.run(specOf(nothing), opts)
	moved := first.event(b, kafkaonce.Revoked).Partition
	if at := b.committed(moved); at != -1 {
		t.Errorf("%d is committed when the partition has moved", at)
	}
	second.wants(everonce.Executed)
	close(finish)
	first.wants(everonce.Executed)
}

// When a partition is lost, the contexts of its handlers end at once, and messages handled then are not committed.
func TestALostPartitionEndsItsWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	begun, ended := make(chan struct{}, 10), make(chan error, 10)
	r := b.run(specOf(func(ctx context.Context, _ *consume.Message, _ order) error {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}), short())
	b.send(record("m-1", "a"))
	await(t, begun, "the work")
	b.evict()
	if err := await(t, ended, "the end of the work's context"); !errors.Is(err, consume.ErrGone) {
		t.Errorf("the work's context ended with %v", err)
	}
	r.event(b, kafkaonce.Lost)
	if at := b.committed(0); at != -1 {
		t.Errorf("%d is committed", at)
	}
	r.wants(everonce.Executed, everonce.Replayed) // it comes again to the consumer, which joins again
}

// evict removes the members of the group, as a coordinator does that does not hear of them.
func (b *bench) evict() {
	b.t.Helper()
	groups, err := b.admin.DescribeGroups(b.ctx, b.group)
	if err != nil {
		b.t.Fatal(err)
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = b.group
	for _, m := range groups[b.group].Members {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
	}
	if _, err := req.RequestWith(b.ctx, b.client); err != nil {
		b.t.Fatal(err)
	}
}
