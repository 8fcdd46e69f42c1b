package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// lines returns the next line of a program that satisfies a condition.
func lines(t *testing.T, from io.Reader) (next func(with string) string) {
	t.Helper()
	scan := bufio.NewScanner(from)
	return func(with string) string {
		t.Helper()
		for scan.Scan() {
			if strings.Contains(scan.Text(), with) {
				return scan.Text()
			}
		}
		t.Fatalf("it ended without %q", with)
		return ""
	}
}

// startRelay runs a relay on an outbox that fill made, in which an operator has retried what was set aside.
func startRelay(t *testing.T, args ...string) (cmd *exec.Cmd, out, log func(with string) string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(store); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if code := execute(t.Context(), []string{"outbox", "retry", "--yes", "--store", "sqlite:" + file}, strings.NewReader(""), io.Discard, io.Discard); code != 0 {
		t.Fatalf("retry ended with %d", code)
	}
	cmd = exec.Command("everonce", append([]string{"outbox", "relay", "--store", "sqlite:" + file}, args...)...)
	cmd.Env = append(os.Environ(), noRace)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, lines(t, stdout), lines(t, stderr)
}

// endRelay ends a relay by SIGTERM, which is no fault.
func endRelay(t *testing.T, cmd *exec.Cmd, log func(with string) string) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	log("relay ended")
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A relay publishes what waits, shows what it did and what is left, and ends by SIGTERM without a fault.
func TestRelay(t *testing.T) {
	t.Parallel()
	cmd, out, log := startRelay(t, "--to", "stdout", "--health", "127.0.0.1:0")
	var starts struct{ Health string }
	if err := json.Unmarshal([]byte(log("relay starts")), &starts); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"blocked", "behind"} {
		out(`"id":"` + id + `","topic":"orders","key":"alice"`)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": `everonce_backlog_entries{state="delayed",table="outbox"} 1`} {
		resp, err := http.Get("http://" + starts.Health + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: %d %v, without %s:\n%s", path, resp.StatusCode, err, want, text)
		}
	}
	endRelay(t, cmd, log)
}

// A webhook gets each event with its ID and a signature; an address that is not public only if that is allowed.
func TestRelayToAWebhook(t *testing.T) {
	t.Parallel()
	secrets := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(secrets, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan *http.Request, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer hook.Close()
	cmd, _, log := startRelay(t, "--to", hook.URL, "--allow-private", "--secret-file", secrets)
	ids := make(map[string]bool)
	for len(ids) < 4 { // "blocked", "behind", and two that were dead
		r := <-got
		ids[r.Header.Get("Webhook-Id")] = true
		if !strings.HasPrefix(r.Header.Get("Webhook-Signature"), "v1,") {
			t.Errorf("%s is signed %q", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Signature"))
		}
	}
	endRelay(t, cmd, log)
	if !ids["blocked"] || !ids["dead-2"] {
		t.Errorf("published: %v", ids)
	}
}

// RabbitMQ gets an event at the exchange that was named, with the topic as routing key.
func TestRelayToRabbitMQ(t *testing.T) {
	t.Parallel()
	url := testserver.URL(t, "rabbitmq")
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was only for this
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	exchange := "cli." + strings.ToLower(rand.Text())
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err := errors.Join(err, ch.ExchangeDeclare(exchange, "topic", false, true, false, false, nil), ch.QueueBind(q.Name, "#", exchange, false, nil)); err != nil {
		t.Fatal(err)
	}
	messages, err := ch.ConsumeWithContext(t.Context(), q.Name, "", true, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, log := startRelay(t, "--to", url, "--exchange", exchange)
	for {
		m, ok := <-messages
		if !ok {
			t.Fatal("the connection is lost")
		}
		if m.MessageId == "blocked" {
			if m.RoutingKey != "orders" || string(m.Body) != `{"card":"4242"}` {
				t.Errorf("%q, with the routing key %q", m.Body, m.RoutingKey)
			}
			break
		}
	}
	endRelay(t, cmd, log)
}
