package kafkaonce

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/retry"
)

// Transform consumes a topic, makes output records from each record, and commits these together with the offsets, in
// Kafka transactions. Consumers that read committed records, as those in this package do, see the output of each input
// record once, even after a crash (transactional mode, from Kafka to Kafka).
//
// That covers records and offsets, and nothing else: the function may be called several times for one record, so it
// must have no side effects. A Transform keeps no records of keys: two sends by a producer are two input records. Copy
// the header ce_id to the output, and the next [Consumer] recognises the second one.
//
// A partition is transformed in its order, one record after the other. For more concurrency, run more Transforms.
type Transform struct {
	url, topic string
	work       func(context.Context, *kgo.Record) ([]*kgo.Record, error)
	opts       TransformOptions
}

// TransformOptions configure a Transform. The zero value of each field is its default; negative values are errors.
type TransformOptions struct {
	// TransactionalID names the producer, with the group and "-" as prefix. Two that run at a time in one group must not
	// share it: the later one ends the earlier. If an ID is kept over restarts, such as the name of a pod, the new
	// process ends the open transaction of the old one at once; otherwise readers of the output wait for it, up to
	// TransactionTimeout. Default: a random text.
	TransactionalID string
	// TransactionTimeout is how long a transaction may take. Then the context of the function ends, Kafka aborts the
	// transaction, and its records are transformed again, fewer at a time. Run ends if it is more than the broker's
	// transaction.max.timeout.ms, 15 minutes by default. Default 40 s.
	TransactionTimeout time.Duration
	// Batch is the largest number of input records in one transaction. Default 500. Batches shrink while transactions
	// take too long.
	Batch int
	// Backoff bounds the pause after a transaction that failed. Default 1 s and 1 minute.
	Backoff consume.Backoff
	// SessionTimeout is how long the group waits for a heartbeat of this member. Default 45 s.
	SessionTimeout time.Duration
	// Log gets failed transactions as warnings. Default [slog.Default].
	Log *slog.Logger
	// Client are further options of the client, as in [Options].
	Client []kgo.Opt
}

// DialTransform checks that the topic exists and that the user may read it. group is the consumer group. work makes
// output records, each with its Topic, from an input record. If it returns an error or panics, the transaction is
// aborted and its records are transformed again after a pause, until that succeeds. For a record that can never be
// transformed, return a record to a topic for such records, and no error. ctx bounds DialTransform only; url is as for
// [Dial], and opts may be nil. The error wraps [everonce.ErrInvalidArgument], [ErrUnreachable] or [ErrTopology].
func DialTransform(ctx context.Context, url, topic, group string, work func(context.Context, *kgo.Record) ([]*kgo.Record, error), opts *TransformOptions) (*Transform, error) {
	t := &Transform{url: url, topic: topic, work: work}
	if opts != nil {
		t.opts = *opts
	}
	o := &t.opts
	if topic == "" || group == "" || work == nil {
		return nil, fmt.Errorf("%w: kafkaonce: the topic, the group or the function of a Transform is missing", everonce.ErrInvalidArgument)
	}
	if o.TransactionTimeout < 0 || o.Batch < 0 || o.Backoff.Min < 0 || o.Backoff.Max < 0 || o.SessionTimeout < 0 {
		return nil, fmt.Errorf("%w: kafkaonce: no field of TransformOptions may be negative", everonce.ErrInvalidArgument)
	}
	o.TransactionalID = group + "-" + cmp.Or(o.TransactionalID, rand.Text())
	o.TransactionTimeout = cmp.Or(o.TransactionTimeout, 40*time.Second)
	o.Batch = cmp.Or(o.Batch, 500)
	o.Backoff = o.Backoff.WithDefaults(time.Second, time.Minute)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 45*time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	client, err := newClient(url, o.Client, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := reach(ctx, client); err != nil {
		return nil, err
	}
	if err := (need{topic: {kmsg.ACLOperationRead}}).check(ctx, client); err != nil {
		return nil, err
	}
	if err := mayJoin(ctx, client, group); err != nil {
		return nil, err
	}
	given := &Options{Group: group, SessionTimeout: o.SessionTimeout, RebalanceTimeout: time.Minute}
	o.Client = append(append([]kgo.Opt{}, o.Client...), given.group()...)
	o.Client = append(o.Client, kgo.ConsumeTopics(topic), kgo.TransactionalID(o.TransactionalID), kgo.TransactionTimeout(o.TransactionTimeout), kgo.RequiredAcks(kgo.AllISRAcks()))
	return t, nil
}

// Run joins the group and transforms records until ctx ends. It then aborts the open transaction, whose records the
// next member transforms, and waits some seconds for brokers that do not answer. Run goes on after failures. It
// returns an error only if it cannot: another Transform with the same TransactionalID has begun, the user may not use
// that ID, or the broker refuses the TransactionTimeout ([everonce.ErrInvalidArgument]).
func (t *Transform) Run(ctx context.Context) error {
	batch := t.opts.Batch
	for failures := 1; ; failures++ {
		began := time.Now()
		err := t.session(ctx, &batch)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTooLate): // after Kafka's abort, the producer looks fenced
		case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			return fmt.Errorf("kafkaonce: the transactional ID %q is in use by another producer, or the user may not use it: %w", t.opts.TransactionalID, err)
		case errors.Is(err, kerr.InvalidTransactionTimeout):
			return fmt.Errorf("%w: kafkaonce: TransactionTimeout, %v, is more than the broker's transaction.max.timeout.ms: %w", everonce.ErrInvalidArgument, t.opts.TransactionTimeout, err)
		}
		if time.Since(began) > t.opts.Backoff.Max {
			failures = 1
		}
		t.pauseAfter(ctx, failures, err)
	}
}

// pauseAfter logs a failure and waits before the next try.
func (t *Transform) pauseAfter(ctx context.Context, failures int, err error) {
	pause := retry.Within(t.opts.Backoff.Min, t.opts.Backoff.Max, failures)
	t.opts.Log.WarnContext(ctx, "kafkaonce: records could not be transformed, and will be retried", "topic", t.topic, "pause", pause, "error", err)
	retry.Pause(ctx, pause) //nolint:errcheck // the caller checks ctx
}

// session transforms until ctx ends or the client can no longer be used. batch is the size of the next transaction.
func (t *Transform) session(ctx context.Context, batch *int) error {
	opts, err := brokers(t.url)
	if err != nil {
		return err
	}
	s, err := kgo.NewGroupTransactSession(append(opts, t.opts.Client...)...)
	if err != nil {
		return err
	}
	defer t.leave(ctx, s)
	for failures := 0; ; {
		fetches := s.PollRecords(ctx, *batch)
		if ctx.Err() != nil {
			return nil
		}
		var anew error
		fetches.EachError(func(topic string, partition int32, err error) {
			if errors.Is(err, kerr.UnknownTopicID) {
				anew = err
			}
			t.opts.Log.WarnContext(ctx, "kafkaonce: a partition cannot be read", "topic", topic, "partition", partition, "error", err)
		})
		if anew != nil { // a new topic of that name needs a new client
			return anew
		}
		var failed error
		if fetches.NumRecords() > 0 {
			began := time.Now()
			failed, err = t.transact(ctx, s, fetches.Records())
			took := time.Since(began)
			*batch = t.opts.sized(*batch, fetches.NumRecords(), took)
			if err != nil && took >= t.opts.TransactionTimeout {
				return fmt.Errorf("%w: %w", errTooLate, err)
			}
			if err != nil {
				return err
			}
		}
		s.AllowRebalance()
		if failures++; failed == nil {
			failures = 0
		} else {
			t.pauseAfter(ctx, failures, failed)
		}
	}
}

// sized returns the size of the next batch after one of n records: smaller if that took too long, larger if there was
// time.
func (o *TransformOptions) sized(batch, n int, took time.Duration) int {
	switch {
	case took >= o.TransactionTimeout:
		return max(n/2, 1)
	case n >= batch && took < o.TransactionTimeout/4:
		return min(2*batch, o.Batch)
	}
	return batch
}

// lastWords is how long the brokers have to answer after ctx has ended.
const lastWords = 5 * time.Second

// ending returns the context for ending a transaction or a session.
func (t *Transform) ending(ctx context.Context) (context.Context, context.CancelFunc) {
	in, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), t.opts.TransactionTimeout, errSilent)
	stop := context.AfterFunc(ctx, func() {
		retry.Pause(in, lastWords) //nolint:errcheck // cancelled in either case
		cancel()
	})
	return in, func() { stop(); cancel() }
}

// leave leaves the group and closes the client. Its context ends, so that it does not wait for brokers that do not
// answer.
func (t *Transform) leave(ctx context.Context, s *kgo.GroupTransactSession) {
	leaving, cancel := t.ending(ctx)
	defer cancel()
	s.AllowRebalance()
	s.Client().LeaveGroupContext(leaving) //nolint:errcheck // the group notices
	s.CloseAllowingRebalance()
}

// transact runs one transaction. It returns why it was aborted, or an error after which the session can no longer be
// used. An abort by a rebalance is no failure: the next owner of the partitions transforms the records.
func (t *Transform) transact(ctx context.Context, s *kgo.GroupTransactSession, in []*kgo.Record) (failed, err error) {
	if err := s.Begin(); err != nil {
		return nil, err
	}
	promise := kgo.AbortingFirstErrPromise(s.Client())
	within, cancel := context.WithTimeoutCause(ctx, t.opts.TransactionTimeout, errTooLate)
	defer cancel()
	for _, r := range in {
		var out []*kgo.Record
		if out, failed = t.safely(within, r); failed != nil {
			break
		}
		for _, o := range out {
			s.Produce(within, o, promise.Promise())
		}
	}
	ending, cancel := t.ending(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- promise.Err() }()
	select {
	case err := <-sent:
		failed = cmp.Or(failed, err, context.Cause(within))
	case <-ending.Done():
		return nil, errSilent // closing the client aborts the transaction
	}
	_, err = s.End(ending, kgo.TransactionEndTry(failed == nil))
	return failed, err
}

// safely calls the function and turns a panic into an error.
func (t *Transform) safely(ctx context.Context, r *kgo.Record) (out []*kgo.Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.opts.Log.ErrorContext(ctx, "kafkaonce: the function of a Transform panicked", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "panic", p, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return t.work(ctx, r)
}

var (
	errPanicked = errors.New("kafkaonce: the function of a Transform panicked")
	errTooLate  = errors.New("kafkaonce: the transaction took longer than TransactionTimeout")
	errSilent   = errors.New("kafkaonce: the brokers do not answer")
)
