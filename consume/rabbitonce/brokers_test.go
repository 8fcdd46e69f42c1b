package rabbitonce_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// fixed gives always the same URLs.
func fixed(urls ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return urls, nil }
}

// executes waits until a message takes effect. One before it may come again: its acknowledgement was lost with a connection.
func (r *running) executes() {
	r.t.Helper()
	for r.decision().Outcome != everonce.Executed {
	}
}

// The consumer's node goes down: the consumer and its copies use the next one, and return to the first when that is up
// and the other is down.
func TestTheNextBrokerIsTried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := newWire(t, b.url), newWire(t, b.url)
	opts, again := connections(&rabbitonce.Options{URLs: fixed(first.url, second.url)})
	failed := atomic.Bool{}
	r := b.runOn(memstore.New(nil), "", specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "m-2" && failed.CompareAndSwap(false, true) {
			return everonce.NotDone(errClosed)
		}
		return nil
	}), opts)
	b.send(message("m-1"))
	r.executes()
	first.proxy.Stop()
	wait(t, "a connection to the second", again)
	b.send(message("m-2"))
	r.executes()
	if !failed.Load() {
		t.Error("no copy was published by the second")
	}
	first.start()
	second.proxy.Stop()
	wait(t, "a connection to the first", again)
	b.send(message("m-3"))
	r.executes()
}

// A node that takes connections and does not serve the queue, as one that is cut off from most of the others, is not tried first again.
func TestABrokerThatDoesNotServeIsNotTriedFirstAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	alone := atomic.Bool{}
	first := newLine(t, b.url, func() bool { return true })
	first.declaring = func([]byte) bool { return !alone.Load() }
	opts, again := connections(&rabbitonce.Options{URLs: fixed(first.url, b.url)})
	r := b.runOn(memstore.New(nil), "", specOf(nothing), opts)
	b.send(message("m-1"))
	r.executes()
	alone.Store(true)
	b.deleteQueue(b.queue.Name) // by which the consumer has to connect again
	wait(t, "a connection to the second", again)
	b.send(message("m-2"))
	r.executes()
}

// A function of URLs that fails is called again.
func TestURLsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := newWire(t, b.url)
	asked := 0
	opts, again := connections(&rabbitonce.Options{URLs: func(context.Context) ([]string, error) {
		if asked++; asked == 2 {
			return nil, errors.New("the vault is sealed")
		}
		return []string{w.url}, nil
	}})
	r := b.runOn(memstore.New(nil), "", specOf(nothing), opts)
	b.send(message("m-1"))
	r.executes()
	w.cut()
	wait(t, "a connection", again)
	b.send(message("m-2"))
	r.executes()
}

// A node that takes connections and says nothing leaves time for the next one.
func TestASilentBrokerLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of the test
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()                                            //nolint:errcheck // of the test
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than the 15 s that one connection may take
	defer cancel()
	l, err := rabbitonce.DialDeadLetters(ctx, "", b.queue, &rabbitonce.Options{URLs: fixed("amqp://"+silent.Addr().String(), b.url)})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Of brokers of which none can be reached each is named, and no password; what is no URL is refused before any is tried.
func TestBrokersThatCannotBeReached(t *testing.T) {
	t.Parallel()
	errVault := errors.New("the vault is sealed")
	for name, test := range map[string]struct {
		url  string
		urls func(context.Context) ([]string, error)
		want error
		says []string
	}{
		"no listener":     {"", fixed("amqp://u:s3cret@127.0.0.1:1", "amqp://u:s3cret@localhost:2"), rabbitonce.ErrUnreachable, []string{"127.0.0.1:1: ", "localhost:2: "}},
		"no URL":          {"", fixed("amqp://127.0.0.1:1", "http://u:s3cret@h"), everonce.ErrInvalidArgument, []string{"not an amqp://"}},
		"none":            {"", fixed(), everonce.ErrInvalidArgument, []string{"returned no URL"}},
		"it fails":        {"", func(context.Context) ([]string, error) { return nil, errVault }, errVault, []string{"Options.URLs"}},
		"a URL, and more": {"amqp://u:s3cret@127.0.0.1:1", fixed("amqp://127.0.0.1:1"), everonce.ErrInvalidArgument, []string{"leave one of them out"}},
	} {
		_, err := rabbitonce.DialDeadLetters(t.Context(), test.url, rabbitonce.Queue{Name: "any"}, &rabbitonce.Options{URLs: test.urls})
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range test.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, without %q", name, err, text)
			}
		}
	}
}

// A password that is changed, and a user who is replaced and then deleted, as at the end of a lease: the consumer goes on with the new
// one, and no password is logged.
func (n *node) renewedCredentials(t *testing.T) {
	b := newBenchOn(t, n.URL)
	url := atomic.Pointer[string]{}
	now := func(u string) { url.Store(&u) }
	complained := make(chan string, 10_000)
	opts, again := connections(&rabbitonce.Options{URLs: func(context.Context) ([]string, error) { return []string{*url.Load()}, nil }})
	opts.Workers.Log = slog.New(slog.NewMultiHandler(complaintsTo(complained).Handler(), opts.Workers.Log.Handler()))
	now(n.user(t, "lease1", ".*", ".*", ".*"))
	r := b.runOn(memstore.New(nil), "", specOf(nothing), opts)
	b.send(message("m-1"))
	r.executes()

	n.ctl("change_password", "lease1", "n3w")
	n.ctl("close_all_user_connections", "lease1", "a new password")
	for c := ""; !strings.Contains(c, "username or password not allowed"); {
		if c = wait(t, "a complaint", complained); strings.Contains(c, "s3cret") {
			t.Fatalf("it complained of %s", c)
		}
	}
	now(strings.Replace(*url.Load(), "s3cret", "n3w", 1))
	wait(t, "a connection with the new password", again)
	b.send(message("m-2"))
	r.executes()

	now(n.user(t, "lease2", ".*", ".*", ".*"))
	n.ctl("delete_user", "lease1") // which closes its connections
	wait(t, "a connection of the new user", again)
	b.send(message("m-3"))
	r.executes()
	r.stop()
}

// The user may no longer publish, as after the end of a token, for which the broker closes no connection: the next
// user publishes the refused copies. The consumer's connection, whose user may still read, keeps its messages.
func (n *node) renewedRights(t *testing.T) {
	b := newBenchOn(t, n.URL)
	b.declare()
	url := atomic.Pointer[string]{}
	now := func(u string) { url.Store(&u) }
	complained, proceed := make(chan string, 10_000), make(chan struct{})
	ran := 0
	now(n.user(t, "token1", "", `^(amq\.default$|test\.)`, `^test\.\w+$`))
	b.queue.Topology = rabbitonce.Check
	r := b.runOn(memstore.New(nil), "", specOf(func(context.Context, *consume.Message, order) error {
		if ran++; ran == 2 {
			<-proceed
		}
		return everonce.NotDone(errClosed)
	}),
		&rabbitonce.Options{URLs: func(context.Context) ([]string, error) { return []string{*url.Load()}, nil }, Workers: consume.Workers{Log: complaintsTo(complained)}})
	b.send(message("m-1"))
	r.wants(everonce.Failed) // and a copy was published
	n.ctl("set_permissions", "token1", "", `^test\.`, `^test\.\w+$`)
	b.deleteQueue(b.queue.Name + ".retry.100ms") // so that the next copy uses another channel: the broker caches permissions by channel
	close(proceed)
	for !strings.Contains(wait(t, "a complaint", complained), "ACCESS_REFUSED") {
	}
	b.queue.Topology = rabbitonce.Declare
	b.declare()
	now(n.user(t, "token2", "", `^(amq\.default$|test\.)`, `^test\.\w+$`))
	b.wantLength(b.queue.DeadLetters, 1)
	r.stop()
	if d := b.letter(); d.MessageId == "" || d.Headers["x-everonce-reason"] != string(consume.Exhausted) {
		t.Errorf("the dead letter: %v", d.Headers)
	}
}
