package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/internal/testserver"
)

// deadQueue makes a queue of dead letters, which is gone after the test, and returns what publishes to it.
func deadQueue(t *testing.T) (url, queue string, publish func(amqp.Publishing)) {
	t.Helper()
	return lettersOf(t, nil)
}

// lettersOf is deadQueue, declared with arguments.
func lettersOf(t *testing.T, args amqp.Table) (url, queue string, publish func(amqp.Publishing)) {
	t.Helper()
	url = testserver.URL(t, "rabbitmq")
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue = "cli." + strings.ToLower(rand.Text())
	letters, err := ch.QueueDeclare(queue+".dead", true, false, false, false, args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := ch.QueueDelete(letters.Name, false, false, false); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return url, queue, func(msg amqp.Publishing) {
		c, err := ch.PublishWithDeferredConfirm("", letters.Name, true, false, msg)
		if err != nil || !c.Wait() {
			t.Fatalf("not published: %v", err)
		}
	}
}

// takeLetter takes a letter out of a queue of dead letters, and returns its message ID.
func takeLetter(t *testing.T, url, queue string) string {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was only for this
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		switch d, ok, err := ch.Get(queue+".dead", true); { // what was looked at may not be back yet
		case err != nil:
			t.Fatal(err)
		case ok:
			return d.MessageId
		}
	}
	t.Fatal("no letter")
	return ""
}

// dlqOut runs dlq, and returns what it wrote.
func dlqOut(t *testing.T, args ...string) (out, said string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := execute(context.Background(), append([]string{"dlq"}, args...), strings.NewReader(""), &o, &e); code != 0 {
		t.Fatalf("%v: %d: %s", args, code, e.String())
	}
	return o.String(), e.String()
}

// A letter is a stranger's: nothing in it, wherever it stands, is a command to the terminal that it is shown on.
func TestALetterIsNoCommandToATerminal(t *testing.T) {
	url, queue, publish := deadQueue(t)
	hostile := "\x1b]0;title\a\x1b[2J\u009b2J\u202e\u2066\x7f\r\b\t\n\u200b" + string(rune(0xe0001)) // 7-bit, 8-bit, bidirectional, invisible
	for _, body := range []string{hostile, "\x9b2J\xff\x1b[2J"} {
		publish(amqp.Publishing{MessageId: "m" + hostile, ContentType: hostile, Body: []byte(body), Headers: amqp.Table{
			"x-everonce-reason": "exhausted", "x-everonce-queue": queue, "x-everonce-key-hash": "ab" + hostile, "x-everonce-detail": hostile,
			"x-everonce-consumer": hostile, "x-everonce-routing-key": hostile, "x-everonce-message-id": hostile,
			"name " + hostile: hostile, "odd " + hostile: amqp.Table{},
		}})
	}
	at := []string{"--broker", url, "--queue", queue}
	for _, args := range [][]string{
		{"list"},
		{"list", "--json"},
		{"list", "--count"},
		{"list", "--count", "--json"},
		{"show", "--key", "ab"},
		{"show", "--key", "ab", "--data"},
		{"show", "--key", "ab", "--data", "--json"},
		{"replay", "--dry-run"},
		{"replay", "--dry-run", "--json"},
		{"discard", "--all", "--yes"},
	} {
		out, said := dlqOut(t, append(args, at...)...)
		for _, line := range strings.Split(out+said, "\n") {
			if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }); i >= 0 {
				t.Errorf("%v wrote %q", args, line[i:])
			}
		}
	}
}

// A list that is not all of them says so.
func TestAListOfLettersSaysThatThereAreMore(t *testing.T) {
	url, queue, publish := deadQueue(t)
	for range 3 {
		publish(amqp.Publishing{Headers: amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue, "x-everonce-last": time.Now().UTC().Format(time.RFC3339Nano)}})
	}
	for limit, more := range map[int]bool{2: true, 4: false} {
		out, said := dlqOut(t, "list", "--broker", url, "--queue", queue, "--limit", strconv.Itoa(limit))
		if n := strings.Count(out, "exhausted"); n != min(limit, 3) || strings.Contains(said, "There may be more") != more {
			t.Errorf("--limit %d: %d letters, and %q", limit, n, said)
		}
	}
}

// A count covers all letters, and not just one page.
func TestACountOfLettersIsOfAll(t *testing.T) {
	url, queue, publish := deadQueue(t)
	for range defaultPage + 1 {
		publish(amqp.Publishing{Headers: amqp.Table{"x-everonce-reason": "exhausted", "x-everonce-queue": queue}})
	}
	if out, _ := dlqOut(t, "list", "--broker", url, "--queue", queue, "--count", "--json"); out != `{"letters":101,"reasons":{"exhausted":101}}`+"\n" {
		t.Error(out)
	}
}

// A body that is not text is kept in the JSON byte for byte.
func TestABodyThatIsNoTextIsShownWhole(t *testing.T) {
	url, queue, publish := deadQueue(t)
	publish(amqp.Publishing{Body: []byte("\xff\x00"), Headers: amqp.Table{"x-everonce-reason": "undecodable", "x-everonce-queue": queue}})
	if out, _ := dlqOut(t, "show", "--broker", url, "--queue", queue, "--reason", "undecodable", "--data", "--json"); !strings.Contains(out, `"body_base64":"/wA="`) || strings.Contains(out, `"body":`) {
		t.Error(out)
	}
}
