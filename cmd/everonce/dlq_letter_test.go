package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// One letter can be shown and discarded beside others that are like it and have no key either.
func TestALetterWithoutAKey(t *testing.T) {
	url, queue, publish := deadQueue(t)
	for _, body := range []string{"one", "two"} {
		publish(amqp.Publishing{Body: []byte(body), Headers: amqp.Table{"x-death": []any{
			amqp.Table{"queue": queue, "reason": "delivery_limit", "time": time.Unix(1_700_000_000, 0), "count": int64(1)},
		}}})
	}
	at := []string{"--broker", url, "--queue", queue}
	listed := func() (list letterList) {
		out, _ := dlqOut(t, append(at, "list", "--json")...)
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := listed().Letters
	if len(all) != 2 || all[0].ID == all[1].ID || all[0].KeyHash != "" {
		t.Fatalf("%+v", all)
	}
	shown, _ := dlqOut(t, append(at, "show", "--data", "--letter", strings.ToUpper(all[0].ID))...)
	if strings.Contains(shown, "one") == strings.Contains(shown, "two") {
		t.Errorf("it shows both or none: %s", shown)
	}
	dlqOut(t, append(at, "discard", "--yes", "--letter", all[0].ID)...)
	if left := listed().Letters; len(left) != 1 || left[0].ID != all[1].ID {
		t.Errorf("left: %+v", left)
	}
}

// A letter whose queue no longer exists is kept. The output and the exit code report that it was not replayed.
func TestALetterThatIsNotReplayedIsReported(t *testing.T) {
	url, queue, publish := deadQueue(t)
	publish(amqp.Publishing{MessageId: "m-1", Headers: amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue}})
	var out, said bytes.Buffer
	args := []string{"dlq", "replay", "--broker", url, "--queue", queue, "--yes"}
	if code := execute(context.Background(), args, strings.NewReader(""), &out, &said); code != exitFailure || out.Len() > 0 {
		t.Errorf("%d: %s", code, out.String())
	}
	for _, want := range []string{"0 of 1 were replayed", "no such queue", `"level":"ERROR","msg":"not all replayed"`} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no %q in %s", want, said.String())
		}
	}
	if left := takeLetter(t, url, queue); left != "m-1" {
		t.Errorf("%q is left", left)
	}
}

// Letters that cannot be read without taking them all, as in a stream, are an error and not an empty list.
func TestUnreadableLettersAreReported(t *testing.T) {
	url, queue, _ := deadQueue(t)
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was only for the stream
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	stream, err := ch.QueueDeclare(queue+".stream", true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeStream})
	if err != nil {
		t.Fatal(err)
	}
	defer ch.QueueDelete(stream.Name, false, false, false) //nolint:errcheck // it is best effort
	for _, args := range [][]string{{"list"}, {"list", "--count"}, {"show", "--reason", "exhausted"}, {"replay", "--dry-run"}, {"replay", "--yes"}, {"discard", "--all", "--yes"}} {
		var out, said bytes.Buffer
		at := []string{"dlq", "--broker", url, "--queue", queue, "--dead-letters", stream.Name}
		if code := execute(context.Background(), append(at, args...), strings.NewReader(""), &out, &said); code != exitNotFound || out.Len() > 0 || !strings.Contains(said.String(), "cannot be read") {
			t.Errorf("%v: %d: %s%s", args, code, out.String(), said.String())
		}
	}
}

// A replay that is repeated by a timer ends: a letter that was replayed so often is left alone, and shown with its
// count.
func TestALetterIsNotReplayedForEver(t *testing.T) {
	url, queue, publish := deadQueue(t)
	for id, replays := range map[string]int64{"m-0": 0, "m-2": 2} {
		headers := amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue, "x-everonce-key-hash": "aa", "x-everonce-message-id": id}
		if replays > 0 {
			headers["x-everonce-replays"] = replays
		}
		publish(amqp.Publishing{MessageId: "aa", Headers: headers})
	}
	at := []string{"--broker", url, "--queue", queue}
	for bound, want := range map[string]int{"1": 1, "2": 1, "3": 2} {
		out, _ := dlqOut(t, append(at, "replay", "--dry-run", "--json", "--max-replays", bound)...)
		var found moved
		if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Letters) != want {
			t.Errorf("--max-replays %s: %s, %v; want %d letters", bound, out, err, want)
		}
	}
	var out, said bytes.Buffer
	args := append([]string{"dlq", "replay", "--yes", "--max-replays", "2"}, at...) // its queue is gone, so the letter is kept: one was selected
	if code := execute(context.Background(), args, strings.NewReader(""), &out, &said); code != exitFailure || !strings.Contains(said.String(), "0 of 1 were replayed") {
		t.Errorf("%d: %s %s", code, out.String(), said.String())
	}
	if shown, _ := dlqOut(t, append(at, "show", "--key", "aa")...); strings.Count(shown, "replays      0") != 1 || strings.Count(shown, "replays      2") != 1 {
		t.Errorf("shown are %s", shown)
	}
	if code := execute(context.Background(), append([]string{"dlq", "replay", "--max-replays", "0"}, at...), strings.NewReader(""), &out, &said); code != exitUsage {
		t.Errorf("--max-replays 0 ends with %d", code)
	}
}
