package gateway

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/payment"
)

func open(t *testing.T, accepting time.Duration) (c *Client, ledger string) {
	t.Helper()
	ledger = filepath.Join(t.TempDir(), "mails.jsonl")
	l, err := OpenLedger(ledger)
	if err != nil {
		t.Fatal(err)
	}
	g := New(l)
	g.accepting = accepting
	srv := httptest.NewServer(g)
	t.Cleanup(func() {
		srv.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewClient(srv.URL), ledger
}

func untilIdle(t *testing.T, c *Client) {
	t.Helper()
	for {
		busy, err := c.Busy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if busy == 0 {
			return
		}
	}
}

// TestSendsTwice: this gateway does not deduplicate. If it did, the demo could not see a doubled mail.
func TestSendsTwice(t *testing.T) {
	t.Parallel()
	c, ledger := open(t, accepting)
	for n := 1; n <= 2; n++ {
		id, err := c.Send(t.Context(), payment.Mail{Key: "k", Order: "order-1", Account: "a", Subject: "Hi"})
		if want := fmt.Sprintf("mail-%06d", n); id != want || err != nil {
			t.Errorf("%q, %v; want %q", id, err, want)
		}
	}
	got, err := ReadLedger(ledger)
	if err != nil || len(got) != 2 || got[0].Order != "order-1" || got[1].Key != "k" || got[0].ID == got[1].ID {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSenderGoneBefore: a sender that hangs up before its mail was accepted has sent nothing.
func TestSenderGoneBefore(t *testing.T) {
	t.Parallel()
	c, ledger := open(t, time.Hour)
	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		for { // until the gateway has it
			if busy, err := c.Busy(t.Context()); err != nil || busy > 0 {
				break
			}
		}
		hangUp()
	}()
	if id, err := c.Send(ctx, payment.Mail{Order: "order-1"}); err == nil {
		t.Errorf("answered %q", id)
	}
	untilIdle(t, c)
	if sent, err := ReadLedger(ledger); err != nil || len(sent) != 0 {
		t.Errorf("%d sent, %v; want none", len(sent), err)
	}
}

// TestSenderGoneAfter: one that hangs up later has sent it, and does not know.
func TestSenderGoneAfter(t *testing.T) {
	t.Parallel()
	c, ledger := open(t, 0)
	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		for { // until it is sent
			if sent, err := ReadLedger(ledger); err != nil || len(sent) > 0 {
				break
			}
		}
		hangUp()
	}()
	_, _ = c.Send(ctx, payment.Mail{Order: "order-1"}) // the answer may be faster
	untilIdle(t, c)
	if sent, err := ReadLedger(ledger); err != nil || len(sent) != 1 {
		t.Errorf("%d sent, %v; want one", len(sent), err)
	}
}
