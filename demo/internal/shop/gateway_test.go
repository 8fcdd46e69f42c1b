package shop

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func openGateway(t *testing.T) (g *Gateway, ledger string) {
	t.Helper()
	ledger = filepath.Join(t.TempDir(), "mails.jsonl")
	g, err := OpenGateway(ledger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, ledger
}

func mailer(t *testing.T, h http.Handler) *Mailer {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return NewMailer(strings.TrimPrefix(srv.URL, "http://"))
}

// TestSendsTwice: this gateway does not deduplicate. If it did, the demo could not see a doubled mail.
func TestSendsTwice(t *testing.T) {
	t.Parallel()
	g, ledger := openGateway(t)
	m := mailer(t, g)
	for _, want := range []string{"mail-000001", "mail-000002"} {
		if id, err := m.Send(t.Context(), Mail{Key: "k", Order: "order-1"}); id != want || err != nil {
			t.Errorf("%q, %v; want %q", id, err, want)
		}
	}
	if got, err := ReadMails(ledger); err != nil || len(got) != 1 || !slices.Equal(got["order-1"], []string{"mail-000001", "mail-000002"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSenderGone: a sender that hangs up before its mail was accepted has sent nothing. A killed service does.
func TestSenderGone(t *testing.T) {
	t.Parallel()
	g, ledger := openGateway(t)
	g.accepting = time.Hour
	ctx, hangUp := context.WithCancel(t.Context())
	over := make(chan struct{})
	m := mailer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		hangUp()
		g.ServeHTTP(w, r)
	}))
	if id, err := m.Send(ctx, Mail{Order: "order-1"}); err == nil {
		t.Errorf("answered %q", id)
	}
	<-over
	if sent, err := ReadMails(ledger); err != nil || len(sent) != 0 {
		t.Errorf("%v sent, %v; want none", sent, err)
	}
}
