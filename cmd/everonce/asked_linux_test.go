package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// What becomes a dead letter while the question waits for its answer was not asked about: it is not discarded in place of one
// that is gone by then.
func TestWhatCameAfterTheQuestionIsNotDiscarded(t *testing.T) {
	url := os.Getenv("EVERONCE_TEST_RABBITMQ_URL")
	if url == "" {
		t.Fatal(`no RabbitMQ to test with: run scripts/services up rabbitmq, then eval "$(scripts/services env)", or set EVERONCE_TEST_RABBITMQ_URL`)
	}
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the test is over
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := "cli." + strings.ToLower(rand.Text())
	letters, err := ch.QueueDeclare(queue+".dead", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ch.QueueDelete(letters.Name, false, false, false) //nolint:errcheck // as above
	bury := func(id string) {
		err := ch.Publish("", letters.Name, true, false, amqp.Publishing{MessageId: id, Headers: amqp.Table{
			"x-everonce-reason": "exhausted", "x-everonce-queue": queue, "x-everonce-last": time.Now().UTC().Format(time.RFC3339Nano),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	take := func() string {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			switch d, ok, err := ch.Get(letters.Name, true); { // what was looked at may not be back yet
			case err != nil:
				t.Fatal(err)
			case ok:
				return d.MessageId
			}
		}
		t.Fatal("no letter")
		return ""
	}
	bury("first")
	bury("second")

	user, program := terminal(t)
	asked := &question{answer: func() {
		take() // somebody else has replayed it
		bury("new")
		if _, err := user.WriteString("yes\n"); err != nil {
			t.Error(err)
		}
	}}
	var out bytes.Buffer
	if code := execute(context.Background(), []string{"dlq", "discard", "--broker", url, "--queue", queue, "--all"}, program, &out, asked); code != 0 || !strings.HasPrefix(out.String(), "discarded 1 ") {
		t.Errorf("%d: %s%s", code, out.String(), asked.String())
	}
	if left := take(); left != "new" {
		t.Errorf("%q is left", left)
	}
}

// A verdict is on the attempt that was looked at: where another has run, and ended in the unknown too, while the question waited
// for its answer, nobody has found out what became of that one.
func TestAnAttemptAfterTheQuestionIsNotSettled(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "records.db")
	store, err := sqlitestore.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the test is over
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := everonce.Key{Scope: "shop", ID: "order-1"}
	unknown := func() {
		_, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (int, error) { return 0, errWork })
		if !errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	}
	unknown()
	user, program := terminal(t)
	asked := &question{answer: func() {
		if err := r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleNotDone}); err != nil { // somebody else was faster
			t.Error(err)
		}
		unknown()
		if _, err := user.WriteString("yes\n"); err != nil {
			t.Error(err)
		}
	}}
	var out bytes.Buffer
	args := []string{"keys", "settle", "--store", "sqlite:" + file, "--scope", "shop", "--id", "order-1", "--not-done"}
	if code := execute(ctx, args, program, &out, asked); code != exitConflict {
		t.Errorf("%d: %s%s", code, out.String(), asked.String())
	}
	if _, err := everonce.Lookup[int](ctx, r, key); !errors.Is(err, everonce.ErrOutcomeUnknown) {
		t.Errorf("the second attempt: %v", err)
	}
}

// question answers, once, what is asked on it.
type question struct {
	bytes.Buffer
	answer func()
}

func (q *question) Write(p []byte) (int, error) {
	n, err := q.Buffer.Write(p)
	if q.answer != nil && bytes.Contains(q.Bytes(), []byte("Type yes")) {
		q.answer()
		q.answer = nil
	}
	return n, err
}

// terminal returns the two ends of one.
func terminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() }) //nolint:errcheck // the test is over
	var locked, number int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 { //nolint:gosec // that is how it is asked
			t.Fatal(errno)
		}
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() }) //nolint:errcheck // as above
	return user, program
}
