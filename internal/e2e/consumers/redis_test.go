package consumers

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// redisConsumer is a consumer whose records are in Redis, under a prefix, and what state a record has.
func redisConsumer(t *testing.T, client rueidis.Client, prefix string, handle func() error) (*consume.Consumer, func(everonce.Key) driver.State) {
	t.Helper()
	store, err := redisstore.New(t.Context(), client, &redisstore.Options{KeyPrefix: prefix})
	noErr(t, err)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	noErr(t, err)
	c, err := consume.New(recv, consume.Spec[order]{
		Consumer: "shipping", Key: byTenant,
		Handle: func(context.Context, *consume.Message, order) error { return handle() },
	})
	noErr(t, err)
	return c, func(key everonce.Key) driver.State {
		res, err := store.Get(t.Context(), driver.GetRequest{ID: recv.RecordID(key)})
		noErr(t, err)
		return res.Record.State
	}
}

// keys returns the keys under a prefix, and how many of them the server will expire.
func keys(t *testing.T, client rueidis.Client, prefix string) (all []string, ending int) {
	t.Helper()
	ctx := t.Context()
	for cursor := uint64(0); ; {
		page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
		noErr(t, err)
		for _, key := range page.Elements {
			ms, err := client.Do(ctx, client.B().Pttl().Key(key).Build()).AsInt64()
			noErr(t, err)
			all = append(all, key)
			if ms > 0 {
				ending++
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return all, ending
		}
	}
}

// A message in Redis is processing, without a TTL: a lock that ran out would let a second one in. A failure removes the
// lock, so that the retry runs; and completed it is kept with a TTL. Another process observes every step.
func TestPracticeRedisStatesProcessingAndCompleted(t *testing.T) {
	t.Parallel()
	client := redis(t)
	prefix := redisPrefix(t, client)
	begun, end := make(chan struct{}), make(chan error)
	c, _ := redisConsumer(t, client, prefix, func() error { begun <- struct{}{}; return <-end })
	other, state := redisConsumer(t, redis(t), prefix, func() error { t.Error("it was handled twice at once"); return nil })
	m := message("shop-1", "order-7", 1)
	key, err := c.KeyOf(m)
	noErr(t, err)
	verdicts := make(chan consume.Decision)
	for _, attempt := range []struct {
		err  error
		want consume.Disposition
		then driver.State
	}{
		{everonce.NotDone(errors.New("the carrier is closed")), consume.Retry, driver.StateReleased},
		{nil, consume.Ack, driver.StateCompleted},
	} {
		go func() { verdicts <- c.Handle(context.WithoutCancel(t.Context()), m) }()
		<-begun
		if v := other.Handle(t.Context(), m); v.Disposition != consume.Defer || v.Outcome != everonce.InProgress {
			t.Errorf("while it was processed elsewhere: %v, %v", v.Outcome, v.Disposition)
		}
		if s := state(key); s != driver.StateClaimed {
			t.Errorf("while it is processed: %v", s)
		}
		if all, ending := keys(t, client, prefix); len(all) == 0 || ending != 0 {
			t.Errorf("while it is processed, %d of the keys %q have an end", ending, all)
		}
		end <- attempt.err
		if v := <-verdicts; v.Disposition != attempt.want {
			t.Errorf("%v, %v; want %v", v.Outcome, v.Disposition, attempt.want)
		}
		if s := state(key); s != attempt.then {
			t.Errorf("%v, want %v", s, attempt.then)
		}
	}
	if v := other.Handle(t.Context(), m); v.Outcome != everonce.Replayed {
		t.Errorf("the duplicate elsewhere: %v (%v)", v.Outcome, v.Err)
	}
	if all, ending := keys(t, client, prefix); ending == 0 {
		t.Errorf("completed, and none of the keys %q has an end", all)
	}
}

// Redis forgets when its server does, and then every duplicate is handled again: payments belong into SQL, where record
// and payment are kept or lost together.
func TestPracticeRedisForgetsSoPaymentsBelongIntoSQL(t *testing.T) {
	t.Parallel()
	client := redis(t)
	prefix := redisPrefix(t, client)
	inRedis := 0
	c, _ := redisConsumer(t, client, prefix, func() error { inRedis++; return nil })
	sql := onSQLite(t)
	paid := sql.consumer(nil)(t, nil, func(_ context.Context, _ string, effect func() error) error { return effect() })
	m := message("shop-1", "order-7", 1)
	for range 2 {
		if v := c.Handle(t.Context(), m); v.Disposition != consume.Ack {
			t.Error(v)
		}
		if v := paid.consumer.Handle(t.Context(), m); v.Disposition != consume.Ack {
			t.Error(v)
		}
		all, _ := keys(t, client, prefix)
		noErr(t, client.Do(t.Context(), client.B().Del().Key(all...).Build()).Error())
	}
	n, err := paid.shipped(t.Context(), nameOf(m))
	noErr(t, err)
	if inRedis != 2 || n != 1 {
		t.Errorf("handled %d times over a Redis that forgot, want 2; and %d times in SQL, want 1", inRedis, n)
	}
}
