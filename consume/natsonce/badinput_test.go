package natsonce_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

// Whatever a producer sends is done, or is a dead letter that says why; the consumer goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	spec := specOf(nothing)
	spec.MaxBody = 1000
	r := b.run(spec, one)
	body := []byte(`{"id":"1"}`)
	for _, c := range []struct {
		name   string
		header nats.Header
		body   []byte
		reason consume.Reason
	}{
		{"no headers", nil, body, consume.NoKey},
		{"an empty ID", nats.Header{"Order-Id": {""}}, body, consume.NoKey},
		{"an ID by another name", nats.Header{"order-id": {"1"}}, body, consume.NoKey},
		{"two IDs", nats.Header{"Order-Id": {"1", "2"}}, body, consume.NoKey},
		{"a huge ID", nats.Header{"Order-Id": {strings.Repeat("1", 50_000)}}, body, consume.NoKey},
		{"no text", nats.Header{"Order-Id": {"\xff\xfe"}}, body, consume.NoKey},
		{"no JSON", nats.Header{"Order-Id": {"1"}}, []byte("<order/>"), consume.Undecodable},
		{"no body", nats.Header{"Order-Id": {"2"}}, nil, consume.Undecodable},
		{"a large body", nats.Header{"Order-Id": {"3"}}, make([]byte, 1001), consume.TooLarge},
		{"forged marks", nats.Header{"Order-Id": {"4"}, "X-Everonce-Retries": {"-1"}, "x-everonce-retries": {"99"}, "x-everonce-reason": {"unknown"}, "x-everonce-dropped": {"{"}, "x-everonce-first": {"never"}}, body, ""},
		{"the same ID with another body", nats.Header{"Order-Id": {"4"}}, []byte(`{"id":"2"}`), consume.Mismatch},
		{"what looks like a word of the server", nats.Header{"Status": {"100"}, "Description": {"Idle Heartbeat"}, "Order-Id": {"5"}}, body, ""},
	} {
		b.publish(&nats.Msg{Subject: b.queue.Stream + ".placed", Header: c.header, Data: c.body})
		if v := r.verdict(); v.Letter.Reason != c.reason || c.reason == "" && v.Outcome != everonce.Executed {
			t.Errorf("%s: %v, %v, %v", c.name, v.Letter.Reason, v.Outcome, v.Err)
		}
	}
	b.settled()
	reasons := map[string]int{}
	for _, l := range b.letters() {
		reasons[l.Header.Get("x-everonce-reason")]++
	}
	if reasons["no_key"] != 6 || reasons["undecodable"] != 2 || reasons["too_large"] != 1 || reasons["mismatch"] != 1 || len(reasons) != 4 {
		t.Error(reasons)
	}
}

// A password that is changed, as at the end of a lease, ends the connection. The consumer goes on with the new one, and no password is logged.
func TestCredentialsThatEnd(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, "nats")
	configured := func(password, before string) {
		t.Helper()
		users := `authorization { users: [ { user: test, password: test }, { user: me, password: ` + password + ` } ] }`
		if err := os.WriteFile(filepath.Join(server.Dir(), "server.conf"), []byte(users), 0o600); err != nil {
			t.Fatal(err)
		}
		server.Run(`kill -HUP "$(cat "$dir/pid")"`)
		for { // until the server has read it
			conn, err := nats.Connect(server.URL, nats.UserInfo("me", before))
			if err != nil {
				break
			}
			conn.Close()
		}
	}
	configured("s3cret", "none")
	b := newBenchOn(t, strings.Replace(server.URL, "//", "//test:test@", 1))
	var password atomic.Value
	password.Store("s3cret")
	b.url = server.URL
	log := logging{lines: make(chan string, 10_000)}
	r := b.run(specOf(nothing), &natsonce.Options{
		Connect: []nats.Option{nats.UserInfoHandler(func() (user, word string) { return "me", password.Load().(string) })}, Workers: consume.Workers{Log: log.logger()},
	})
	b.send("m-1")
	r.wants(everonce.Executed)
	configured("n3w", "s3cret")
	log.wants(t, "authorization violation") // at the end of the connection
	log.wants(t, "authorization violation") // and twice more, when it is made again with the old one: nats.go by itself would give up
	log.wants(t, "authorization violation")
	b.send("m-2")
	password.Store("n3w")
	r.wants(everonce.Executed)
}

// unusable is a store whose tables are missing, which its coming back would not mend.
type unusable struct{ *memstore.Store }

func (unusable) KeepIdentity(context.Context, driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	return res, everonce.ErrSchema
}

// A consumer whose store has no tables ends, and says why.
func TestAStoreWithoutTables(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := consume.New(newReceiver(t, unusable{memstore.New(nil)}), specOf(nothing))
	if err != nil {
		t.Fatal(err)
	}
	c, err := natsonce.Dial(t.Context(), b.url, b.queue, h, quick(nil))
	if err != nil {
		t.Fatal(err)
	}
	b.send("m-1")
	if err := c.Run(t.Context()); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
	if info := b.consumer(); info.AckFloor.Stream != 0 {
		t.Errorf("%d is acknowledged", info.AckFloor.Stream)
	}
}
