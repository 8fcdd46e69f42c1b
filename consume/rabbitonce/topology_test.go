package rabbitonce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/store/memstore"
)

// dial tries to make a consumer of the bench's queue.
func (b *bench) dial(opts *rabbitonce.Options) error {
	b.t.Helper()
	h, err := consume.New(newReceiver(b.t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := rabbitonce.Dial(context.Background(), b.url, b.queue, h, opts)
	if err != nil {
		return err
	}
	return c.Close()
}

// A queue that is only to be checked must be there; the error names the one that is not.
func TestOnlyChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue.Topology = rabbitonce.Check
	if err := b.dial(nil); !errors.Is(err, rabbitonce.ErrTopology) || !strings.Contains(err.Error(), b.queue.DeadLetters) {
		t.Errorf("no queue exists: %v", err)
	}
	for _, name := range b.queues()[1:] {
		if _, err := b.ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.dial(nil); !errors.Is(err, rabbitonce.ErrTopology) || !strings.Contains(err.Error(), `"`+b.queue.Name+`"`) {
		t.Errorf("the queue does not exist: %v", err)
	}
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.dial(nil); err != nil {
		t.Errorf("all queues exist: %v", err)
	}
}

// A queue that was declared elsewhere with other arguments is not changed, and is consumed with DeclareOwn.
func TestAQueueDeclaredElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, amqp.Table{"x-max-length": int64(1000)}); err != nil {
		t.Fatal(err)
	}
	if err := b.dial(nil); !errors.Is(err, rabbitonce.ErrTopology) || !strings.Contains(err.Error(), "DeclareOwn") {
		t.Errorf("declared otherwise: %v", err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	ran := 0
	r := b.run(specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), nil)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
}

// During a rollout, two versions consume one queue: with other delays, and with another delivery limit and other dead
// letters, which do not change the existing queue. Each message takes effect once, whichever version gave it back.
func TestTwoVersionsOfAConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := memstore.New(nil)
	const messages = 60
	var mu sync.Mutex
	ran, done := map[string]int{}, map[string]int{}
	halfway, all := make(chan struct{}), make(chan struct{})
	spec := specOf(func(_ context.Context, m *consume.Message, _ order) error {
		mu.Lock()
		defer mu.Unlock()
		if ran[m.ID]++; ran[m.ID] <= 2 {
			return everonce.NotDone(errClosed)
		}
		done[m.ID]++
		switch len(done) {
		case messages / 2:
			close(halfway)
		case messages:
			close(all)
		}
		return nil
	})
	before := b.runOn(store, b.url, spec, nil)
	after := *b
	after.queue.Delays = []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}
	after.queue.DeliveryLimit, after.queue.DeadLetters = 7, "letters."+b.queue.Name
	if err := after.dial(nil); !errors.Is(err, rabbitonce.ErrTopology) || !strings.Contains(err.Error(), "DeclareOwn") {
		t.Errorf("another limit: %v", err)
	}
	after.queue.Topology = rabbitonce.DeclareOwn
	next := after.runOn(store, b.url, spec, nil)
	t.Cleanup(func() {
		b.deleteQueue(after.queue.DeadLetters)
		b.deleteQueue(b.queue.Name + ".retry.50ms")
	})
	for i := range messages {
		b.send(message(fmt.Sprint("m-", i)))
	}
	wait(t, "half of them", halfway)
	before.stop()
	wait(t, "all of them", all)
	for _, name := range append(b.queues(), after.queue.DeadLetters, b.queue.Name+".retry.50ms") {
		b.wantLength(name, 0)
	}
	b.send(message(""))
	b.take(after.queue.DeadLetters) // what the consumer sets aside goes to its own queue
	b.wantLength(b.queue.DeadLetters, 0)
	next.stop()
	for id, times := range done {
		if times != 1 {
			t.Errorf("%s was done %d times", id, times)
		}
	}
}

// Declared twice, by consumers that start together, is declared.
func TestDeclaredByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	errs := make(chan error)
	for range 4 {
		go func() { errs <- b.dial(nil) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Invalid arguments are rejected by Dial.
func TestRefusedArguments(t *testing.T) {
	t.Parallel()
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	const url = "amqp://user:s3cret@127.0.0.1:1/"
	queue := rabbitonce.Queue{Name: "orders"}
	for name, c := range map[string]struct {
		url   string
		queue rabbitonce.Queue
		h     *consume.Consumer
		opts  rabbitonce.Options
	}{
		"no URL":                        {"", queue, h, rabbitonce.Options{}},
		"another scheme":                {"http://user:s3cret@host/", queue, h, rabbitonce.Options{}},
		"an invalid URL":                {"amqp://user:s3cret@host:port/", queue, h, rabbitonce.Options{}},
		"no handler":                    {url, queue, nil, rabbitonce.Options{}},
		"no queue":                      {url, rabbitonce.Queue{}, h, rabbitonce.Options{}},
		"a long name":                   {url, rabbitonce.Queue{Name: strings.Repeat("x", 240)}, h, rabbitonce.Options{}},
		"dead letters in itself":        {url, rabbitonce.Queue{Name: "orders", DeadLetters: "orders"}, h, rabbitonce.Options{}},
		"no delay":                      {url, rabbitonce.Queue{Name: "orders", Delays: []time.Duration{0, time.Second}}, h, rabbitonce.Options{}},
		"a delay without end":           {url, rabbitonce.Queue{Name: "orders", Delays: []time.Duration{1000 * time.Hour}}, h, rabbitonce.Options{}},
		"no such topology":              {url, rabbitonce.Queue{Name: "orders", Topology: 9}, h, rabbitonce.Options{}},
		"negative delivery limit":       {url, rabbitonce.Queue{Name: "orders", DeliveryLimit: -1}, h, rabbitonce.Options{}},
		"negative prefetch":             {url, queue, h, rabbitonce.Options{Prefetch: -1}},
		"negative pause":                {url, queue, h, rabbitonce.Options{Backoff: consume.Backoff{Min: -1}}},
		"more than AMQP can say":        {url, queue, h, rabbitonce.Options{Prefetch: 1 << 16}}, // it would be 0: without a bound
		"negative concurrency":          {url, queue, h, rabbitonce.Options{Workers: consume.Workers{Concurrency: -1}}},
		"batches of a guarded consumer": {url, queue, h, rabbitonce.Options{Workers: consume.Workers{Batch: 2}}},
		"longer than the broker waits":  {url, queue, h, rabbitonce.Options{Workers: consume.Workers{HandleTimeout: 31 * time.Minute}}},
		"a heartbeat AMQP cannot say":   {url, queue, h, rabbitonce.Options{Heartbeat: 999 * time.Millisecond}}, // it would be the broker's
		"no time for the answer":        {url, queue, h, rabbitonce.Options{Workers: consume.Workers{HandleTimeout: 30 * time.Minute}, Prefetch: 8}},
		"longer behind one other":       {url, queue, h, rabbitonce.Options{Workers: consume.Workers{Concurrency: 2, HandleTimeout: 20 * time.Minute}, Prefetch: 3}},
		"longer behind others":          {url, queue, h, rabbitonce.Options{Workers: consume.Workers{Concurrency: 2, HandleTimeout: 10 * time.Minute}, Prefetch: 100}},
		"longer behind its like":        {url, queue, h, rabbitonce.Options{Workers: consume.Workers{Order: func(m *consume.Message) string { return m.Subject }, HandleTimeout: 10 * time.Minute}}},
	} {
		_, err := rabbitonce.Dial(t.Context(), c.url, c.queue, c.h, &c.opts)
		if !errors.Is(err, everonce.ErrInvalidArgument) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = rabbitonce.Dial(t.Context(), url, queue, h, &rabbitonce.Options{AckTimeout: 10 * time.Second}) // as long as an answer may take
	if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), "Workers.SettleTimeout, 10s") || strings.Contains(err.Error(), "HandleTimeout") {
		t.Errorf("no time for a handler without HandleTimeout: %v", err)
	}
	recv, err := everonce.NewTxReceiver[*mapdb.Tx](mapdb.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	inTx, err := consume.NewTx(recv, consume.TxSpec[order, *mapdb.Tx]{
		Consumer: "billing", Key: consume.ProducerID(), Handle: func(context.Context, *mapdb.Tx, *consume.Message, order) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rabbitonce.Dial(t.Context(), url, queue, inTx, &rabbitonce.Options{Prefetch: 9, Workers: consume.Workers{Batch: 10}})
	if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), "no batch would ever be full") {
		t.Errorf("batches that are never full: %v", err)
	}
	_, err = rabbitonce.Dial(t.Context(), url, queue, h, nil)
	if !errors.Is(err, rabbitonce.ErrUnreachable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("no listener: %v", err)
	}
}

// If prefetched messages leave a handler less time than the default, Dial logs that: otherwise the handler's context
// would end unexpectedly.
func TestAShortTimeForHandlersIsLogged(t *testing.T) {
	t.Parallel()
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	inOrder := consume.Workers{Order: func(m *consume.Message) string { return m.Subject }}
	for name, c := range map[string]struct {
		opts rabbitonce.Options
		want string // nothing: it is as by default, or as somebody has set it
	}{
		"default":                {rabbitonce.Options{}, ""},
		"much is sent ahead":     {rabbitonce.Options{Prefetch: 1000}, "handle_within=14.32s"},
		"so it is set":           {rabbitonce.Options{Prefetch: 1000, Workers: consume.Workers{HandleTimeout: 14 * time.Second}}, ""},
		"in order":               {rabbitonce.Options{Workers: inOrder}, "handle_within=1m51.875s"},
		"any number of workers":  {rabbitonce.Options{Prefetch: 100, Workers: consume.Workers{Concurrency: math.MaxInt}}, ""},
		"and what is sent ahead": {rabbitonce.Options{Workers: consume.Workers{Concurrency: math.MaxInt}}, ""},
		"a broker that is quick": {rabbitonce.Options{AckTimeout: 5 * time.Minute}, "handle_within=2m25s"},
	} {
		var logs bytes.Buffer
		c.opts.Workers.Log = slog.New(slog.NewTextHandler(&logs, nil))
		if _, err := rabbitonce.Dial(t.Context(), "amqp://127.0.0.1:1/", rabbitonce.Queue{Name: "orders"}, h, &c.opts); !errors.Is(err, rabbitonce.ErrUnreachable) {
			t.Fatal(err)
		}
		if text := logs.String(); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: logged was %q, want %s", name, text, c.want)
		}
	}
}

// A user that the broker refuses gets an error without the password.
func TestARefusedUser(t *testing.T) {
	t.Parallel()
	uri, err := amqp.ParseURI(brokerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	uri.Password = "s3cret"
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	_, err = rabbitonce.Dial(t.Context(), uri.String(), rabbitonce.Queue{Name: "orders"}, h, nil)
	if !errors.Is(err, rabbitonce.ErrUnreachable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}

// unusable is a store whose tables are missing, which its coming back would not mend.
type unusable struct{ *memstore.Store }

func (unusable) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// A consumer whose store cannot be used does not run, and says why: a supervisor would take a nil error for an end that was asked for.
func TestAStoreThatCanNotBeUsedEndsTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.New(newReceiver(t, unusable{memstore.New(nil)}), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	c, err := rabbitonce.Dial(t.Context(), b.url, b.queue, h, quick(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
}

// A consumer runs once, and one that was closed does not run.
func TestRunsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.New(newReceiver(t, memstore.New(nil)), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	for name, use := range map[string]func(*rabbitonce.Consumer) error{
		"closed": func(c *rabbitonce.Consumer) error { return errors.Join(c.Close(), c.Close()) },
		"closed by several at once": func(c *rabbitonce.Consumer) error {
			closed := make(chan error)
			for range 3 {
				go func() { closed <- c.Close() }()
			}
			return errors.Join(<-closed, <-closed, <-closed)
		},
		"ran": func(c *rabbitonce.Consumer) error { return c.Run(over) },
	} {
		c, err := rabbitonce.Dial(t.Context(), b.url, b.queue, h, quick(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := use(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Run(over); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where the broker takes connections, and lets the queue not be consumed, it is asked less and less often.
func TestAQueueThatMayNotBeConsumed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare(b.queue.Name, true, false, false, false, nil); err != nil { // a classic one, which knows exclusive consumers
		t.Fatal(err)
	}
	if _, err := b.ch.Consume(b.queue.Name, "", true, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	b.queue.Topology = rabbitonce.DeclareOwn
	log := &lines{}
	opts := &rabbitonce.Options{Backoff: consume.Backoff{Min: time.Millisecond, Max: time.Hour}, Workers: consume.Workers{Log: slog.New(slog.NewTextHandler(log, nil))}}
	r := b.run(specOf(nothing), opts)
	const long = 16 * time.Millisecond // more than a first pause can be
	end := time.Now().Add(soon)
	for pause := time.Duration(0); pause < long; {
		last := log.String()
		if time.Now().After(end) {
			t.Fatalf("the pauses do not grow: %s", last)
		}
		if i := strings.LastIndex(last, "pause="); i >= 0 {
			text, _, _ := strings.Cut(last[i+len("pause="):], " ")
			var err error
			if pause, err = time.ParseDuration(text); err != nil {
				t.Fatal(err)
			}
		}
		runtime.Gosched()
	}
	r.stop()
	if !strings.Contains(log.String(), rabbitonce.ErrTopology.Error()) {
		t.Error(log.String())
	}
}
