package main

import (
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
