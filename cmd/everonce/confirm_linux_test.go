package main

import (
	"bytes"
	"context"
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

// A letter that becomes dead while the question waits for its answer was not part of the question. It is not discarded
// in place of one that is gone. The broker's own letters have times in whole seconds, and letters may be equal.
func TestWhatCameAfterTheQuestionIsNotDiscarded(t *testing.T) {
	ours := func(queue string) amqp.Table {
		return amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue, "x-everonce-last": time.Now().UTC().Format(time.RFC3339Nano)}
	}
	brokers := func(queue string) amqp.Table {
		return amqp.Table{"x-death": []any{amqp.Table{"queue": queue, "reason": "expired", "time": time.Unix(1_700_000_000, 0), "count": int64(1)}}}
	}
	for name, c := range map[string]struct {
		headers func(queue string) amqp.Table
		equal   bool // to the letter that is left
	}{
		"a later one":            {ours, false},
		"one of the same second": {brokers, false},
		"one that is equal":      {brokers, true},
	} {
		t.Run(name, func(t *testing.T) {
			url, queue, publish := deadQueue(t)
			bury := func(id string) { publish(amqp.Publishing{MessageId: id, Headers: c.headers(queue)}) }
			bury("first")
			bury("second")

			user, program := terminal(t)
			came := "new"
			asked := &question{answer: func() {
				gone := takeLetter(t, url, queue) // somebody else has replayed it
				if c.equal {
					came = map[string]string{"first": "second", "second": "first"}[gone]
				}
				bury(came)
				if _, err := user.WriteString("yes\n"); err != nil {
					t.Error(err)
				}
			}}
			var out bytes.Buffer
			if code := execute(context.Background(), []string{"dlq", "discard", "--broker", url, "--queue", queue, "--all"}, program, &out, asked); code != 0 || !strings.HasPrefix(out.String(), "discarded 1 of 2 dead letters: the others were moved, or are held by another consumer") || !strings.Contains(asked.String(), `"missed":1`) {
				t.Errorf("%d: %s%s", code, out.String(), asked.String())
			}
			if left := takeLetter(t, url, queue); left != came {
				t.Errorf("%q is left", left)
			}
		})
	}
}

// A verdict is about the attempt that was inspected. If another attempt has run since, and its outcome is unknown too,
// nothing is settled.
func TestAnAttemptAfterTheQuestionIsNotSettled(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "records.db")
	store, err := sqlitestore.Open(ctx, file, nil)
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

// Only the full answer "yes" confirms; no other answer does.
func TestOnlyYesIsYes(t *testing.T) {
	url, queue, publish := deadQueue(t)
	publish(amqp.Publishing{MessageId: "m-1", Headers: amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue}})
	for _, answer := range []string{"y\n", "YES\n", "\n", "no\n", "yes please\n", "\x04"} {
		user, program := terminal(t)
		asked := &question{answer: func() {
			if _, err := user.WriteString(answer); err != nil {
				t.Error(err)
			}
		}}
		var out bytes.Buffer
		if code := execute(context.Background(), []string{"dlq", "discard", "--broker", url, "--queue", queue, "--all"}, program, &out, asked); code != exitFailure || out.Len() > 0 || !strings.Contains(asked.String(), errNotMoved.Error()) {
			t.Errorf("%q: %d: %s%s", answer, code, out.String(), asked.String())
		}
	}
	if left := takeLetter(t, url, queue); left != "m-1" {
		t.Errorf("%q is left", left)
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
