package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// node is a broker of a test's own, which it may ill-treat.
type node struct{ *testserver.Server }

// ctl runs rabbitmqctl on the node.
func (n *node) ctl(args ...string) { n.Run(`node rabbitmqctl "$@"`, args...) }

// A broker that is ill-treated: one node for all, since it takes seconds to start.
func TestOnANodeOfItsOwn(t *testing.T) {
	t.Parallel()
	n := &node{testserver.Start(t, "rabbitmq")}
	// Declared first: a broker that is killed within a second after it has declared a quorum queue has not stored its
	// name (https://github.com/rabbitmq/ra/pull/443 fixes that). It then starts as a new member, without messages, that
	// is never elected.
	b := newBenchOn(t, n.URL)
	b.declare()
	t.Run("TLS", n.tls)
	t.Run("AcknowledgementTimeout", n.acknowledgementTimeout)
	t.Run("Blocked", n.blocked)
	t.Run("EndWhileBlocked", n.endWhileBlocked)
	t.Run("Publisher", n.publisher)
	t.Run("SmallFrames", n.smallFrames)
	t.Run("TooLarge", n.tooLarge)
	t.Run("TooLargeElsewhere", n.tooLargeElsewhere)
	t.Run("AQueueWithoutALeader", n.withoutLeader)
	t.Run("LettersWithoutALeader", n.lettersWithoutLeader)
	t.Run("Policies", n.policies)
	t.Run("LettersLookedAtTooOften", n.lookedAtTooOften)
	t.Run("ForbiddenDeadLetters", n.forbidden)
	t.Run("ForbiddenCopies", n.forbiddenCopies)
	t.Run("RenewedCredentials", n.renewedCredentials)
	t.Run("RenewedRights", n.renewedRights)
	t.Run("Restart", func(t *testing.T) { n.restart(t, b) })
}

// A message is unacknowledged for longer than the broker allows: its channel is closed, and the message is
// redelivered, in progress first and replayed in the end.
func (n *node) acknowledgementTimeout(t *testing.T) {
	n.ctl("eval", "application:set_env(rabbit, consumer_timeout, 1000), application:set_env(rabbit, channel_tick_interval, 500).")
	defer n.ctl("eval", "application:set_env(rabbit, consumer_timeout, 1800000), application:set_env(rabbit, channel_tick_interval, 60000).")
	b := newBenchOn(t, n.URL)
	opts, again := connections(nil)
	ran := 0
	end := make(chan struct{})
	r := b.runOn(memstore.New(nil), n.URL, specOf(func(context.Context, *consume.Message, order) error { ran++; <-end; return nil }), opts)
	b.send(message("m-1"))
	wait(t, "the broker to close the channel", again)
	r.wants(everonce.InProgress)
	close(end)
	for executed, replayed := false, false; !executed || !replayed; {
		o := r.decision().Outcome
		executed, replayed = executed || o == everonce.Executed, replayed || o == everonce.Replayed
	}
	b.wantLength(b.queue.Name, 0)
	r.stop()
	if ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
}

// A broker whose frames are smaller than they are by default takes copies all the same: what has no room is left out.
func (n *node) smallFrames(t *testing.T) {
	n.ctl("eval", "application:set_env(rabbit, frame_max, 16384).")
	defer n.ctl("eval", "application:set_env(rabbit, frame_max, 131072).")
	b := newBenchOn(t, n.URL)
	r := b.runOn(memstore.New(nil), n.URL, specOf(func(context.Context, *consume.Message, order) error {
		return everonce.Permanent("no", errors.New(strings.Repeat("x", 4000)), nil)
	}), nil)
	msg := message("m-1")
	msg.Headers = amqp.Table{"large": strings.Repeat("x", 9000), "larger": strings.Repeat("y", 7000), "small": "z"}
	b.send(msg)
	r.wants(everonce.Rejected)
	b.wantLength(b.queue.DeadLetters, 1)
	if d := b.letter(); d.Headers["small"] != "z" || d.Headers["x-everonce-dropped"] == nil {
		t.Errorf("the dead letter: %v", d.Headers)
	}
}

// While the broker is short of memory it blocks publishers: messages are still handled and acknowledged, and messages
// to be retried wait until it accepts their copies.
func (n *node) blocked(t *testing.T) {
	b := newBenchOn(t, n.URL)
	complained := make(chan string, 10_000)
	good, failing := make(chan struct{}), make(chan struct{})
	failed := false
	opts := &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complained), Concurrency: 2}}
	r := b.runOn(memstore.New(nil), n.URL, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "good" {
			<-good
			return nil
		}
		if failed {
			return nil
		}
		failed = true
		<-failing
		return everonce.NotDone(errClosed)
	}), opts)
	b.send(message("good"), message("failing"))
	n.ctl("set_vm_memory_high_watermark", "0.0000001")
	close(failing)
	r.wants(everonce.Failed)
	for range 3 {
		<-complained // its copy is not taken
	}
	close(good)
	r.wants(everonce.Executed)
	n.ctl("set_vm_memory_high_watermark", "absolute", "512MB")
	for r.decision().Outcome != everonce.Executed { // an earlier copy may have arrived without a confirm: there may be two
	}
	b.send(message("")) // and copies are taken again, not only those that were on their way
	b.letter()
	b.wantLength(b.queue.Name, 0)
}

// Nor is the end of a consumer waited for until it takes them: what was to come later is given back, and nothing is lost.
func (n *node) endWhileBlocked(t *testing.T) {
	b := newBenchOn(t, n.URL)
	complained := make(chan string, 10_000)
	begun, blocked := make(chan struct{}), make(chan struct{})
	store, ran := memstore.New(nil), 0
	spec := specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			close(begun)
			<-blocked
			return everonce.NotDone(errClosed)
		}
		return nil
	})
	r := b.runOn(store, n.URL, spec, &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complained), Concurrency: 1}})
	b.send(message("m-1"))
	wait(t, "the message", begun)
	n.ctl("set_vm_memory_high_watermark", "0.0000001")
	close(blocked)
	<-complained // its copy is not taken
	r.stop()
	n.ctl("set_vm_memory_high_watermark", "absolute", "512MB")
	r.wants(everonce.Failed)
	r = b.runOn(store, n.URL, spec, &rabbitonce.Options{Workers: consume.Workers{Concurrency: 1}}) // one after the other
	r.wants(everonce.Executed)                                                                     // a copy that was on its way may come as well
	for _, name := range b.queues() {
		b.wantLength(name, 0)
	}
	r.stop()
	if ran != 2 {
		t.Errorf("it ran %d times", ran)
	}
}

// A queue of dead letters that is gone, and that this user may not declare, holds up nothing, though its other queues are declared.
func (n *node) forbidden(t *testing.T) {
	b := newBenchOn(t, n.URL)
	b.queue.DeadLetters = "letters." + b.queue.Name
	if _, err := b.ch.QueueDeclare(b.queue.DeadLetters, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	b.url = n.user(t, "clerk", `^test\.`, ".*", ".*")
	b.poisoned(func() { b.deleteQueue(b.queue.DeadLetters) }, "no such queue")
}

// user adds one that may configure, write and read so much, and returns its URL.
func (n *node) user(t *testing.T, name, configure, write, read string) (url string) {
	t.Helper()
	uri, err := amqp.ParseURI(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	uri.Username, uri.Password = name, "s3cret"
	n.ctl("add_user", uri.Username, uri.Password)
	n.ctl("set_permissions", uri.Username, configure, write, read)
	return uri.String()
}

// A user may read the queue, but not publish: copies are refused, and the log says why. The message waits until the
// user may publish to the default exchange.
func (n *node) forbiddenCopies(t *testing.T) {
	b := newBenchOn(t, n.URL)
	b.declare()
	b.queue.Topology = rabbitonce.Check
	complained := make(chan string, 10_000)
	ran := 0
	r := b.runOn(memstore.New(nil), n.user(t, "reader", "", `^test\.`, `^test\.\w+$`), specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 1 {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complained)}})
	b.send(message("m-1"))
	r.wants(everonce.Failed)
	for range 3 {
		if c := <-complained; !strings.Contains(c, "did not confirm a message") || !strings.Contains(c, "ACCESS_REFUSED") {
			t.Fatalf("it complained of %s", c)
		}
	}
	n.ctl("set_permissions", "reader", "", `^(amq\.default$|test\.)`, `^test\.\w+$`)
	r.wants(everonce.Executed)
	b.wantLength(b.queue.Name, 0)
	r.stop()
	if ran != 2 {
		t.Errorf("it ran %d times", ran)
	}
}

// A quorum queue has no leader, as after the loss of most of its nodes: the broker does not answer. The log says so,
// and the consumer goes on once there is a leader.
func (n *node) withoutLeader(t *testing.T) {
	b := newBenchOn(t, n.URL)
	w := newWire(t, n.URL)
	complained := make(chan string, 10_000)
	r := b.runOn(memstore.New(nil), w.url, specOf(nothing), &rabbitonce.Options{Workers: consume.Workers{Log: complaintsTo(complained)}})
	b.send(message("m-1"))
	r.wants(everonce.Executed)
	resume := n.suspend(b.queue.Name)
	w.cut()
	for c := range complained {
		if strings.Contains(c, "the queue has no leader") {
			break
		}
	}
	resume()
	b.send(message("m-2"))
	r.wants(everonce.Executed)
	b.wantLength(b.queue.Name, 0)
}

// suspend takes the leader from a quorum queue, until resume is called.
func (n *node) suspend(queue string) (resume func()) {
	leader := "'%2F_" + queue + "'"
	n.ctl("eval", "sys:suspend("+leader+").")
	return func() { n.ctl("eval", "sys:resume("+leader+").") }
}

// Calls do not wait for ever for dead letters in a queue without a leader, nor for a copy to such a queue: they return
// an error, and no dead letter is lost.
func (n *node) lettersWithoutLeader(t *testing.T) {
	b := newBenchOn(t, n.URL)
	b.declare()
	const letters = 20
	b.sendLetters(letters)
	for what, ask := range map[string]func(l *rabbitonce.DeadLetters, leaderless func(string)) error{
		"Replay": func(l *rabbitonce.DeadLetters, leaderless func(string)) error {
			leaderless(b.queue.Name)
			_, err := l.Replay(t.Context(), consume.Filter{Limit: 1})
			return err
		},
		"List": func(l *rabbitonce.DeadLetters, leaderless func(string)) error {
			leaderless(b.queue.DeadLetters)
			_, err := l.List(t.Context(), consume.Filter{})
			return err
		},
		"the rest of a list": func(l *rabbitonce.DeadLetters, leaderless func(string)) (err error) {
			for _, err = range l.All(t.Context(), consume.Filter{}) {
				leaderless(b.queue.DeadLetters)
			}
			return err
		},
	} {
		l, err := rabbitonce.DialDeadLetters(t.Context(), n.URL, b.queue, nil)
		if err != nil {
			t.Fatal(err)
		}
		var resume func()
		asked := make(chan error)
		go func() {
			asked <- ask(l, func(queue string) {
				if resume == nil {
					resume = n.suspend(queue)
				}
			})
		}()
		select {
		case err := <-asked:
			if err == nil || !strings.Contains(err.Error(), "the broker did not answer") {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(soon):
			t.Fatalf("%s waits for ever", what)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		resume()
		b.wantLength(b.queue.DeadLetters, letters)
	}
}

// A policy can take from the queues of this package what is in them, for good: no argument of a queue keeps it from that.
func (n *node) policies(t *testing.T) {
	for definition, loses := range map[string]func(b *bench){
		`{"message-ttl":100}`: func(b *bench) {
			b.sendLetters(2)
			b.wantLength(b.queue.DeadLetters, 0)
		},
		`{"max-length":1}`: func(b *bench) {
			b.sendLetters(2)
			b.wantLength(b.queue.DeadLetters, 1)
		},
		`{"expires":200}`: func(b *bench) { // a delay never has consumers
			long := b.queue.Name + ".retry.10m"
			b.sendTo(long, message("m-1"))
			for end := time.Now().Add(soon); b.holds(long); runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatal("the delay does not expire")
				}
			}
		},
	} {
		b := newBenchOn(t, n.URL)
		b.queue.Delays = append(b.queue.Delays, 10*time.Minute)
		b.declare()
		t.Cleanup(func() { b.deleteQueue(b.queue.Name + ".retry.10m") })
		n.ctl("set_policy", "theirs", `^test\..*\.(dead|retry\.10m)$`, definition, "--apply-to", "queues")
		loses(b)
		n.ctl("clear_policy", "theirs")
	}
}

// Below RabbitMQ 4.3 to look at a letter is a delivery of it: where the dead letters have a limit of these, a letter is
// gone for good when it was looked at more often than that. No policy raises a limit with which a queue was declared.
func (n *node) lookedAtTooOften(t *testing.T) {
	b := newBenchOn(t, n.URL)
	if _, err := b.ch.QueueDeclare(b.queue.DeadLetters, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(2)}); err != nil {
		t.Fatal(err)
	}
	b.declare() // which does not change them
	n.ctl("set_policy", "raised", `^test\..*\.dead$`, `{"delivery-limit":1000000}`, "--apply-to", "queues")
	defer n.ctl("clear_policy", "raised")
	b.sendLetters(1)
	l := b.letters()
	left, major, minor := 0, 0, 0
	if _, err := fmt.Sscanf(b.conn.Properties["version"].(string), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major > 4 || major == 4 && minor >= 3 {
		left = 1
	}
	for i, want := range []int{1, 1, 1, left} {
		if found, err := l.List(t.Context(), consume.Filter{}); err != nil || len(found) != want {
			t.Errorf("look %d: %d dead letters, %v, want %d", i+1, len(found), err, want)
		}
	}
	b.wantLength(b.queue.DeadLetters, left)
}

// holds reports whether a queue exists.
func (b *bench) holds(queue string) bool {
	b.t.Helper()
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	defer ch.Close() //nolint:errcheck // a refusal has closed it
	_, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	e, refused := errors.AsType[*amqp.Error](err)
	return !refused || e.Code != amqp.NotFound
}

// The broker is killed and started again in mid-stream: every message takes effect once, and none is left.
func (n *node) restart(t *testing.T, b *bench) {
	const messages = 300
	for i := range messages {
		b.send(message(fmt.Sprint("m-", i)))
	}
	var mu sync.Mutex
	ran := map[string]int{}
	halfway := make(chan struct{})
	r := b.runOn(memstore.New(nil), n.URL, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		mu.Lock()
		defer mu.Unlock()
		if ran[m.ID]++; len(ran) == messages/2 {
			close(halfway)
		}
		if ran[m.ID] == 1 && len(ran)%7 == 0 { // and so is in a queue with a delay
			return everonce.NotDone(errClosed)
		}
		return nil
	}), nil)
	wait(t, "half of them", halfway)
	n.Restart()
	for done := map[string]bool{}; len(done) < messages; {
		if v := r.decision(); v.Outcome == everonce.Executed {
			if done[v.KeyHash] {
				t.Errorf("%s was executed twice", v.KeyHash)
			}
			done[v.KeyHash] = true
		}
	}
	var err error
	if b.conn, err = amqp.Dial(n.URL); err != nil {
		t.Fatal(err)
	}
	if b.ch, err = b.conn.Channel(); err != nil {
		t.Fatal(err)
	}
	for _, q := range b.queues() {
		b.wantLength(q, 0)
	}
	r.stop()
}
