package otelonce

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/everonce/everonce"
)

// Buckets, in seconds.
var (
	// short is for the time that a caller waits.
	short = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// long is for repetitions: from a client's retry to the replay of a dead letter after weeks.
	long = []float64{1, 10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 3 * 86400, 7 * 86400, 14 * 86400, 30 * 86400}
	// lags is for queues.
	lags = []float64{.005, .025, .1, .25, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86400}
)

// Keys of labels. They follow OpenTelemetry's conventions where these define a name.
const (
	keyKind        = attribute.Key("kind")
	keyOutcome     = attribute.Key("outcome")
	keyState       = attribute.Key("state")
	keyTable       = attribute.Key("table")
	keyDisposition = attribute.Key("disposition")
	keyReason      = attribute.Key("reason")
	keyProblem     = attribute.Key("problem")
	keyDefinition  = attribute.Key("definition")
	keyRoute       = attribute.Key("http.route")
	keyStatus      = attribute.Key("http.response.status_code")
	keySystem      = attribute.Key("messaging.system")
	keyConsumer    = attribute.Key("messaging.consumer.group.name")
	keyDestination = attribute.Key("messaging.destination.name")
)

// figures has the instruments.
type figures struct {
	meter   metric.Meter
	running atomic.Int64
	counted atomic.Pointer[count]

	operations, duplicates         metric.Int64Counter
	storeErrors, storeRetries      metric.Int64Counter
	notRecorded, leasesLost        metric.Int64Counter
	renewFailures                  metric.Int64Counter
	duration, repeat               metric.Float64Histogram
	requests, problems, failedOpen metric.Int64Counter
	requestDuration, requestWait   metric.Float64Histogram
	messages, deadLetters          metric.Int64Counter
	processing                     metric.Float64Histogram
	events, inboxed, sagas         metric.Int64Counter
	published, handled             metric.Float64Histogram
	purged, janitorErrors          metric.Int64Counter
	countErrors                    metric.Int64Counter

	kinds       labels[kindAnd]
	topics      bounded
	definitions bounded
}

// kindAnd has the values of an operation's labels.
type kindAnd struct {
	kind    string
	outcome everonce.Outcome
}

func (f *figures) init(m metric.Meter, maxValues int) error {
	f.meter = m
	f.topics.max, f.definitions.max = maxValues, maxValues
	f.kinds.of = func(k kindAnd) []attribute.KeyValue {
		if k.outcome == 0 {
			return []attribute.KeyValue{keyKind.String(k.kind)}
		}
		return []attribute.KeyValue{keyKind.String(k.kind), keyOutcome.String(k.outcome.String())}
	}
	var errs []error
	counter := func(to *metric.Int64Counter, name, unit, about string) {
		var err error
		*to, err = m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
	}
	histogram := func(to *metric.Float64Histogram, name string, buckets []float64, about string) {
		var err error
		*to, err = m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
	}
	counter(&f.operations, "everonce.operations", "{operation}", "Calls by what became of them. Only executed is an effect.")
	counter(&f.duplicates, "everonce.duplicates", "{operation}", "Calls that found their operation done, and did not run it again.")
	counter(&f.storeErrors, "everonce.store.errors", "{operation}", "Operations that ended because the store failed.")
	counter(&f.storeRetries, "everonce.store.retries", "{call}", "Calls of the store, and transactions, that were repeated.")
	counter(&f.notRecorded, "everonce.not_recorded", "{operation}", "Operations that took effect and could not be recorded.")
	counter(&f.leasesLost, "everonce.leases.lost", "{attempt}", "Attempts that lost their record to another.")
	counter(&f.renewFailures, "everonce.lease.renew.failures", "{renewal}", "Renewals of a lease that failed: the next is late.")
	histogram(&f.duration, "everonce.operation.duration", short, "Time of a call, from its start to its end.")
	histogram(&f.repeat, "everonce.repeat.delay", long, "Time from an operation's completion to its repetition: what a retention must exceed.")

	counter(&f.requests, "everonce.http.requests", "{request}", "Requests with a key, by what became of them.")
	counter(&f.problems, "everonce.http.problems", "{request}", "Answers of everonce's own, by their problem.")
	counter(&f.failedOpen, "everonce.http.failed_open", "{request}", "Requests that passed UNPROTECTED because the store was down.")
	histogram(&f.requestDuration, "everonce.http.request.duration", short, "Time from a request's head to the end of its answer.")
	histogram(&f.requestWait, "everonce.http.wait.duration", short, "Time that repetitions waited for the first one.")

	counter(&f.messages, "everonce.messages", "{message}", "Deliveries, by what a consumer decided.")
	counter(&f.deadLetters, "everonce.dead_letters", "{message}", "Messages that became dead letters, by the reason.")
	histogram(&f.processing, "everonce.message.duration", short, "Time of a delivery in a consumer.")
	counter(&f.events, "everonce.outbox.events", "{event}", "Events in the hands of a relay, by what became of them.")
	histogram(&f.published, "everonce.outbox.publish", lags, "Time from an event's insertion until a relay had claimed it, of those that were published.")
	counter(&f.inboxed, "everonce.inbox.messages", "{message}", "Messages in the hands of a worker, by what became of them.")
	histogram(&f.handled, "everonce.inbox.handle", lags, "Time from a message's insertion until a worker had claimed it, of those that were handled.")
	counter(&f.sagas, "everonce.saga.turns", "{turn}", "Times that a runner let go of a saga, by where it stood.")

	counter(&f.purged, "everonce.purged.records", "{record}", "Records that time has let go.")
	counter(&f.janitorErrors, "everonce.janitor.errors", "{round}", "Rounds of the janitor that failed.")
	counter(&f.countErrors, "everonce.count.errors", "{count}", "Counts that failed: of the records, so that there is no everonce.records until one succeeds, or of the entries of a table.")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.fromZero()
	return f.gauges()
}

// fromZero initialises counters that alerts watch to 0: increase() does not see a counter that begins at 1.
func (f *figures) fromZero() {
	ctx := context.Background()
	for _, c := range []metric.Int64Counter{
		f.storeErrors, f.storeRetries, f.notRecorded, f.leasesLost, f.renewFailures, f.purged, f.janitorErrors, f.countErrors,
	} {
		c.Add(ctx, 0)
	}
	for _, kind := range []string{"do", "transact"} {
		for o := everonce.Executed; o.String() != "none"; o++ {
			if needsPerson(o) {
				f.operations.Add(ctx, 0, f.kinds.get(kindAnd{kind, o}).add...)
			}
		}
		f.duplicates.Add(ctx, 0, f.kinds.get(kindAnd{kind: kind}).add...)
	}
}

// operation records a call.
func (f *figures) operation(ctx context.Context, ev *everonce.Observation) {
	with := f.kinds.get(kindAnd{ev.Kind, ev.Outcome})
	f.operations.Add(ctx, 1, with.add...)
	f.duration.Record(ctx, ev.Duration.Seconds(), with.record...)
	if absorbed(ev) {
		f.duplicates.Add(ctx, 1, f.kinds.get(kindAnd{kind: ev.Kind}).add...)
		if ev.Since > 0 {
			f.repeat.Record(ctx, ev.Since.Seconds())
		}
	}
	if ev.Outcome == everonce.StoreFailed || ev.Outcome == everonce.NotRecorded {
		f.storeErrors.Add(ctx, 1)
	}
	if ev.Outcome == everonce.NotRecorded {
		f.notRecorded.Add(ctx, 1)
	}
	if ev.Retries > 0 {
		f.storeRetries.Add(ctx, int64(ev.Retries))
	}
	if ev.RenewFailures > 0 {
		f.renewFailures.Add(ctx, int64(ev.RenewFailures))
	}
	if ev.LeaseLost {
		f.leasesLost.Add(ctx, 1)
	}
}
